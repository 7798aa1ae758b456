//! End-to-end, contract and layer tests.
