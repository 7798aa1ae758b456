//! One record at its place in a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use beamstream_core::Format;

use crate::content::{read_block, read_end, read_series};
use crate::prefix::{Kind, PREFIX_BYTES, Prefix};
use crate::{Content, Record, TapeError};

/// Longest head that is believed: far above the metadata of any detector.
const MAX_HEAD_BYTES: u32 = 64 << 20;

/// A record that was found; pixels are read by [`Entry::read_pixels`].
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it says.
    pub content: Content,
    /// When it was written, in nanoseconds since the tape began.
    pub time_ns: u64,
    /// Where it begins.
    pub offset: u64,
    /// Where the next one begins.
    pub next: u64,
    payload: u64,
    payload_crc: u32,
}

/// Writes a record at `offset` and gives the bytes that it takes. `scratch` is kept from record to record, so that a
/// block costs no allocation.
///
/// # Errors
/// If the system refuses; what stands behind `offset` is then undefined.
pub fn write_at(
    file: &File,
    offset: u64,
    record: &Record<'_>,
    time_ns: u64,
    scratch: &mut Vec<u8>,
) -> io::Result<u64> {
    scratch.clear();
    scratch.resize(PREFIX_BYTES, 0);
    record.write_head(scratch)?;
    let payload = record.payload();
    let head = &scratch[PREFIX_BYTES..];
    let prefix = Prefix {
        kind: record.kind(),
        head_bytes: u32::try_from(head.len()).ok().filter(|bytes| *bytes <= MAX_HEAD_BYTES).ok_or_else(
            || {
                io::Error::other(format!(
                    "the metadata of a series take {} bytes, more than a tape holds",
                    head.len()
                ))
            },
        )?,
        head_crc: crc32c::crc32c(head),
        payload_bytes: payload.len() as u64,
        time_ns,
        payload_crc: crc32c::crc32c(&payload),
    };
    scratch[..PREFIX_BYTES].copy_from_slice(&prefix.to_bytes());
    file.write_all_at(scratch, offset)?;
    file.write_all_at(&payload, offset + scratch.len() as u64)?;
    Ok((scratch.len() + payload.len()) as u64)
}

/// Reads the record at `offset` of a file of `len` bytes, all but pixels.
///
/// # Errors
/// [`TapeError::Cut`] where the file ends within it, [`TapeError::Damaged`] where it was not written so.
pub fn read_at(file: &File, path: &Path, offset: u64, len: u64) -> Result<Entry, TapeError> {
    let cut = || TapeError::Cut { path: path.to_owned(), offset };
    let damaged = |what| TapeError::Damaged { path: path.to_owned(), offset, what };
    if len.saturating_sub(offset) < PREFIX_BYTES as u64 {
        return Err(cut());
    }
    let mut bytes = [0; PREFIX_BYTES];
    file.read_exact_at(&mut bytes, offset).map_err(TapeError::io(path))?;
    let prefix = Prefix::from_bytes(&bytes).map_err(damaged)?;
    let head_at = offset + PREFIX_BYTES as u64;
    let payload_at = head_at + u64::from(prefix.head_bytes);
    // The prefix is whole, so its lengths are those that were written; the file may still be shorter.
    let next = payload_at.checked_add(prefix.payload_bytes).filter(|next| *next <= len).ok_or_else(cut)?;
    if prefix.head_bytes > MAX_HEAD_BYTES {
        return Err(damaged("a head longer than any"));
    }
    let mut head = vec![0; prefix.head_bytes as usize];
    file.read_exact_at(&mut head, head_at).map_err(TapeError::io(path))?;
    if crc32c::crc32c(&head) != prefix.head_crc {
        return Err(damaged("a head that does not fit its checksum"));
    }
    let content = match prefix.kind {
        Kind::Series => {
            let mut angles = vec![0; usize::try_from(prefix.payload_bytes).map_err(|_error| cut())?];
            file.read_exact_at(&mut angles, payload_at).map_err(TapeError::io(path))?;
            if crc32c::crc32c(&angles) != prefix.payload_crc {
                return Err(damaged("angles that do not fit their checksum"));
            }
            Content::Series(Box::new(read_series(&head, &angles).map_err(damaged)?))
        }
        Kind::Block => {
            let (meta, format) = read_block(&head).map_err(damaged)?;
            if format.checked_bytes().map(|bytes| bytes as u64) != Some(prefix.payload_bytes) {
                return Err(damaged("another number of bytes than its shape takes"));
            }
            Content::Block { meta, format }
        }
        Kind::End => Content::End(read_end(&head).map_err(damaged)?.1),
        Kind::Account => {
            let (id, summary) = read_end(&head).map_err(damaged)?;
            Content::Account { id: id.ok_or_else(|| damaged("an account of no series"))?, summary }
        }
        Kind::Index => Content::Index,
    };
    let (time_ns, payload_crc) = (prefix.time_ns, prefix.payload_crc);
    Ok(Entry { content, time_ns, offset, next, payload: payload_at, payload_crc })
}

impl Entry {
    /// The format of the block, if it is one.
    pub fn format(&self) -> Option<Format> {
        match self.content {
            Content::Block { format, .. } => Some(format),
            _ => None,
        }
    }

    /// Reads the pixels of a block into `pixels`, which has the size of its format.
    ///
    /// # Errors
    /// [`TapeError::Damaged`] if they are not those that were written.
    pub fn read_pixels(&self, file: &File, path: &Path, pixels: &mut [u8]) -> Result<(), TapeError> {
        let damaged = |what| TapeError::Damaged { path: path.to_owned(), offset: self.offset, what };
        if pixels.len() as u64 != self.next - self.payload {
            return Err(damaged("another size than its series"));
        }
        file.read_exact_at(pixels, self.payload).map_err(TapeError::io(path))?;
        if crc32c::crc32c(pixels) != self.payload_crc {
            return Err(damaged("pixels that do not fit their checksum"));
        }
        Ok(())
    }
}
