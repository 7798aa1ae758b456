//! Graph, plan, run.
