//! Reading frames: small things through a small buffer, pixels straight to where they belong.

use std::io::{self, IoSliceMut, Read};
use std::time::{Duration, Instant};

use super::ZmtpError;

/// Bytes read ahead: enough for the small parts around a frame, few enough that hardly any pixel passes here.
const BUFFER_BYTES: usize = 8 * 1024;
/// First step when a part grows as its bytes arrive.
const FIRST_STEP: usize = 256 * 1024;

/// Another part of the same message follows.
pub(super) const MORE: u8 = 1;
/// The length has eight bytes.
const LONG: u8 = 2;
/// The frame is a command.
pub(super) const COMMAND: u8 = 4;

/// Flags and length of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) flags: u8,
    pub(super) len: u64,
}

/// Reads frames from a stream whose reads time out regularly.
pub(super) struct FrameReader<S> {
    stream: S,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// How long the peer may be silent within a message.
    patience: Duration,
}

impl<S: Read> FrameReader<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, patience }
    }

    pub(super) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The next frame's flags and length. Waits as long as it takes if `within_message` is false.
    pub(super) fn header(&mut self, within_message: bool) -> Result<FrameHeader, ZmtpError> {
        if self.start == self.end {
            self.fill(within_message)?;
        }
        let mut flags = [0];
        self.read_exact(&mut flags)?;
        let [flags] = flags;
        let unknown = flags & !(MORE | LONG | COMMAND) != 0;
        if unknown || (flags & COMMAND != 0 && flags & MORE != 0) {
            return Err(ZmtpError::Flags { found: flags });
        }
        let len = if flags & LONG == 0 {
            let mut len = [0];
            self.read_exact(&mut len)?;
            u64::from(len[0])
        } else {
            let mut len = [0; 8];
            self.read_exact(&mut len)?;
            u64::from_be_bytes(len)
        };
        Ok(FrameHeader { flags, len })
    }

    /// Fills `out`; what the kernel has beyond it goes into the buffer by the same call.
    pub(super) fn read_exact(&mut self, out: &mut [u8]) -> Result<(), ZmtpError> {
        let ready = (self.end - self.start).min(out.len());
        let (head, mut rest) = out.split_at_mut(ready);
        head.copy_from_slice(&self.buffer[self.start..self.start + ready]);
        self.start += ready;
        while !rest.is_empty() {
            let wanted = rest.len();
            let (stream, buffer) = (&mut self.stream, &mut self.buffer);
            let read = patient(self.patience, true, || {
                stream.read_vectored(&mut [IoSliceMut::new(rest), IoSliceMut::new(buffer)])
            })?;
            if read == 0 {
                return Err(ZmtpError::ClosedWithin);
            }
            (self.start, self.end) = (0, read.saturating_sub(wanted));
            rest = &mut rest[read.min(wanted)..];
        }
        Ok(())
    }

    /// Reads `len` bytes into the front of `out`, which grows as they arrive: a claimed length costs nothing.
    pub(super) fn read_growing(&mut self, out: &mut Vec<u8>, len: usize) -> Result<(), ZmtpError> {
        let mut filled = 0;
        while filled < len {
            let step = out.len().max(2 * filled).max(FIRST_STEP).min(len);
            if out.len() < step {
                out.resize(step, 0);
            }
            self.read_exact(&mut out[filled..step])?;
            filled = step;
        }
        Ok(())
    }

    /// Reads `len` bytes and forgets them.
    pub(super) fn skip(&mut self, len: u64) -> Result<(), ZmtpError> {
        let mut left = len;
        while left > 0 {
            if self.start == self.end {
                self.fill(true)?;
            }
            let ready = u64::try_from(self.end - self.start).unwrap_or(u64::MAX).min(left);
            self.start += usize::try_from(ready).unwrap_or(0);
            left -= ready;
        }
        Ok(())
    }

    fn fill(&mut self, within_message: bool) -> Result<(), ZmtpError> {
        let (stream, buffer) = (&mut self.stream, &mut self.buffer);
        let read = patient(self.patience, within_message, || stream.read(buffer))?;
        if read == 0 {
            return Err(if within_message { ZmtpError::ClosedWithin } else { ZmtpError::Closed });
        }
        (self.start, self.end) = (0, read);
        Ok(())
    }
}

/// Repeats a read that timed out, for ever between messages and up to `patience` within one.
fn patient(
    patience: Duration,
    within_message: bool,
    mut read: impl FnMut() -> io::Result<usize>,
) -> Result<usize, ZmtpError> {
    let mut since = None;
    loop {
        match read() {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let since = *since.get_or_insert_with(Instant::now);
                if within_message && since.elapsed() >= patience {
                    return Err(ZmtpError::Silent("middle of a message"));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives its bytes in pieces, as a network does.
    struct Pieces(Vec<u8>, usize);

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(out.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    fn reader(bytes: Vec<u8>, piece: usize) -> FrameReader<Pieces> {
        FrameReader::new(Pieces(bytes, piece), Duration::ZERO)
    }

    #[test]
    fn headers_are_short_or_long() {
        let mut reader = reader(vec![1, 5, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0], 3);
        assert_eq!(reader.header(false).unwrap(), FrameHeader { flags: 1, len: 5 });
        reader.skip(5).unwrap();
        assert_eq!(reader.header(true).unwrap(), FrameHeader { flags: 2, len: 65536 });
        assert!(matches!(reader.header(true), Err(ZmtpError::ClosedWithin)));
        assert!(matches!(reader.header(false), Err(ZmtpError::Closed)));
    }

    #[test]
    fn flags_that_do_not_exist_are_refused() {
        for flags in [8, 5, 0xFF] {
            assert!(
                matches!(reader(vec![flags, 0], 9).header(false), Err(ZmtpError::Flags { .. })),
                "{flags}"
            );
        }
    }

    #[test]
    fn a_claimed_length_is_not_allocated() {
        let mut out = Vec::new();
        let error = reader(vec![7; 1000], 100).read_growing(&mut out, usize::MAX / 2);
        assert!(matches!(error, Err(ZmtpError::ClosedWithin)));
        assert!(out.len() <= FIRST_STEP);
    }

    proptest! {
        #[test]
        fn bytes_arrive_in_order_however_they_are_cut(
            lengths in proptest::collection::vec(0_usize..30_000, 1..12),
            piece in 1_usize..20_000,
        ) {
            let total: usize = lengths.iter().sum();
            let bytes: Vec<u8> = (0..total).map(|i| (i % 251) as u8).collect();
            let mut reader = reader(bytes.clone(), piece);
            let mut at = 0;
            for (index, len) in lengths.into_iter().enumerate() {
                if index % 3 == 2 {
                    reader.skip(len as u64).unwrap();
                } else {
                    let mut out = vec![0; 5];
                    reader.read_growing(&mut out, len).unwrap();
                    prop_assert_eq!(&out[..len], &bytes[at..at + len]);
                }
                at += len;
            }
        }
    }
}
