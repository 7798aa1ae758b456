//! Reconstruction by gridding in Fourier space, on a GPU.
//!
//! The method is that of the CPU, number for number: see `kernels/fourier_*.cu` for how it is spread over threads.
//! Two neighbouring rows are the real and the imaginary part of a lane; 32 lanes, a chunk, lie together in memory.

mod shape;
mod steps;
mod tables;

use std::f64::consts::PI;
use std::ops::Range;

use beamstream_buffer::{ElementMismatch, LeaseMut};
use beamstream_core::{ElementType, Format};
use beamstream_ops::{Memory, OpError, ProjectionBlock, ReconError, ReconSpec, Reconstruction};
use bytemuck::Zeroable;
use cudarc::driver::sys::CUdeviceptr;

use crate::access::Access;
use crate::source::KernelSource;
use crate::stream::CudaStream;
use shape::{CHUNK_LANES, CHUNK_ROWS, Shape, Transforms};
use steps::{Batch, Rays, Slices, Steps};

/// Sums of a scan's projections in Fourier space.
pub(crate) struct FourierSums {
    spec: ReconSpec,
    shape: Shape,
    steps: Steps,
}

impl FourierSums {
    /// Makes room for the sums.
    ///
    /// # Errors
    /// [`OpError`] if the specification is unusable, the rows are too long, or the device has no room.
    pub(crate) fn new(spec: &ReconSpec, stream: &CudaStream) -> Result<Self, OpError> {
        spec.validate().map_err(ReconError::from)?;
        let shape = Shape::new(spec);
        Ok(Self { spec: spec.clone(), shape, steps: Steps::new(stream, spec, &shape)? })
    }

    /// The memory that a reconstruction will hold on the device.
    pub(crate) fn memory(spec: &ReconSpec) -> Memory {
        Shape::new(spec).memory()
    }

    /// Most rows of a group.
    pub(crate) fn rows_at_once(spec: &ReconSpec) -> usize {
        CHUNK_ROWS.min(spec.rows)
    }

    /// The rows of a group.
    fn rows_of(&self, group: usize) -> Option<Range<usize>> {
        (group < self.shape.chunks())
            .then(|| group * CHUNK_ROWS..((group + 1) * CHUNK_ROWS).min(self.shape.rows))
    }

    fn check_projection(&self, projection: &ProjectionBlock<'_>) -> Result<(), OpError> {
        let format = projection.block.format();
        check_element(format)?;
        let expected = (projection.first_row + self.spec.rows) * self.spec.columns;
        let found = format.shape.len();
        if found < expected || format.shape.columns != self.spec.columns {
            return Err(ReconError::ProjectionLength { expected, found }.into());
        }
        let ProjectionBlock { angle_rad, weight, .. } = *projection;
        if angle_rad.is_finite() && weight.is_finite() {
            Ok(())
        } else {
            Err(ReconError::Angle { angle_rad, weight }.into())
        }
    }

    fn check_slice(&self, to: &LeaseMut) -> Result<(), OpError> {
        check_element(to.format())?;
        let (expected, found) = (self.spec.slice_len(), to.format().shape.len());
        if expected == found { Ok(()) } else { Err(ReconError::SliceLength { expected, found }.into()) }
    }

