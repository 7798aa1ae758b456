//! Operations on frames and slices.

mod axis;
mod flat_field;
mod mean;
mod rescale;

use beamstream_core::Format;
use beamstream_ops::OpError;

use crate::source::KernelSource;

pub(crate) use axis::rotation_axis;
pub(crate) use flat_field::{CudaFlatField, frames_at_once};
pub(crate) use mean::CudaMean;
pub(crate) use rescale::Rescale;

/// Threads of a block of kernels that take every pixel by itself.
const THREADS: u32 = 256;

/// Whether a block is what the operation was set up for.
fn expect(expected: Format, found: Format) -> Result<(), OpError> {
    if expected == found {
        Ok(())
    } else {
        Err(OpError::Format { expected: expected.to_string(), found: found.to_string() })
    }
}

/// The kernel files of this module, with constants like those they are used with.
pub(crate) fn kernels() -> Vec<KernelSource> {
    [flat_field::kernels(), mean::kernels(), rescale::kernels()].concat()
}
