//! The kernel files.

use crate::source::KernelSource;
use crate::{ops, recon, staging};

/// Files that kernels may include, by name.
pub(crate) const HEADERS: &[(&str, &str)] = &[
    ("element.cuh", include_str!("../../../kernels/element.cuh")),
    ("fft.cuh", include_str!("../../../kernels/fft.cuh")),
    ("lines.cuh", include_str!("../../../kernels/lines.cuh")),
];

/// Every kernel file with constants like those it is used with: compiling all of them checks `kernels/`.
pub fn kernels() -> Vec<KernelSource> {
    [ops::kernels(), recon::kernels(), staging::kernels()].concat()
}
