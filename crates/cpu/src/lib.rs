//! Every operation on the CPU: the reference.

mod checks;
mod fbp;
mod fft;
mod filter;
mod fourier;
mod pool;
mod rows;
mod simd;

pub use fbp::FbpAccumulator;
pub use fourier::FourierAccumulator;

use beamstream_ops::{Accumulate, Method, ReconError, ReconSpec};

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
