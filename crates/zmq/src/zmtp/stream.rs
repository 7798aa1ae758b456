//! A connection: TCP or a Unix socket.

use std::io::{self, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::Endpoint;

/// How long one attempt to connect may take; also how long a shutdown waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer whose machine vanished is noticed after about a minute: the first probe after 15 s, then nine more.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// A connected socket.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to an endpoint, trying all addresses of its name.
    pub(super) fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Ipc(path) => UnixStream::connect(path).map(Self::Unix),
            Endpoint::Tcp { host, port } => {
                let mut last = io::Error::from(io::ErrorKind::NotFound);
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                        Ok(stream) => return Self::tcp(stream),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok(Self::Tcp(stream))
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// Ends all reads and writes on the socket, also those that wait in another thread.
    pub(super) fn shutdown(&self) {
        let outcome = match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "the connection was closed already");
        }
    }

    pub(super) fn set_timeouts(&self, read: Duration, write: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(read))?;
                stream.set_write_timeout(Some(write))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(read))?;
                stream.set_write_timeout(Some(write))
            }
        }
    }

    /// The peer, for people: its address, or the path.
    pub(super) fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |a| a.to_string()),
            Self::Unix(_) => "local".to_owned(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buf),
            Self::Unix(stream) => stream.read(buf),
        }
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read_vectored(bufs),
            Self::Unix(stream) => stream.read_vectored(bufs),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buf),
            Self::Unix(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    /// The path is removed when the listener is dropped.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp { host, port } => {
                let host = if host == "*" { "0.0.0.0" } else { host };
                TcpListener::bind((host, *port)).map(Self::Tcp)
            }
            Endpoint::Ipc(path) => {
                let bound = UnixListener::bind(path);
                let bound = match bound {
                    // Left behind by a program that was killed: nobody answers there.
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() =>
                    {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    other => other,
                };
                Ok(Self::Unix(bound?, path.clone()))
            }
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => listener.accept().and_then(|(stream, _)| Stream::tcp(stream)),
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
        }
    }

    /// Where the listener can be reached from this machine.
    pub(super) fn local_endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Unix(_, path) => Ok(Endpoint::Ipc(path.clone())),
            Self::Tcp(listener) => {
                let address = listener.local_addr()?;
                let ip = match address {
                    SocketAddr::V4(v4) if v4.ip().is_unspecified() => "127.0.0.1".to_owned(),
                    SocketAddr::V6(v6) if v6.ip().is_unspecified() => "::1".to_owned(),
                    other => other.ip().to_string(),
                };
                Ok(Endpoint::Tcp { host: ip, port: address.port() })
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self
            && let Err(error) = std::fs::remove_file(&*path)
        {
            tracing::debug!(%error, path = %path.display(), "the socket's path was removed already");
        }
    }
}
