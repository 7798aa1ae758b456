//! Greeting and READY of ZMTP 3.0 with the mechanism NULL, and the few commands that follow.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::ZmtpError;
use super::stream::Stream;

/// What kind of socket we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// Takes its share of what PUSH sockets send.
    Pull,
    /// Takes everything that PUB sockets send.
    Sub,
}

impl SocketKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Pull => "PULL",
            Self::Sub => "SUB",
        }
    }

    /// Peers that fit, for people.
    const fn peers(self) -> &'static str {
        match self {
            Self::Pull => "PUSH",
            Self::Sub => "PUB or XPUB",
        }
    }

    /// The kind that fits a peer's socket type.
    fn for_peer(peer: &str) -> Option<Self> {
        match peer {
            "PUSH" => Some(Self::Pull),
            "PUB" | "XPUB" => Some(Self::Sub),
            _ => None,
        }
    }
}

/// A greeting: signature, version 3.0, mechanism NULL, no server role, filler.
pub(super) const GREETING: [u8; 64] = {
    let mut greeting = [0; 64];
    greeting[0] = 0xFF;
    greeting[9] = 0x7F;
    greeting[10] = 3;
    greeting[12] = b'N';
    greeting[13] = b'U';
    greeting[14] = b'L';
    greeting[15] = b'L';
    greeting
};

/// Longest command that is taken; READY and PING need less than 100 bytes.
pub(super) const MAX_COMMAND_BYTES: u64 = 4096;

/// Subscription to everything, as a message of ZMTP 3.0: one byte 1 and the empty prefix.
const SUBSCRIBE_TO_ALL: [u8; 3] = [0, 1, 1];

/// Makes a connection ready to receive, within `limit`; without a kind, as what fits the peer.
///
/// # Errors
/// [`ZmtpError`] if the peer does not speak ZMTP 3, is silent, or is a socket that does not fit.
pub(super) fn handshake(
    stream: &mut Stream,
    kind: Option<SocketKind>,
    limit: Duration,
) -> Result<(), ZmtpError> {
    let until = Instant::now() + limit;
    let mut timed = Timed { stream, until };
    timed.stream.write_all(&GREETING)?;
    greeting(&mut timed)?;
    if let Some(kind) = kind {
        timed.stream.write_all(&ready(kind))?;
    }
    let found = peer_type(&mut timed)?;
    let fitting = SocketKind::for_peer(&found);
    if fitting.is_none() || kind.is_some_and(|kind| fitting != Some(kind)) {
        let expected = kind.map_or("PUSH, PUB or XPUB", SocketKind::peers);
        return Err(ZmtpError::SocketType { expected, found });
    }
    if let (None, Some(kind)) = (kind, fitting) {
        timed.stream.write_all(&ready(kind))?;
    }
    if fitting == Some(SocketKind::Sub) {
        timed.stream.write_all(&SUBSCRIBE_TO_ALL)?;
    }
    Ok(())
}

/// Reads with one deadline for all reads together.
struct Timed<'a> {
    stream: &'a mut Stream,
    until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeouts(left, left)?;
        self.stream.read(buf)
    }
}

fn read_exact(stream: &mut impl Read, out: &mut [u8]) -> Result<(), ZmtpError> {
    stream.read_exact(out).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ZmtpError::Silent("handshake"),
        io::ErrorKind::UnexpectedEof => ZmtpError::Closed,
        _ => ZmtpError::Io(error),
    })
}

fn greeting(stream: &mut impl Read) -> Result<(), ZmtpError> {
    let mut peer = [0; 64];
    // Byte by byte at first: who does not speak ZMTP should not be waited for.
    read_exact(stream, &mut peer[..1])?;
    if peer[0] != 0xFF {
        return Err(ZmtpError::NotZmtp { found: peer[..1].to_vec() });
    }
    read_exact(stream, &mut peer[1..11])?;
    if peer[9] & 1 == 0 {
        return Err(ZmtpError::NotZmtp { found: peer[..10].to_vec() });
    }
    if peer[10] < 3 {
        return Err(ZmtpError::OldVersion { found: peer[10] });
    }
    read_exact(stream, &mut peer[11..])?;
    let mechanism = String::from_utf8_lossy(&peer[12..32]).trim_end_matches('\0').to_owned();
    if mechanism != "NULL" {
        return Err(ZmtpError::Mechanism { found: mechanism });
    }
    Ok(())
}

/// The READY command with our socket type.
fn ready(kind: SocketKind) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\x00\x00\x00\x04".to_vec();
    let name = kind.name();
    if let Some(len) = body.last_mut() {
        *len = name.len() as u8;
    }
    body.extend(name.as_bytes());
    let mut command = vec![super::reader::COMMAND, body.len() as u8];
    command.extend(body);
    command
}

