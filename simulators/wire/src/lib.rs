//! Detector messages, encoded independently of the receivers, and a sender for them.
//!
//! An [`Encoder`] makes the messages of one protocol; a [`Sender`] puts them on a PUSH or PUB socket.
//! Nothing here is shared with the product's decoders, so that those are not checked against themselves.

mod bitshuffle;
mod cbor;
mod dectris_v1;
mod dectris_v2;
mod endpoint;
mod json_array;
mod protocol;
mod sender;
mod stop;

pub use endpoint::{Endpoint, EndpointError};
pub use protocol::{
    Encoder, Encoding, FrameInfo, Message, Protocol, SeriesInfo, UnknownName, UnsupportedEncoding,
};
pub use sender::{Sender, SenderError, SocketKind};
pub use stop::{Stop, Stopped};
