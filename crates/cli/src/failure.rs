//! Why a command ends early, and with which exit code.

use beamstream::{Error, Errors, ExitCode, PlanError};

/// Why a command ends early: lines for people, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: ExitCode,
    lines: Vec<String>,
}

impl Failure {
    pub(crate) fn new(exit: ExitCode, text: impl Into<String>) -> Self {
        Self { exit, lines: vec![text.into()] }
    }

    /// Wrong usage, or input that cannot be read.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(ExitCode::Config, text)
    }

    /// The system refused what a program needs to run at all.
    pub(crate) fn system(what: &str, error: &std::io::Error) -> Self {
        Self::new(ExitCode::Internal, format!("{what}: {error}"))
    }

    fn graph(errors: &Errors) -> Self {
        Self { exit: ExitCode::Config, lines: errors.iter().map(ToString::to_string).collect() }
    }

    pub(crate) fn code(&self) -> u8 {
        self.exit.code()
    }

    /// One text for each thing that is wrong.
    pub(crate) fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match &error {
            Error::Graph(errors) | Error::Plan(PlanError::Graph(errors)) => Self::graph(errors),
            _ => Self::new(error.exit_code(), error.full_text()),
        }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Error::from(error).into()
    }
}
