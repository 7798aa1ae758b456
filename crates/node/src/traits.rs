//! What a node is.

use beamstream_buffer::Block;
use beamstream_core::{SeriesHeader, SeriesSummary};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{BuildContext, BuildError, Earlier, KindClass, NodeError, Outlet, SetError};

/// Settings of a step or sink, spelled as in a pipeline file. Their doc comments are the manual.
pub trait NodeConfig: DeserializeOwned + JsonSchema + Send + 'static {
    /// The name of the kind in pipeline files.
    const KIND: &'static str;
    /// Whether the kind hands blocks on or is the end of a branch.
    const CLASS: KindClass;
    /// Whether blocks that show unfinished work are welcome.
    const PREVIEWS: bool = false;
    /// Whether the kind works on blocks wherever they lie, through [`BuildContext::ops`] alone: then it can be placed
    /// on a device. All other kinds see host memory.
    const COMPUTES: bool = false;
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
    /// Memory that the node takes for itself while the series lasts, where it is placed. Unit: bytes.
    pub memory_bytes: usize,
    /// Blocks of its input that the node holds at most, besides the one in its hands.
    pub keeps_blocks: usize,
    /// Blocks that the node takes in one go where so many wait, see [`Node::process_all`]: one less goes into
    /// `keeps_blocks`, and as many into `writes_blocks`.
    pub takes_blocks: usize,
    /// Blocks of its output that the node writes at once.
    pub writes_blocks: usize,
    /// Blocks of its output that the node would hand on without waiting, if memory allows: on a device it can then take
    /// the next projections while these leave. It gets `writes_blocks` at least.
    pub likes_blocks: usize,
}

/// How far a node likes to work ahead: what crosses a fast bus in some 20 ms, about the time in which a pass ends.
const AHEAD_BYTES: usize = 1 << 30;

impl Negotiated {
    /// The series passes as it is, and the node keeps nothing.
    pub fn unchanged(header: &SeriesHeader) -> Self {
        Self::to(header.clone())
    }

    /// The node hands on `output`, and keeps nothing.
    pub fn to(output: SeriesHeader) -> Self {
        Self { output, memory_bytes: 0, keeps_blocks: 0, takes_blocks: 1, writes_blocks: 1, likes_blocks: 1 }
    }

    /// Likes to work ahead where passes over the rows of a scan follow each other: those behind take longer when a pass
    /// ends.
    #[must_use]
    pub fn ahead(mut self) -> Self {
        if self.output.pass.count > 1 {
            let all = self.output.expected_frames.map_or(usize::MAX, |frames| frames as usize);
            let ahead = (AHEAD_BYTES / self.output.format.bytes().max(1)).min(all);
            self.likes_blocks = self.likes_blocks.max(ahead);
        }
        self
    }
}

/// From when on a changed parameter shows in the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakesEffect {
    /// What was made already is made again with it: the engine calls [`Node::changed`], within a series or after its
    /// end.
    Now,
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

    /// A series, or a pass over a part of its rows, is about to begin, and its buffers are to be had: let go of what
    /// was kept of the one before.
    fn release(&mut self) {}

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

    /// Several blocks of the series, in their order; all of them are taken out. An error is that of all of them.
    ///
    /// Called instead of [`process`](Self::process) by nodes that [take several](Negotiated::takes_blocks), with those
    /// that wait: a device starts one piece of work for them all.
    ///
    /// # Errors
    /// As the kind of the error says.
    fn process_all(&mut self, blocks: &mut Vec<Block>, out: &mut Outlet) -> Result<(), NodeError> {
        blocks.drain(..).try_for_each(|block| self.process(block, out))
    }

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

    /// A parameter was changed that takes effect [now](TakesEffect::Now): make again what is at hand, under the new
    /// epoch. The engine calls it as long as the input of the node is not over.
    ///
    /// Between two series the node may hand on a whole series again: [`Outlet::begin`], blocks, [`Outlet::end`].
    /// Within a series ([`Outlet::header`] tells) it is begun already.
    ///
    /// # Errors
    /// As the kind of the error says.
    fn changed(&mut self, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    /// Whether blocks of the input are handed on as they are, so that its buffers travel further.
    fn forwards(&self) -> bool {
        false
    }

    /// What an earlier run has left here of the stream that this node will get, if that run was killed. Asked once
    /// before the run, of nodes right behind a source.
    ///
    /// # Errors
    /// If it cannot be read.
    fn earlier(&mut self) -> Result<Option<Box<dyn Earlier>>, NodeError> {
        Ok(None)
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

    /// Takes what an earlier run has left: [`Self::run`] sends that first, and goes on from there. Sources that begin
    /// anew by nature leave it.
    fn go_on(&mut self, _earlier: Box<dyn Earlier>) {}

    /// Sends everything; returns when the input is over, or soon after [`Outlet::is_draining`].
    ///
    /// # Errors
    /// As the kind of the error says.
    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError>;
}
