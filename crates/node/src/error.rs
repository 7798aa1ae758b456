//! How a node fails, and what the engine makes of it.

use std::error::Error;

use beamstream_buffer::{ElementMismatch, PoolError};

use crate::Closed;

/// What a failure means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeErrorKind {
    /// This block cannot be used: it is counted, the series goes on.
    Block,
    /// This series cannot be processed by this node: it is skipped and reported, the run goes on.
    Series,
    /// The settings, or an input named by them, are unusable: the run ends.
    Config,
    /// A source or sink failed for good: the run ends.
    Io,
    /// The program is at fault: the run ends.
    Internal,
    /// The run is being stopped; nobody is at fault.
    Stopped,
}

/// A node failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NodeError {
    kind: NodeErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl NodeError {
    /// A failure without a deeper cause. The text says what was expected, what was found, and what to do.
    pub fn new(kind: NodeErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// A failure caused by another one, whose text is added behind this one's.
    pub fn because(
        kind: NodeErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// The block cannot be used.
    pub fn block(message: impl Into<String>) -> Self {
        Self::new(NodeErrorKind::Block, message)
    }

    /// The series cannot be processed.
    pub fn series(message: impl Into<String>) -> Self {
        Self::new(NodeErrorKind::Series, message)
    }

    /// The settings are unusable.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(NodeErrorKind::Config, message)
    }

    /// A source or sink failed for good.
    pub fn io(message: impl Into<String>) -> Self {
        Self::new(NodeErrorKind::Io, message)
    }

    /// What the failure means for the run.
    pub fn kind(&self) -> NodeErrorKind {
        self.kind
    }

    /// The text with the texts of all causes.
    pub fn full_text(&self) -> String {
        let mut text = self.message.clone();
        let mut cause = Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl From<Closed> for NodeError {
    fn from(closed: Closed) -> Self {
        Self::new(NodeErrorKind::Stopped, closed.to_string())
    }
}

impl From<PoolError> for NodeError {
    fn from(error: PoolError) -> Self {
        let kind = match error {
            PoolError::Closed { .. } => NodeErrorKind::Stopped,
            PoolError::Memory { .. } => NodeErrorKind::Config,
            _ => NodeErrorKind::Internal,
        };
        Self::because(kind, "no buffer", error)
    }
}

impl From<ElementMismatch> for NodeError {
    fn from(error: ElementMismatch) -> Self {
        Self::because(NodeErrorKind::Internal, "a block was read wrongly", error)
    }
}

/// A node cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BuildError {
    /// The parameter at fault, as it is spelled in pipeline files.
    pub key: Option<&'static str>,
    /// What was expected, what was found, what to do.
    pub message: String,
}

impl BuildError {
    /// The parameter `key` is at fault.
    pub fn key(key: &'static str, message: impl Into<String>) -> Self {
        Self { key: Some(key), message: message.into() }
    }

    /// The settings as a whole are at fault.
    pub fn new(message: impl Into<String>) -> Self {
        Self { key: None, message: message.into() }
    }
}

/// A parameter cannot be changed while the node runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The node has no such parameter, or it is fixed once the run has begun.
    #[error("parameter '{0}' cannot be changed while the node runs")]
    Fixed(String),
    /// The value is unusable.
    #[error("parameter '{key}': {message}")]
    Value {
        /// The parameter.
        key: String,
        /// What was expected and what was found.
        message: String,
    },
}
