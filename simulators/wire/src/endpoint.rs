//! Addresses of sockets.

use std::path::PathBuf;
use std::str::FromStr;

/// Where a socket binds or connects: `tcp://HOST:PORT` or `ipc://PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP: host, or `*` for all interfaces, and port, 0 being any free one.
    Tcp {
        /// Name or number of the host.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Ipc(PathBuf),
}

/// A text that is no endpoint.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no endpoint, expected tcp://HOST:PORT or ipc://PATH")]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let refused = || EndpointError(text.to_owned());
        if let Some(path) = text.strip_prefix("ipc://").filter(|path| !path.is_empty()) {
            return Ok(Self::Ipc(path.into()));
        }
        let address = text.strip_prefix("tcp://").ok_or_else(refused)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(refused)?;
        let port = if port == "*" { Some(0) } else { port.parse().ok() };
        match port {
            Some(port) if !host.is_empty() => Ok(Self::Tcp { host: host.to_owned(), port }),
            _ => Err(refused()),
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written_alike() {
        for text in ["tcp://127.0.0.1:9999", "tcp://*:31001", "tcp://[::1]:5", "ipc:///tmp/sim"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("tcp://*:*".parse::<Endpoint>().unwrap().to_string(), "tcp://*:0");
        for text in ["", "tcp://", "tcp://host", "tcp://:99", "tcp://h:99999", "udp://h:1", "ipc://"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
