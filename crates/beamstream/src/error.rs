//! What front ends have to tell when something cannot be done.

use std::error::Error as _;
use std::path::PathBuf;

use beamstream_buffer::PoolError;
use beamstream_engine::{ExitCode, PlanError};
use beamstream_graph::Errors;
use beamstream_io::{OutputError, ScanError};
use beamstream_node::NodeErrorKind;
use beamstream_ops::OpError;

use crate::frames::FramesError;

/// Why something cannot be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pipeline is wrong; every place is named.
    #[error(transparent)]
    Graph(#[from] Errors),
    /// A pipeline cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A scan cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// An output cannot be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A computation was refused.
    #[error(transparent)]
    Computation(#[from] OpError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// A file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The description of a header is wrong.
    #[error("{path} describes no header of a series: {message}", path = path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        message: String,
    },
    /// There is something at the place of the output.
    #[error("{path} exists: choose another name, or let it be replaced with --overwrite", path = path.display())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// A file cannot be converted to the kind that is asked for.
    #[error("{path} is not written: {message}", path = path.display())]
    Convert {
        /// The output.
        path: PathBuf,
        /// What is in the way, and what to do.
        message: String,
    },
    /// A GPU was asked for that cannot be used.
    #[error("{device} cannot be used: {cause}")]
    NoGpu {
        /// What was asked for.
        device: String,
        /// What the driver said, or where it was looked for.
        cause: String,
    },
    /// An option has an unusable value.
    #[error("--{option}: {message}")]
    Option {
        /// The option.
        option: &'static str,
        /// What was expected and what was found.
        message: String,
    },
    /// A pipeline that was made from options cannot be run.
    #[error("{0}")]
    Recon(String),
}

impl Error {
    /// What the error tells the shell.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Plan(PlanError::Node { error, .. }) if error.kind() == NodeErrorKind::Internal => {
                ExitCode::Internal
            }
            Self::Computation(_) => ExitCode::Internal,
            _ => ExitCode::Config,
        }
    }

    /// The text with the texts of all causes.
    pub fn full_text(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl From<FramesError> for Error {
    fn from(error: FramesError) -> Self {
        match error {
            FramesError::Scan(error) => Self::Scan(error),
            FramesError::Pool(error) => Self::Memory(error),
            FramesError::Op(error) => Self::Computation(error),
        }
    }
}