/// Reads the peer's READY and gives its socket type.
fn peer_type(stream: &mut impl Read) -> Result<String, ZmtpError> {
    let mut flags = [0];
    read_exact(stream, &mut flags)?;
    let len = match flags {
        [0x04] => {
            let mut len = [0];
            read_exact(stream, &mut len)?;
            u64::from(len[0])
        }
        [0x06] => {
            let mut len = [0; 8];
            read_exact(stream, &mut len)?;
            u64::from_be_bytes(len)
        }
        _ => return Err(ZmtpError::Handshake("expected a READY command")),
    };
    if len > MAX_COMMAND_BYTES {
        return Err(ZmtpError::TooLong { what: "a command", found: len, limit: MAX_COMMAND_BYTES });
    }
    let mut body = vec![0; usize::try_from(len).unwrap_or(0)];
    read_exact(stream, &mut body)?;
    if let Some(reason) = body.strip_prefix(b"\x05ERROR") {
        let reason = reason.get(1..).unwrap_or_default();
        return Err(ZmtpError::RefusedByPeer { reason: String::from_utf8_lossy(reason).into_owned() });
    }
    let properties =
        body.strip_prefix(b"\x05READY").ok_or(ZmtpError::Handshake("expected a READY command"))?;
    socket_type(properties).ok_or(ZmtpError::Handshake("READY without a Socket-Type"))
}

/// Finds `Socket-Type` among properties: name behind a one-byte length, value behind a four-byte length.
fn socket_type(mut properties: &[u8]) -> Option<String> {
    loop {
        let (len, rest) = properties.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
        properties = rest;
    }
}

/// The answer to a command within the traffic: PONG to PING, nothing to others.
pub(super) fn answer(command: &[u8]) -> Option<Vec<u8>> {
    // PING is followed by a time to live of two bytes and a context of up to 16, which comes back.
    let context = command.strip_prefix(b"\x04PING")?.get(2..)?;
    let context = &context[..context.len().min(16)];
    let mut pong = vec![super::reader::COMMAND, 5 + context.len() as u8];
    pong.extend(b"\x04PONG");
    pong.extend(context);
    Some(pong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greetings_are_checked() {
        let ours = GREETING;
        greeting(&mut ours.as_slice()).unwrap();
        let changed = |at: usize, byte: u8| {
            let mut bytes = GREETING;
            bytes[at] = byte;
            greeting(&mut bytes.as_slice())
        };
        assert!(matches!(changed(0, b'G'), Err(ZmtpError::NotZmtp { .. })));
        assert!(matches!(changed(9, 0), Err(ZmtpError::NotZmtp { .. })));
        assert!(matches!(changed(10, 1), Err(ZmtpError::OldVersion { found: 1 })));
        assert!(matches!(changed(12, b'P'), Err(ZmtpError::Mechanism { .. })));
        changed(11, 1).unwrap(); // 3.1
    }

    #[test]
    fn our_ready_is_read_back() {
        for kind in [SocketKind::Pull, SocketKind::Sub] {
            assert_eq!(peer_type(&mut ready(kind).as_slice()).unwrap(), kind.name());
        }
        let identity = b"\x04\x2b\x05READY\x08Identity\x00\x00\x00\x00\x0bsocket-type\x00\x00\x00\x04PUSH";
        let mut identity = identity.to_vec();
        identity[1] = identity.len() as u8 - 2;
        assert_eq!(peer_type(&mut identity.as_slice()).unwrap(), "PUSH");
    }

    #[test]
    fn commands_that_lie_are_refused() {
        let mut huge = vec![6];
        huge.extend((1_u64 << 40).to_be_bytes());
        assert!(matches!(peer_type(&mut huge.as_slice()), Err(ZmtpError::TooLong { .. })));
        for bad in
            [b"\x00\x05hello".as_slice(), b"\x04\x02hi", b"\x04\x08\x05READY\xffx", b"\x04\x06\x05READY"]
        {
            assert!(matches!(peer_type(&mut &*bad), Err(ZmtpError::Handshake(_))), "{bad:?}");
        }
        let refused = peer_type(&mut b"\x04\x0b\x05ERROR\x04nope".as_slice());
        assert!(matches!(refused, Err(ZmtpError::RefusedByPeer { reason }) if reason == "nope"));
    }

    #[test]
    fn a_ping_is_answered_with_its_context() {
        assert_eq!(answer(b"\x04PING\x00\x64abc").unwrap(), b"\x04\x08\x04PONGabc");
        assert_eq!(answer(b"\x04PING\x00"), None);
        assert_eq!(answer(b"\x09SUBSCRIBE"), None);
    }
}
