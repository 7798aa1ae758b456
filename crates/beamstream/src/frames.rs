//! Frames of a scan as blocks, for computations outside of a run.

use std::ops::Range;

use beamstream_buffer::{Block, Pool, PoolError};
use beamstream_core::{BlockMeta, Format, FrameId, Role};
use beamstream_io::{Scan, ScanError};
use beamstream_ops::{Backend, OpError};

/// Why frames could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FramesError {
    /// The scan cannot be read.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// There is no memory for a frame.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The computation was refused.
    #[error(transparent)]
    Op(#[from] OpError),
}

/// Reads frames of a scan, one buffer after the other.
pub(crate) struct FrameReader<'a> {
    scan: &'a mut Scan,
    pool: Pool,
    format: Format,
    rows: Range<usize>,
}

impl<'a> FrameReader<'a> {
    /// A reader of some rows of the frames; `buffers` blocks may be held at once.
    pub(crate) fn new(scan: &'a mut Scan, rows: Range<usize>, buffers: usize) -> Result<Self, PoolError> {
        let whole = scan.info().format;
        let format = Format::frame(whole.element, rows.len(), whole.shape.columns);
        let pool = Pool::host("frames", buffers, format.bytes())?;
        Ok(Self { scan, pool, format, rows })
    }

    /// Type and shape of what is read.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Reads a frame.
    pub(crate) fn read(&mut self, index: usize, role: Role) -> Result<Block, FramesError> {
        let mut lease = self.pool.lease(self.format)?;
        self.scan.read(index, self.rows.clone(), lease.bytes_mut())?;
        Ok(lease.freeze(BlockMeta::new(FrameId::new(index as u64), role)))
    }

    /// The mean of some frames, f32 `(row, column)`.
    pub(crate) fn mean(
        &mut self,
        indices: &[usize],
        role: Role,
        ops: &dyn Backend,
    ) -> Result<Vec<f32>, FramesError> {
        let mut mean = ops.mean_image(self.format)?;
        for &index in indices {
            mean.add(&self.read(index, role)?)?;
        }
        Ok(mean.mean()?)
    }
}
