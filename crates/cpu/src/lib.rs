//! Every operation on the CPU: the reference.
//!
//! All functions work on plain slices. Reconstructions have threads of their own; everything else runs in the
//! calling thread.

#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare with what is exact by hand"))]
#![allow(
    clippy::inline_always,
    reason = "vector code that is not inlined is compiled without the vector instructions"
)]
#![allow(
    clippy::needless_range_loop,
    reason = "iterators in vector code are not always inlined, indices are"
)]

mod axis;
mod backend;
mod binning;
mod checks;
mod fbp;
mod fft;
mod filter;
mod filtered;
mod flat_field;
mod fourier;
mod mean;
mod pixels;
mod planes;
mod pool;
mod rescale;
mod rows;
mod simd;

use beamstream_ops::{Accumulate, Memory, Method, ReconError, ReconSpec};

pub use axis::rotation_axis;
pub use backend::CpuBackend;
pub use binning::{bin, binned_shape};
pub use fbp::FbpAccumulator;
pub use flat_field::FlatField;
pub use fourier::FourierAccumulator;
pub use mean::MeanImage;
pub use pixels::PixelError;
pub use rescale::{percentiles, rescale, value_range};

/// A reconstruction by the method of its specification, on `threads` threads of its own.
///
/// # Errors
/// If the specification is impossible or the threads cannot be started.
pub fn accumulator(spec: &ReconSpec, threads: usize) -> Result<Box<dyn Accumulate>, ReconError> {
    Ok(match spec.method {
        Method::Fourier => Box::new(FourierAccumulator::new(spec, threads)?),
        Method::Fbp => Box::new(FbpAccumulator::new(spec, threads)?),
    })
}

/// The memory that such a reconstruction will hold.
pub fn memory(spec: &ReconSpec, threads: usize) -> Memory {
    match spec.method {
        Method::Fourier => FourierAccumulator::memory(spec, threads),
        Method::Fbp => FbpAccumulator::memory(spec, threads),
    }
}
