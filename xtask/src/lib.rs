//! What cargo itself cannot do.
