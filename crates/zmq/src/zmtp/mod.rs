//! ZMTP 3.0, the wire protocol of ZeroMQ: a receiver (PULL and SUB, mechanism NULL) on plain sockets.
//!
//! One thread for each connection reads straight into the buffers that frames live in. Memory is bounded by
//! the messages under way, not by a count of messages times whatever their size is: a consumer that stalls
//! stops the socket, and so the sender. Peers cost nothing but their own connection, whatever they send.
//!
//! # Source
//! ZeroMQ RFC 23 (ZMTP 3.0) and RFC 37 (ZMTP 3.1), <https://rfc.zeromq.org>.

mod connection;
mod endpoint;
mod error;
mod handshake;
mod message;
mod quota;
mod reader;
mod receiver;
mod stream;

pub use endpoint::{Endpoint, EndpointError};
pub use error::ZmtpError;
pub use handshake::SocketKind;
pub use message::{Lease, MAX_PARTS, Message, NoLeases, PartBuffers};
pub use receiver::{Limits, Mode, Options, Receiver, ReceiverError, Traffic};
