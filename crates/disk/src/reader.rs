//! Pieces of a file into memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::alignment::direct_alignment;
use crate::parts::{Part, cut};
use crate::ring::{Fault, Ring};

/// Why pieces of a file could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system refused a read.
    #[error("{bytes} bytes at offset {offset} of {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where the read began.
        offset: u64,
        /// What was asked for.
        bytes: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is shorter than what was asked for.
    #[error("{} is cut off: expected {expected} bytes at offset {offset}, found {found}", path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Where the read began.
        offset: u64,
        /// Bytes that should be there.
        expected: usize,
        /// Bytes that are.
        found: usize,
    },
}

/// Whether what is read stays in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Through it: for files that were just written or are read again.
    Through,
    /// Around it, where the file system and the alignment allow it: for files larger than the memory.
    Around,
}

/// A stretch of a file and the memory that it is for.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Filled completely.
    pub bytes: &'a mut [u8],
}

/// An open file whose pieces are read many at once.
pub struct Reader {
    path: PathBuf,
    file: File,
    /// Alignment of reads around the page cache, if there are any.
    alignment: Option<usize>,
    ring: Option<Ring>,
}

impl Reader {
    /// Opens a file. Where `io_uring` is refused it is read with `pread`, through the page cache.
    ///
    /// # Errors
    /// [`ReadError::Open`].
    pub fn open(path: &Path, cache: Cache) -> Result<Self, ReadError> {
        let file = File::open(path).map_err(|source| ReadError::Open { path: path.to_owned(), source })?;
        let direct = match cache {
            Cache::Through => None,
            // Not every file system knows reads around the page cache.
            Cache::Around => OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok(),
        };
        let ring = Ring::new(&file, direct.as_ref()).map_err(|error| warn_once(&error)).ok();
        let alignment = direct.as_ref().filter(|_| ring.is_some()).and_then(direct_alignment);
        Ok(Self { path: path.to_owned(), file, alignment, ring })
    }

    /// Leaves `io_uring` out.
    #[must_use]
    pub fn without_ring(self) -> Self {
        Self { ring: None, alignment: None, ..self }
    }

    /// Whether the file is read by `io_uring`.
    pub fn has_ring(&self) -> bool {
        self.ring.is_some()
    }

    /// Fills all pieces; returns when the last one is full. Their order does not matter.
    ///
    /// # Errors
    /// [`ReadError::CutOff`] and [`ReadError::Read`]; what the pieces hold then is undefined.
    pub fn read(&mut self, pieces: &mut [Piece<'_>]) -> Result<(), ReadError> {
        let mut parts = Vec::new();
        for piece in pieces {
            cut(piece.offset, piece.bytes, self.alignment, &mut parts);
        }
        if let Some(ring) = &mut self.ring {
            match ring.read(&mut parts) {
                Ok(()) => return Ok(()),
                Err(Fault::EndOfFile(at)) => return Err(self.cut_off(&parts[at])),
                Err(Fault::Part(at, source)) => return Err(self.refused(&parts[at], source)),
                Err(Fault::Broken(error)) => {
                    warn_once(&error);
                    (self.ring, self.alignment) = (None, None);
                }
            }
        }
        for part in parts.iter_mut().filter(|part| !part.is_done()) {
            self.read_plainly(part)?;
        }
        Ok(())
    }

    fn read_plainly(&self, part: &mut Part<'_>) -> Result<(), ReadError> {
        while !part.is_done() {
            match self.file.read_at(&mut part.bytes[part.done..], part.offset + part.done as u64) {
                Ok(found) if part.advance(found) => {}
                Ok(_) => return Err(self.cut_off(part)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.refused(part, source)),
            }
        }
        Ok(())
    }

    fn cut_off(&self, part: &Part<'_>) -> ReadError {
        let (path, expected) = (self.path.clone(), part.bytes.len());
        ReadError::CutOff { path, offset: part.offset, expected, found: part.done }
    }

    fn refused(&self, part: &Part<'_>, source: io::Error) -> ReadError {
        let (path, bytes) = (self.path.clone(), part.bytes.len());
        ReadError::Read { path, offset: part.offset, bytes, source }
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("path", &self.path)
            .field("alignment", &self.alignment)
            .finish_non_exhaustive()
    }
}

/// Says that files are read the slower way, once in the life of the program.
fn warn_once(error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!("io_uring is refused ({error}): files are read with pread, one piece after the other");
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;
