//! Why an output cannot be written.

use std::path::{Path, PathBuf};

use beamstream_core::FrameId;

/// Why an output cannot be written. Every text names the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The operating system refused: no space left, no permission, a file where a folder should be.
    #[error("cannot write {path}", path = path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// There is something at the path already.
    #[error("{path} exists already: choose another path, or --overwrite it", path = path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The folder at the path holds files of others and is not replaced.
    #[error("the folder {path} is not overwritten: it holds {other}, which is no part of such an output", path = path.display())]
    ForeignFolder {
        /// The folder.
        path: PathBuf,
        /// A file in it.
        other: String,
    },
    /// The ending of the path stands for no kind of output.
    #[error("{path} ends in .{extension}: outputs are {known}", path = path.display())]
    UnknownKind {
        /// The path.
        path: PathBuf,
        /// Its ending.
        extension: String,
        /// What is known.
        known: String,
    },
    /// A block has another size than announced.
    #[error("{path} takes blocks of {expected} bytes, not of {found}", path = path.display())]
    BlockSize {
        /// The path.
        path: PathBuf,
        /// Bytes of a block.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// A slice lies outside of the volume.
    #[error("{path} has {count} slices from {first} on: there is no place for {id}", path = path.display())]
    OutOfRange {
        /// The path.
        path: PathBuf,
        /// Number of the first slice.
        first: u64,
        /// Number of slices.
        count: u64,
        /// The slice that came.
        id: FrameId,
    },
    /// A volume of this size has no place in a file of this kind.
    #[error("{path}: {what}", path = path.display())]
    Unsupported {
        /// The path.
        path: PathBuf,
        /// What cannot be done.
        what: String,
    },
}

impl OutputError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