    /// What the kernels are told of a batch, in the order of the angles modulo half a turn: neighbours then touch the
    /// same part of the grid.
    fn arguments(&self, batch: &[(CUdeviceptr, ProjectionBlock<'_>)]) -> (Batch, Rays) {
        let mut batch = batch.to_vec();
        batch.sort_by(|(_, a), (_, b)| folded(a.angle_rad).total_cmp(&folded(b.angle_rad)));
        let (mut projections, mut rays) = (Batch::zeroed(), Rays::zeroed());
        // The middle pixel of a slice with an even edge is half a pixel off the axis.
        let middle_px = if self.spec.size().is_multiple_of(2) { 0.5 } else { 0.0 };
        let spacing = self.shape.grid() as f64 / self.shape.padded as f64;
        let fixed = |value: f64| (value * spacing * 2.0_f64.powi(32)).round() as i64;
        let row_bytes = self.spec.columns * size_of::<f32>();
        for (at, (pointer, projection)) in batch.iter().enumerate() {
            let (sin, cos) = projection.angle_rad.sin_cos();
            projections.pixels[at] = pointer + (projection.first_row * row_bytes) as CUdeviceptr;
            projections.weight[at] = projection.weight;
            projections.zero_px[at] = self.steps.tables.axis_px + middle_px * (sin + cos);
            rays.u[at] = fixed(cos);
            rays.v[at] = fixed(sin);
        }
        projections.count = batch.len() as i32;
        rays.count = projections.count;
        (projections, rays)
    }
}

/// An angle modulo half a turn, so that opposite projections are neighbours.
fn folded(angle_rad: f64) -> f64 {
    angle_rad.rem_euclid(PI)
}

fn check_element(format: Format) -> Result<(), ElementMismatch> {
    let (expected, found) = (ElementType::F32, format.element);
    if expected == found { Ok(()) } else { Err(ElementMismatch { expected, found }) }
}

/// The kernel files with the constants of `spec`, for checks without a GPU.
///
/// # Errors
/// [`OpError`] if the rows are too long.
pub(crate) fn kernel_sources(spec: &ReconSpec, shared_bytes: usize) -> Result<[KernelSource; 3], OpError> {
    let shape = Shape::new(spec);
    Ok(shape::sources(spec, &shape, &Transforms::new(spec, &shape, shared_bytes)?))
}

#[allow(unsafe_code, reason = "the blocks whose addresses go to the kernels are checked and waited for here")]
impl Reconstruction for FourierSums {
    fn accumulate(&mut self, batch: &[ProjectionBlock<'_>]) -> Result<(), OpError> {
        batch.iter().try_for_each(|projection| self.check_projection(projection))?;
        let stream = self.steps.stream().clone();
        let mut access = Access::new(&stream)?;
        let mut addressed = Vec::with_capacity(batch.len());
        for projection in batch {
            addressed.push((access.read(projection.block)?, *projection));
        }
        for part in addressed.chunks(self.shape.batch) {
            let (projections, rays) = self.arguments(part);
            // SAFETY: the blocks hold all rows that are reconstructed, as was checked, `access` made the stream wait
            // for them and keeps them until this is done, and a part is not longer than a batch.
            unsafe { self.steps.add(&projections, &rays)? };
        }
        Ok(access.finish()?)
    }

    fn slice(&mut self, row: usize, scale: f64, to: &mut LeaseMut) -> Result<(), OpError> {
        if row >= self.spec.rows {
            return Err(ReconError::Row { rows: self.spec.rows, found: row }.into());
        }
        self.check_slice(to)?;
        let stream = self.steps.stream().clone();
        let mut access = Access::new(&stream)?;
        let mut slices = Slices::zeroed();
        let (chunk, within) = (row / CHUNK_ROWS, row % CHUNK_ROWS);
        slices.voxels[within] = access.write(to)?;
        let together = self.steps.lanes_together();
        let first_lane = within / 2 / together * together;
        // SAFETY: the lease holds a slice, as was checked, and `access` made the stream wait for its readers.
        unsafe { self.steps.inverse(chunk, first_lane, 1, scale as f32, &slices)? };
        Ok(access.finish()?)
    }

    fn row_groups(&self) -> Vec<Range<usize>> {
        (0..).map_while(|group| self.rows_of(group)).collect()
    }

    fn slices(&mut self, group: usize, scale: f64, to: &mut [LeaseMut]) -> Result<(), OpError> {
        let Some(rows) = self.rows_of(group) else {
            return Err(ReconError::Group { groups: self.shape.chunks(), found: group }.into());
        };
        if to.len() != rows.len() {
            return Err(ReconError::Slices { expected: rows.len(), found: to.len() }.into());
        }
        to.iter().try_for_each(|lease| self.check_slice(lease))?;
        let stream = self.steps.stream().clone();
        let mut access = Access::new(&stream)?;
        let mut slices = Slices::zeroed();
        for (voxels, lease) in slices.voxels.iter_mut().zip(to) {
            *voxels = access.write(lease)?;
        }
        let together = self.steps.lanes_together();
        let groups = rows.len().div_ceil(2).div_ceil(together).min(CHUNK_LANES / together);
        // SAFETY: the leases hold a slice each, as was checked, and `access` made the stream wait for their readers.
        unsafe { self.steps.inverse(group, 0, groups, scale as f32, &slices)? };
        Ok(access.finish()?)
    }

    fn reset(&mut self) {
        if let Err(error) = self.steps.clear() {
            self.steps.stream().gpu().fail(error);
        }
    }
}
