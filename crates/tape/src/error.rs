//! Why a tape cannot be written or read.

use std::io;
use std::path::{Path, PathBuf};

/// A tape cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapeError {
    /// The system refused.
    #[error("{}", path.display())]
    Io {
        /// The tape.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is something else.
    #[error("{} is no recording: expected it to begin with BEAMTAPE", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later program wrote it.
    #[error("{} is a recording of version {found}, this program reads version {expected}: take a newer program", path.display())]
    Version {
        /// The tape.
        path: PathBuf,
        /// What this program reads.
        expected: u32,
        /// What the tape says.
        found: u32,
    },
    /// The tape ends within a record: whoever wrote it was interrupted.
    #[error("{} ends within the record at byte {offset}: whoever wrote it was interrupted there", path.display())]
    Cut {
        /// The tape.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
    },
    /// What was read is not what was written.
    #[error("{} is damaged: the record at byte {offset} has {what}", path.display())]
    Damaged {
        /// The tape.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Another program writes the tape.
    #[error("{} is being written by another program", path.display())]
    InUse {
        /// The tape.
        path: PathBuf,
    },
}

impl TapeError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path: path.clone(), source }
    }

    /// Whether the system had no room for what was written.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
