//! Frames from detectors over ZeroMQ: sockets, protocols, and the account of their series.
//!
//! * [`zmtp`]: the wire protocol of ZeroMQ, received straight into the buffers that frames live in
//! * [`protocol`]: what the messages of detectors say
//! * [`assembler`]: which frame belongs to which series, what it is for, when a series ends

pub mod assembler;
pub mod protocol;
pub mod zmtp;
