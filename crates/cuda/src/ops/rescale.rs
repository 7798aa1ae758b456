//! Fewer bits for slices.
#![allow(unsafe_code, reason = "kernels are started")]

use std::sync::{Arc, Mutex, PoisonError};

use beamstream_buffer::{Block, ElementMismatch, LeaseMut};
use beamstream_core::ElementType;
use beamstream_ops::{OUTPUT_TYPES, OpError};

use super::{THREADS, expect};
use crate::access::Access;
use crate::args::Args;
use crate::error::CudaError;
use crate::kernel::{Grid, Kernel};
use crate::source::KernelSource;
use crate::stream::CudaStream;

/// Voxels of a thread, as in the kernel.
const VOXELS: usize = 4;

/// Writes f32 as other types; the kernel of each is compiled when it is first asked for.
#[derive(Default)]
pub(crate) struct Rescale {
    kernels: Mutex<Vec<(ElementType, Arc<Kernel>)>>,
}

impl Rescale {
    /// As `Backend::rescale` says.
    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        from: &Block,
        range: [f32; 2],
        to: &mut LeaseMut,
    ) -> Result<(), OpError> {
        let element = to.format().element;
        expect(from.format().with_element(element), to.format())?;
        let found = from.format().element;
        if found != ElementType::F32 {
            return Err(ElementMismatch { expected: ElementType::F32, found }.into());
        }
        if !OUTPUT_TYPES.contains(&element) {
            let expected = OUTPUT_TYPES.map(ElementType::name).join(", ");
            return Err(OpError::Format { expected, found: element.to_string() });
        }
        let kernel = self.kernel(stream, element)?;
        Ok(enqueue(stream, &kernel, from, range, to)?)
    }

    fn kernel(&self, stream: &CudaStream, element: ElementType) -> Result<Arc<Kernel>, CudaError> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kernel)) = kernels.iter().find(|(of, _)| *of == element) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(stream.gpu().compile(&source(element))?.kernel("rescale")?);
        kernels.push((element, kernel.clone()));
        Ok(kernel)
    }
}

fn enqueue(
    stream: &CudaStream,
    kernel: &Kernel,
    from: &Block,
    [low, high]: [f32; 2],
    to: &mut LeaseMut,
) -> Result<(), CudaError> {
    let (voxels, element) = (from.format().shape.len(), to.format().element);
    let highest = element.integer_max().map_or(1.0, |max| max as f32);
    // A range of no extent tells what is above it from what is not.
    let scale = if high > low { highest / (high - low) } else { f32::MAX };
    let mut access = Access::new(stream)?;
    let args = Args::new()
        .pointer(access.read(from)?)
        .value(&(voxels as u64))
        .f32(low)
        .f32(scale)
        .f32(highest)
        .pointer(access.write(to)?);
    // SAFETY: both blocks hold as many elements, f32 and of the type that the kernel was compiled for, and begin on a
    // cache line.
    unsafe { stream.launch(kernel, Grid::linear(voxels.div_ceil(VOXELS), THREADS), &args)? };
    access.finish()
}

fn source(element: ElementType) -> KernelSource {
    KernelSource::new("rescale.cu", include_str!("../../../../kernels/rescale.cu")).define("OUTPUT", element)
}

pub(super) fn kernels() -> Vec<KernelSource> {
    OUTPUT_TYPES.map(source).to_vec()
}
