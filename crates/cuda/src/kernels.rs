//! The kernel files.

use crate::source::KernelSource;

/// Files that kernels may include, by name.
pub(crate) const HEADERS: &[(&str, &str)] = &[];

/// Every kernel file with constants like those it is used with: compiling all of them checks `kernels/`.
pub fn kernels() -> Vec<KernelSource> {
    Vec::new()
}
