//! Byte streams of both transports, under one name.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use crate::Endpoint;

/// A connected stream.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Ipc(UnixStream),
}

/// A bound listener.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

impl Stream {
    pub(super) fn connect(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp { host, port } => {
                Self::without_delay(TcpStream::connect((host.trim_matches(['[', ']']), *port))?)
            }
            Endpoint::Ipc(path) => UnixStream::connect(path).map(Self::Ipc),
        }
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Ipc(stream) => stream.try_clone().map(Self::Ipc),
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Ipc(stream) => stream.shutdown(how),
        }
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Ipc(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn without_delay(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Ipc(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Ipc(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Listener {
    /// Binds, and tells the endpoint with the port that was found.
    pub(super) fn bind(endpoint: &Endpoint) -> io::Result<(Self, Endpoint)> {
        match endpoint {
            Endpoint::Tcp { host, port } => {
                let interface = if host == "*" { "0.0.0.0" } else { host.trim_matches(['[', ']']) };
                let listener = TcpListener::bind((interface, *port))?;
                let port = listener.local_addr()?.port();
                let host = if host == "*" { interface.to_owned() } else { host.clone() };
                Ok((Self::Tcp(listener), Endpoint::Tcp { host, port }))
            }
            Endpoint::Ipc(path) => {
                // A sender that was killed leaves its socket behind; ZeroMQ takes it over, too.
                if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
                    std::fs::remove_file(path)?;
                }
                Ok((Self::Ipc(UnixListener::bind(path)?), endpoint.clone()))
            }
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::without_delay(listener.accept()?.0),
            Self::Ipc(listener) => Ok(Stream::Ipc(listener.accept()?.0)),
        }
    }
}
