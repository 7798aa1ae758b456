//! Frames from detectors over ZeroMQ: sockets, protocols, and the account of their series.
//!
//! * [`zmtp`]: the wire protocol of ZeroMQ, received straight into the buffers that frames live in
//! * [`protocol`]: what the messages of detectors say
//! * [`assembler`]: which frame belongs to which series, what it is for, when a series ends
//! * the nodes `zmq_source` and `zmq_sink`

pub mod assembler;
mod fill;
#[cfg(test)]
mod outlet;
pub mod protocol;
mod sink;
mod source;
pub mod zmtp;

use beamstream_node::Registry;

pub use sink::{SendProtocol, SendSocket, ZmqSink, ZmqSinkConfig};
pub use source::{AnglesSetting, ModeSetting, OneOrMany, SocketSetting, ZmqSource, ZmqSourceConfig};

/// Adds the nodes of this crate.
pub fn register(registry: &mut Registry) {
    registry.source::<ZmqSourceConfig>();
    registry.node::<ZmqSinkConfig>();
}
