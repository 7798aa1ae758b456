//! What a node is.

use beamstream_buffer::Block;
use beamstream_core::{SeriesHeader, SeriesSummary};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{BuildContext, BuildError, KindClass, NodeError, Outlet, SetError};

/// Settings of a step or sink, spelled as in a pipeline file. Their doc comments are the manual.
pub trait NodeConfig: DeserializeOwned + JsonSchema + Send + 'static {
    /// The name of the kind in pipeline files.
    const KIND: &'static str;
    /// Whether the kind hands blocks on or is the end of a branch.
    const CLASS: KindClass;
    /// Whether blocks that show unfinished work are welcome.
    const PREVIEWS: bool = false;
    /// What runs.
    type Node: Node + 'static;

    /// Builds the node. It may read files that the settings name, but takes no block and opens no device.
    ///
    /// # Errors
    /// [`BuildError`] naming the parameter that is unusable.
    fn build(self, cx: &BuildContext) -> Result<Self::Node, BuildError>;
}

/// Settings of a source, spelled as in a pipeline file. Their doc comments are the manual.
pub trait SourceConfig: DeserializeOwned + JsonSchema + Send + 'static {
    /// The name of the kind in pipeline files.
    const KIND: &'static str;
    /// What runs.
    type Source: Source + 'static;

    /// Builds the source. It may look at a file's header, but takes no frame and opens no socket.
    ///
    /// # Errors
    /// [`BuildError`] naming the parameter that is unusable.
    fn build(self, cx: &BuildContext) -> Result<Self::Source, BuildError>;
}

/// What a node makes of a series, agreed on before its first block.
#[derive(Debug, Clone)]
pub struct Negotiated {
    /// The header of what it hands on; a sink gives back the header that it got.
    pub output: SeriesHeader,
    /// Host memory that the node takes for itself while the series lasts, in bytes.
    pub memory_bytes: usize,
    /// Blocks of its input that the node holds at most, besides the one in its hands.
    pub keeps_blocks: usize,
    /// Blocks of its output that the node writes at once.
    pub writes_blocks: usize,
}

impl Negotiated {
    /// The series passes as it is, and the node keeps nothing.
    pub fn unchanged(header: &SeriesHeader) -> Self {
        Self::to(header.clone())
    }

    /// The node hands on `output`, and keeps nothing.
    pub fn to(output: SeriesHeader) -> Self {
        Self { output, memory_bytes: 0, keeps_blocks: 0, writes_blocks: 1 }
    }
}

/// From when on a changed parameter shows in the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakesEffect {
    /// The next block is made with it.
    WithNextBlock,
    /// The series at hand is finished as it began.
    WithNextSeries,
}

/// A step or a sink: a small state machine over `begin (process)* end`.
///
/// A worker thread of its own calls it; it needs no locks and never waits, except in the [`Outlet`].
pub trait Node: Send {
    /// Says what would be made of a series. Computes nothing, allocates nothing, changes nothing.
    ///
    /// # Errors
    /// [`NodeError`] naming what of the header is unusable, with the values expected and found.
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError>;

    /// A series, or a pass over a part of its rows, begins.
    ///
    /// # Errors
    /// As the kind of the error says.
    fn begin(&mut self, header: &SeriesHeader, out: &mut Outlet) -> Result<(), NodeError>;

    /// One block of the series.
    ///
    /// # Errors
    /// As the kind of the error says.
    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError>;

    /// The series, or the pass, is over: hand on what is left.
    ///
    /// # Errors
    /// As the kind of the error says.
    fn end(&mut self, summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError>;

    /// Changes a parameter between two blocks; says from when on results are made with it.
    ///
    /// # Errors
    /// [`SetError`] if the parameter is fixed or the value unusable; nothing has changed then.
    fn set(&mut self, key: &str, _value: &Value) -> Result<TakesEffect, SetError> {
        Err(SetError::Fixed(key.to_owned()))
    }

    /// Whether blocks of the input are handed on as they are, so that its buffers travel further.
    fn forwards(&self) -> bool {
        false
    }
}

/// A source: begins series, sends their blocks, ends them.
pub trait Source: Send {
    /// The header of the first series, if it is known before the run: then the plan can prove its memory.
    ///
    /// # Errors
    /// [`NodeError`] if the input cannot be read.
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError>;

    /// Buffers that the source wants for itself, besides those that its edges hold.
    fn buffers(&self, header: &SeriesHeader) -> usize;

    /// Host memory that the source takes for itself besides its buffers, in bytes.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// Sends everything; returns when the input is over, or soon after [`Outlet::is_draining`].
    ///
    /// # Errors
    /// As the kind of the error says.
    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError>;
}
