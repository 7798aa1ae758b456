//! Tomography nodes.
