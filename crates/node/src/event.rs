//! What moves along an edge.

use std::sync::Arc;

use beamstream_buffer::Block;
use beamstream_core::{SeriesHeader, SeriesSummary};

/// One step of the series protocol: `Begin (Block)* End`, again and again, in band.
#[derive(Debug, Clone)]
pub enum Event {
    /// A series, or a pass over a part of its rows, begins.
    Begin(Arc<SeriesHeader>),
    /// One frame, sinogram or slice of the series that began last.
    Block(Block),
    /// The series, or the pass, is over.
    End(Arc<SeriesSummary>),
}

impl Event {
    /// Bytes that the event keeps a buffer busy with.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Block(block) => block.format().bytes(),
            Self::Begin(_) | Self::End(_) => 0,
        }
    }
}
