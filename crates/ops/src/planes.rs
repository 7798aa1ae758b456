//! Slices in any orientation, made from projections that are kept.

use beamstream_buffer::LeaseMut;

use crate::{OpError, ProjectionBlock, RotationAxis};

/// A plane through a volume: its pixel `(i, j)` lies at `origin + i * down + j * right`.
///
/// # Units
/// Points are `[z, y, x]` in voxels: z in reconstructed rows from the first, y and x from the rotation axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plane {
    /// Where pixel `(0, 0)` lies.
    pub origin: [f64; 3],
    /// From a row of the plane to the next.
    pub down: [f64; 3],
    /// From a column of the plane to the next.
    pub right: [f64; 3],
}

impl Plane {
    /// The slice of one row, of `size` x `size` voxels.
    pub fn horizontal(row: usize, size: usize) -> Self {
        let first = first_voxel(size);
        Self { origin: [row as f64, first, first], down: [0.0, 1.0, 0.0], right: [0.0, 0.0, 1.0] }
    }

    /// The plane of all rows at one y, an index among the `size` of a slice: `(z, x)`.
    pub fn frontal(y: usize, size: usize) -> Self {
        let first = first_voxel(size);
        Self { origin: [0.0, first + y as f64, first], down: [1.0, 0.0, 0.0], right: [0.0, 0.0, 1.0] }
    }

    /// The plane of all rows at one x, an index among the `size` of a slice: `(z, y)`.
    pub fn sagittal(x: usize, size: usize) -> Self {
        let first = first_voxel(size);
        Self { origin: [0.0, first, first + x as f64], down: [1.0, 0.0, 0.0], right: [0.0, 1.0, 0.0] }
    }

    /// The point of a pixel.
    pub fn point(&self, i: usize, j: usize) -> [f64; 3] {
        std::array::from_fn(|axis| {
            self.origin[axis] + i as f64 * self.down[axis] + j as f64 * self.right[axis]
        })
    }
}

/// Distance of the first voxel of a slice from the rotation axis.
fn first_voxel(size: usize) -> f64 {
    -(size as f64 - 1.0) / 2.0
}

/// Filtered projections that are kept, for planes by direct backprojection.
///
/// The rotation axis is not part of what is kept: it can be moved from one call to the next.
///
/// A value between columns, and between rows where a plane lies between them, is interpolated linearly; columns and
/// rows off the detector count as 0.
///
/// # Source
/// A. C. Kak, M. Slaney, "Principles of Computerized Tomographic Imaging" (1988), section 3.3.
///
/// # Tolerance
/// Another backend may differ from the CPU by a root mean square of `1e-4` of the plane's range, of `1e-3` where it
/// keeps half precision.
pub trait ScanStore: Send {
    /// Filters projections and keeps them.
    ///
    /// # Errors
    /// [`OpError`] if a type or shape differs or the store is full; then none of the call is kept.
    fn add(&mut self, projections: &[ProjectionBlock<'_>]) -> Result<(), OpError>;

    /// Number of projections that are kept.
    fn len(&self) -> usize;

    /// Whether nothing is kept.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes `scale` times the planes, one lease a plane, f32 `(row, column)` of any shape, from all projections
    /// that are kept.
    ///
    /// # Errors
    /// [`OpError`] if the numbers of planes and leases differ, or an axis is missing for a row.
    fn planes(
        &mut self,
        axis: &RotationAxis,
        planes: &[Plane],
        scale: f64,
        to: &mut [LeaseMut],
    ) -> Result<(), OpError>;

    /// Forgets all projections.
    fn reset(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_meet_in_the_middle_of_the_volume() {
        let middle = [3.0, 0.0, 0.0];
        assert_eq!(Plane::horizontal(3, 9).point(4, 4), middle);
        assert_eq!(Plane::frontal(4, 9).point(3, 4), middle);
        assert_eq!(Plane::sagittal(4, 9).point(3, 4), middle);
    }
}
