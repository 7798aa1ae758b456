//! Addresses of sockets.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Where a socket connects to or listens: `tcp://host:port`, `tcp://*:port` or `ipc://path`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// Name or address of the host, IPv6 without brackets; `*` listens on all interfaces.
        host: String,
        /// The port; 0 lets the system choose one to listen on.
        port: u16,
    },
    /// A Unix socket.
    Ipc(PathBuf),
}

/// A text that is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{found}' is no endpoint: expected tcp://HOST:PORT or ipc://PATH")]
pub struct EndpointError {
    /// The text.
    pub found: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || EndpointError { found: text.to_owned() };
        if let Some(path) = text.strip_prefix("ipc://").filter(|path| !path.is_empty()) {
            return Ok(Self::Ipc(path.into()));
        }
        let address = text.strip_prefix("tcp://").ok_or_else(error)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(error)?;
        let port = if port == "*" { 0 } else { port.parse().map_err(|_not_a_port| error())? };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() || (bare == host && host.contains(':')) {
            return Err(error());
        }
        Ok(Self::Tcp { host: bare.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        for text in
            ["tcp://127.0.0.1:9999", "tcp://detector.local:1", "tcp://[::1]:80", "tcp://*:5", "ipc:///tmp/x"]
        {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let any = Endpoint::Tcp { host: "127.0.0.1".into(), port: 0 };
        assert_eq!("tcp://127.0.0.1:*".parse(), Ok(any));
        for bad in [
            "",
            "tcp://",
            "tcp://a",
            "tcp://a:x",
            "tcp://:1",
            "tcp://a:70000",
            "udp://a:1",
            "tcp://::1:5",
            "ipc://",
        ] {
            let error = bad.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains("tcp://HOST:PORT"), "{bad}");
        }
    }
}
