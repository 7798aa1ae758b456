//! A receiving ZeroMQ socket for tests of senders.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A sender that is silent for so long has hung.
const SILENCE: Duration = Duration::from_mins(1);
/// Largest part that is read.
const MAX_PART_BYTES: usize = 1 << 30;

/// A PULL or SUB socket with one peer, written down byte by byte so that it shares no code with what it tests.
///
/// # Source
/// ZeroMQ RFC 23/ZMTP 3.0.
#[derive(Debug)]
pub struct Receiver(TcpStream);

impl Receiver {
    /// Connects a PULL socket to `tcp://HOST:PORT`.
    ///
    /// # Errors
    /// If nobody listens there, or the peer is no ZeroMQ socket.
    pub fn pull(endpoint: &str) -> io::Result<Self> {
        Self::connect(endpoint, b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PULL")
    }

    /// Connects a SUB socket to `tcp://HOST:PORT` and subscribes to what begins with `prefix`, of 254 bytes at most.
    ///
    /// # Errors
    /// If nobody listens there, or the peer is no ZeroMQ socket.
    pub fn subscribe(endpoint: &str, prefix: &[u8]) -> io::Result<Self> {
        let mut receiver = Self::connect(endpoint, b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB")?;
        let length = u8::try_from(prefix.len() + 1).map_err(io::Error::other)?;
        receiver.0.write_all(&[&[0, length, 1], prefix].concat())?;
        Ok(receiver)
    }

    /// Waits for the next message and gives its parts.
    ///
    /// # Errors
    /// `UnexpectedEof` when the sender has closed the connection; else what went wrong with it.
    pub fn message(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut parts = Vec::new();
        loop {
            let (flags, body) = self.frame()?;
            parts.push(body);
            if flags & 1 == 0 {
                return Ok(parts);
            }
        }
    }

    fn connect(endpoint: &str, ready: &[u8]) -> io::Result<Self> {
        let address = endpoint.trim_start_matches("tcp://");
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let mut hello = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL".to_vec();
        hello.resize(64, 0);
        hello.extend_from_slice(ready);
        stream.write_all(&hello)?;
        let mut greeting = [0; 64];
        stream.read_exact(&mut greeting)?;
        let mut receiver = Self(stream);
        receiver.frame()?;
        Ok(receiver)
    }

    /// The flags and the body of the next frame.
    fn frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut flags = [0];
        self.0.read_exact(&mut flags)?;
        let mut length = vec![0; if flags[0] & 2 == 0 { 1 } else { 8 }];
        self.0.read_exact(&mut length)?;
        let length = length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        if length > MAX_PART_BYTES {
            return Err(io::Error::other("a part is too long"));
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok((flags[0], body))
    }
}
