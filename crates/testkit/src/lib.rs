//! Phantoms, a harness for one node, golden data; a dev-dependency only.
