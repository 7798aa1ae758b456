//! Reading a tape from its beginning.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::prefix::{u32_at, u64_at};
use crate::{Content, Entry, TapeError, read_at};

/// First bytes of a tape.
pub(crate) const MAGIC: [u8; 8] = *b"BEAMTAPE";
/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;
/// Bytes before the first record: magic, version, four bytes of nothing.
pub(crate) const START_BYTES: u64 = 16;
/// Last bytes of a whole tape: offset of the index, its checksum, magic.
pub(crate) const TRAILER_BYTES: u64 = 16;
/// Last bytes of a trailer.
pub(crate) const TRAILER_MAGIC: [u8; 4] = *b"BEND";

/// Reads the records of a tape in their order. Memory does not grow with the tape.
#[derive(Debug)]
pub struct TapeReader {
    file: File,
    path: PathBuf,
    len: u64,
    /// Where the index begins, or the file ends.
    end: u64,
    offset: u64,
    is_whole: bool,
}

impl TapeReader {
    /// Opens a tape, whole or cut off.
    ///
    /// # Errors
    /// [`TapeError`] if it cannot be read or is no tape of this version.
    pub fn open(path: &Path) -> Result<Self, TapeError> {
        let file = File::open(path).map_err(TapeError::io(path))?;
        Self::over(file, path)
    }

    pub(crate) fn over(file: File, path: &Path) -> Result<Self, TapeError> {
        let len = file.metadata().map_err(TapeError::io(path))?.len();
        let mut start = [0; START_BYTES as usize];
        if len >= START_BYTES {
            file.read_exact_at(&mut start, 0).map_err(TapeError::io(path))?;
        }
        if start[..8] != MAGIC {
            return Err(TapeError::Foreign { path: path.to_owned() });
        }
        let found = u32_at(&start, 8);
        if found != VERSION {
            return Err(TapeError::Version { path: path.to_owned(), expected: VERSION, found });
        }
        let index = index_of(&file, path, len)?;
        let path = path.to_owned();
        Ok(Self {
            file,
            path,
            len,
            end: index.unwrap_or(len),
            offset: START_BYTES,
            is_whole: index.is_some(),
        })
    }

    /// Whether the tape was closed with its index; else whoever wrote it was interrupted, or still writes.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Where the tape lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next record begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes on at `offset`, where a record begins.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// As [`read_at`]; asked again it says the same.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, TapeError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let entry = read_at(&self.file, &self.path, self.offset, self.len)?;
        if matches!(entry.content, Content::Index) {
            self.end = self.offset;
            return Ok(None);
        }
        self.offset = entry.next;
        Ok(Some(entry))
    }

    /// Reads the pixels of a block into `pixels`.
    ///
    /// # Errors
    /// As [`Entry::read_pixels`].
    pub fn read_pixels(&self, entry: &Entry, pixels: &mut [u8]) -> Result<(), TapeError> {
        entry.read_pixels(&self.file, &self.path, pixels)
    }

    pub(crate) fn into_file(self) -> File {
        self.file
    }
}

/// Where the index of a tape begins, if it has one.
fn index_of(file: &File, path: &Path, len: u64) -> Result<Option<u64>, TapeError> {
    if len < START_BYTES + TRAILER_BYTES {
        return Ok(None);
    }
    let mut trailer = [0; TRAILER_BYTES as usize];
    file.read_exact_at(&mut trailer, len - TRAILER_BYTES).map_err(TapeError::io(path))?;
    let is_trailer = trailer[12..] == TRAILER_MAGIC && crc32c::crc32c(&trailer[..8]) == u32_at(&trailer, 8);
    let offset = u64_at(&trailer, 0);
    Ok((is_trailer && (START_BYTES..len).contains(&offset)).then_some(offset))
}
