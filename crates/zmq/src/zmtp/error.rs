//! Why a connection was refused or lost.

use std::io;

use thiserror::Error;

/// A connection was refused or lost.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ZmtpError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The peer closed the connection between two messages.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer closed the connection within a message, which is lost.
    #[error("the peer closed the connection within a message")]
    ClosedWithin,
    /// The peer sent nothing for too long, in the handshake or within a message.
    #[error("the peer went silent in the {0}")]
    Silent(&'static str),
    /// What the peer sends is no ZMTP.
    #[error("the peer does not speak ZeroMQ: its first bytes are {found:02x?}")]
    NotZmtp {
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// The peer speaks a version before 3.
    #[error("the peer speaks ZMTP {found}, expected 3 or later")]
    OldVersion {
        /// Its version.
        found: u8,
    },
    /// The peer wants another security mechanism than NULL.
    #[error("the peer wants security mechanism {found}, only NULL is supported")]
    Mechanism {
        /// The mechanism.
        found: String,
    },
    /// The handshake is not what the protocol says.
    #[error("malformed handshake: {0}")]
    Handshake(&'static str),
    /// The peer refused the connection.
    #[error("the peer refused the connection: {reason}")]
    RefusedByPeer {
        /// What it said.
        reason: String,
    },
    /// The peer is a socket of a type that does not fit.
    #[error("the peer is a {found} socket, expected {expected}")]
    SocketType {
        /// Types that fit.
        expected: &'static str,
        /// The peer's type.
        found: String,
    },
    /// A frame with flags that do not exist.
    #[error("a frame with unknown flags {found:#04x}")]
    Flags {
        /// The flags.
        found: u8,
    },
    /// A frame, or a message of several, that is longer than allowed.
    #[error("{what} of {found} bytes, at most {limit} are allowed")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The length that the peer claims.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// There are as many peers as allowed.
    #[error("{found} peers are connected, at most {limit} are allowed")]
    TooMany {
        /// Peers that are connected.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The receiver is being shut down.
    #[error("the receiver was shut down")]
    ShutDown,
}
