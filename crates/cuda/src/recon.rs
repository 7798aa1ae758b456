//! Reconstructions.

mod direct;
mod fourier;
mod lines;
mod store;
mod window;

use beamstream_ops::{Padding, ReconSpec, RotationAxis};

use crate::source::KernelSource;

pub(crate) use direct::DirectSums;
pub(crate) use fourier::FourierSums;
pub(crate) use store::CudaScanStore;

/// Shared memory of a block that every GPU of the field has. Unit: bytes.
const SHARED_BYTES: usize = 99 * 1024;

/// The kernel files of this module, with constants like those they are used with.
pub(crate) fn kernels() -> Vec<KernelSource> {
    let tilted = ReconSpec {
        padding: Padding::Edge,
        rotation_axis: RotationAxis::PerRow(vec![16.0; 65]),
        ..ReconSpec::new(65, 33, 16.0)
    };
    let specs = [ReconSpec::new(2048, 2048, 1023.5), tilted];
    let fourier = specs.iter().filter_map(|spec| fourier::kernel_sources(spec, SHARED_BYTES).ok()).flatten();
    let direct = specs.iter().filter_map(|spec| lines::kernel_source(spec, SHARED_BYTES));
    fourier.chain(direct).chain(direct::kernels()).chain(store::kernels()).collect()
}
