//! ZMTP 3.0 with the NULL mechanism, as much of it as a PUSH or PUB socket needs.
//!
//! # Source
//! ZeroMQ RFC 23/ZMTP 3.0, <https://rfc.zeromq.org/spec/23/>.

use std::io::{self, Read, Write};

use super::SocketKind;
use crate::Message;

const MORE: u8 = 0b001;
const LONG: u8 = 0b010;
const COMMAND: u8 = 0b100;
/// A receiver sends subscriptions, heartbeats and its READY, all of which are short.
const MAX_FRAME_BYTES: u64 = 64 << 10;
/// Parts up to this size are gathered before they are written.
const GATHER_BYTES: usize = 16 << 10;

/// What a receiver sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Message(Vec<u8>),
    Command(Vec<u8>),
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Exchanges greetings and READY, and checks that the peer is the counterpart of `kind`.
pub(super) fn shake_hands(stream: &mut (impl Read + Write), kind: SocketKind) -> io::Result<()> {
    let mut greeting = [0; 64];
    greeting[0] = 0xFF;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    stream.write_all(&greeting)?;
    let mut theirs = [0; 64];
    stream.read_exact(&mut theirs)?;
    if theirs[0] != 0xFF || theirs[9] != 0x7F || theirs[10] < 3 {
        return Err(refused("expected a greeting of ZMTP 3"));
    }
    if theirs[12..32] != greeting[12..32] {
        return Err(refused("expected the NULL mechanism"));
    }
    let name: &[u8] = match kind {
        SocketKind::Push => b"PUSH",
        SocketKind::Pub => b"PUB",
    };
    let ready = [b"\x05READY\x0bSocket-Type", &(name.len() as u32).to_be_bytes()[..], name].concat();
    write_command(stream, &ready)?;
    match read_frame(stream)? {
        Frame::Command(body) => check_ready(&body, kind),
        Frame::Message(_) => Err(refused("expected READY before any message")),
    }
}

/// Whether a READY command comes from a socket that may listen to `kind`.
fn check_ready(body: &[u8], kind: SocketKind) -> io::Result<()> {
    let accepted: &[&[u8]] = match kind {
        SocketKind::Push => &[b"PULL"],
        SocketKind::Pub => &[b"SUB", b"XSUB"],
    };
    let mut rest = body.strip_prefix(b"\x05READY").ok_or_else(|| refused("expected READY"))?;
    while let Some((name, value, next)) = split_property(rest) {
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return if accepted.contains(&value) {
                Ok(())
            } else {
                Err(refused("expected a PULL socket for PUSH, a SUB or XSUB socket for PUB"))
            };
        }
        rest = next;
    }
    Err(refused("expected READY with a Socket-Type"))
}

/// Name, value and what follows of the first property of `bytes`.
fn split_property(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (&name_length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(name_length))?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((name, value, rest))
}

/// Reads one frame.
pub(super) fn read_frame(stream: &mut impl Read) -> io::Result<Frame> {
    let mut flags = [0];
    stream.read_exact(&mut flags)?;
    let flags = flags[0];
    let length = if flags & LONG == 0 {
        let mut length = [0];
        stream.read_exact(&mut length)?;
        u64::from(length[0])
    } else {
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        u64::from_be_bytes(length)
    };
    if length > MAX_FRAME_BYTES {
        return Err(refused("expected a short frame from a receiver"));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    Ok(if flags & COMMAND == 0 { Frame::Message(body) } else { Frame::Command(body) })
}

/// The answer to a PING: its context, which follows two bytes of time to live.
pub(super) fn pong(command: &[u8]) -> Option<Vec<u8>> {
    let context = command.strip_prefix(b"\x04PING")?.get(2..)?;
    Some([b"\x04PONG", context].concat())
}

/// Writes a command.
pub(super) fn write_command(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(body.len() + 9);
    push_head(&mut frame, COMMAND, body.len());
    frame.extend_from_slice(body);
    stream.write_all(&frame)
}

/// Writes all parts of a message.
pub(super) fn write_message(stream: &mut impl Write, message: &Message) -> io::Result<()> {
    let mut gathered = Vec::with_capacity(GATHER_BYTES);
    for (index, part) in message.iter().enumerate() {
        let more = if index + 1 < message.len() { MORE } else { 0 };
        push_head(&mut gathered, more, part.len());
        if part.len() <= GATHER_BYTES {
            gathered.extend_from_slice(part);
        } else {
            stream.write_all(&gathered)?;
            gathered.clear();
            stream.write_all(part)?;
        }
    }
    stream.write_all(&gathered)
}

/// Appends flags and length of a frame.
fn push_head(out: &mut Vec<u8>, flags: u8, length: usize) {
    match u8::try_from(length) {
        Ok(short) => out.extend_from_slice(&[flags, short]),
        Err(_too_long) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// A peer that has said all it will say, and what it was told.
    struct Script {
        says: io::Cursor<Vec<u8>>,
        heard: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.says.read(buffer)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.heard.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What libzmq 4.3 sends on a socket of type `name`.
    fn peer(name: &str) -> Script {
        let mut says = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL".to_vec();
        says.resize(64, 0);
        let body = [b"\x05READY\x0bSocket-Type\0\0\0", &[name.len() as u8][..], name.as_bytes()].concat();
        push_head(&mut says, COMMAND, body.len());
        says.extend(body);
        Script { says: io::Cursor::new(says), heard: Vec::new() }
    }

    #[test]
    fn push_talks_to_pull_only() {
        let mut pull = peer("PULL");
        shake_hands(&mut pull, SocketKind::Push).unwrap();
        assert_eq!(pull.heard[64..], *b"\x04\x1a\x05READY\x0bSocket-Type\0\0\0\x04PUSH");
        assert!(shake_hands(&mut peer("SUB"), SocketKind::Push).is_err());
    }

    #[test]
    fn pub_talks_to_sub_and_xsub() {
        let mut sub = peer("SUB");
        shake_hands(&mut sub, SocketKind::Pub).unwrap();
        assert_eq!(sub.heard[64..], *b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB");
        shake_hands(&mut peer("XSUB"), SocketKind::Pub).unwrap();
        assert!(shake_hands(&mut peer("PULL"), SocketKind::Pub).is_err());
    }

    #[test]
    fn a_peer_that_speaks_another_language_is_refused() {
        let mut http = Script {
            says: io::Cursor::new(
                b"GET / HTTP/1.1\r\nHost: detector\r\nUser-Agent: a browser of some kind\r\n\r\n".to_vec(),
            ),
            heard: Vec::new(),
        };
        assert!(shake_hands(&mut http, SocketKind::Push).is_err());
        let huge = [COMMAND | LONG, 0x40, 0, 0, 0, 0, 0, 0, 0];
        assert!(read_frame(&mut &huge[..]).is_err());
    }

    #[test]
    fn parts_are_framed_short_and_long() {
        let mut out = Vec::new();
        let message = vec![Bytes::from_static(b"head"), Bytes::from(vec![7; 300])];
        write_message(&mut out, &message).unwrap();
        assert_eq!(out[..6], *b"\x01\x04head");
        assert_eq!(out[6..15], [LONG, 0, 0, 0, 0, 0, 0, 1, 44]);
        assert_eq!(out[15..], [7; 300]);
    }

    #[test]
    fn a_ping_is_answered_with_its_context() {
        assert_eq!(pong(b"\x04PING\0\x64abc").unwrap(), b"\x04PONGabc");
        assert!(pong(b"\x04PONGabc").is_none());
    }
}
