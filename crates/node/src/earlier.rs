//! What a run that was killed has left for the next one.

use beamstream_core::{BlockMeta, Format, SeriesHeader, SeriesSummary};

use crate::NodeError;

/// One step of what an earlier run has left.
#[derive(Debug, Clone)]
pub enum EarlierStep {
    /// A series begins: darks or flats that the next series still needs, or the one that was cut off.
    Begin(Box<SeriesHeader>),
    /// A block of it; its pixels are read by [`Earlier::read`].
    Block {
        /// What travels with it.
        meta: BlockMeta,
        /// What it holds.
        format: Format,
    },
    /// The series ended in the earlier run already.
    End(Box<SeriesSummary>),
}

/// What a run that was killed has left of its stream, for the source of the next one to go on with.
pub trait Earlier: Send {
    /// Series of projections that ended in earlier runs.
    fn projection_series(&self) -> u64;

    /// The next step; `None` when the source goes on by itself, within the series that was not ended.
    ///
    /// # Errors
    /// If what was left cannot be read.
    fn step(&mut self) -> Result<Option<EarlierStep>, NodeError>;

    /// The pixels of the block of the last step.
    ///
    /// # Errors
    /// [`Block`](crate::NodeErrorKind::Block) if they are damaged.
    fn read(&mut self, pixels: &mut [u8]) -> Result<(), NodeError>;
}
