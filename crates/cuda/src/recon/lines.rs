//! Lines: filtered projections in half precision, rows innermost, as direct backprojection takes them.
#![allow(unsafe_code, reason = "kernels are started")]

use beamstream_core::ElementType;
use beamstream_ops::{
    OpError, Padding, ProjectionBlock, ReconError, ReconSpec, RotationAxis, SpecError, good_length,
};
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdeviceptr;

use crate::access::Access;
use crate::args::Args;
use crate::device_buffer::DeviceBuffer;
use crate::error::CudaError;
use crate::fft::{FftPlan, roots};
use crate::kernel::{Grid, Kernel};
use crate::source::KernelSource;
use crate::stream::CudaStream;

/// Most rows of a chunk, and what their number is a multiple of: two groups of 8.
const MAX_CHUNK_ROWS: usize = 64;
const CHUNK_ROWS_STEP: usize = 16;
/// Blocks and threads that look for the largest value of a projection.
const LARGEST: Grid = Grid::new([1024, 1, 1], [256, 1, 1]);
/// Blocks of the filter that a multiprocessor should have room for: one loads while another computes.
const BLOCKS_TOGETHER: usize = 3;

/// The direction of a line, as in the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Zeroable, Pod)]
#[repr(C)]
pub(super) struct Ray {
    pub(super) cos: f64,
    pub(super) sin: f64,
}

impl Ray {
    pub(super) fn new(angle_rad: f64) -> Self {
        let (sin, cos) = angle_rad.sin_cos();
        Self { cos, sin }
    }
}

/// How the rows of a line are cut into chunks, and where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineLayout {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) chunks: usize,
    pub(super) chunk_rows: usize,
    /// Lines of a projection: 2 where halves are not enough, the second with what rounding took from the first.
    pub(super) parts: usize,
}

impl LineLayout {
    pub(super) fn new(rows: usize, columns: usize, parts: usize) -> Self {
        let chunks = rows.div_ceil(MAX_CHUNK_ROWS);
        let chunk_rows = rows.div_ceil(chunks).next_multiple_of(CHUNK_ROWS_STEP);
        Self { rows, columns, chunks, chunk_rows, parts }
    }

    /// Rows of all chunks, some of them beyond the detector.
    pub(super) fn all_rows(&self) -> usize {
        self.chunks * self.chunk_rows
    }

    /// Halves of a line.
    pub(super) fn line_len(&self) -> usize {
        self.all_rows() * self.columns
    }
}

/// Filters projections to lines.
pub(super) struct LineFilter {
    stream: CudaStream,
    layout: LineLayout,
    plan: FftPlan,
    largest: Kernel,
    filter: Kernel,
    response: DeviceBuffer<f32>,
    roots: DeviceBuffer<[f32; 2]>,
    /// Columns that each row is moved by; empty if none is.
    by: DeviceBuffer<f64>,
    spectra: DeviceBuffer<[f32; 2]>,
    /// Largest value of a batch, as the bits of a float.
    pub(super) peak: DeviceBuffer<u32>,
    /// Most that the filter makes of a value.
    gain: f64,
}

impl LineFilter {
    /// A filter as `spec` says. Rows with axes of their own are moved to the mean of these.
    pub(super) fn new(stream: &CudaStream, spec: &ReconSpec, layout: LineLayout) -> Result<Self, OpError> {
        let gpu = stream.gpu();
        let padded = good_length(2 * spec.columns);
        let plan = plan_or_most(spec.columns, gpu.properties().shared_bytes as usize)?;
        let program = gpu.compile(&source(spec, layout, padded, &plan))?;
        let response = spec.response(padded);
        // By the inequality of Cauchy and Schwarz; every frequency but the first and the last is there twice.
        let gain = (2.0 * response.iter().map(|value| value * value).sum::<f64>()).sqrt();
        let response: Vec<f32> = response.iter().map(|value| (value / padded as f64) as f32).collect();
        Ok(Self {
            stream: stream.clone(),
            layout,
            largest: program.kernel("largest_value")?,
            filter: program.kernel("filter_lines")?,
            response: DeviceBuffer::from_slice(stream, &response)?,
            roots: DeviceBuffer::from_slice(stream, &roots(padded))?,
            by: DeviceBuffer::from_slice(stream, &tilt(spec, layout))?,
            spectra: DeviceBuffer::alloc(stream, layout.all_rows() / 2 * padded)?,
            peak: DeviceBuffer::zeroed(stream, 1)?,
            plan,
            gain,
        })
    }

    /// Bytes that a filter takes.
    pub(super) fn bytes(layout: LineLayout) -> usize {
        let padded = good_length(2 * layout.columns);
        (layout.all_rows() / 2 + 2) * padded * size_of::<[f32; 2]>() + layout.all_rows() * size_of::<f64>()
    }

    /// What the values of a batch, times their largest, do not exceed once they are filtered.
    pub(super) fn gain(&self, batch: &[ProjectionBlock<'_>]) -> f32 {
        let weight = batch.iter().map(|projection| projection.weight.abs()).fold(0.0, f64::max);
        (self.gain * weight) as f32
    }

    /// Writes the lines of a batch to `lines`, and of each its direction to `rays` and its scale to `scales`: room for
    /// the lines of the batch, used on this stream alone.
    pub(super) fn enqueue(
        &mut self,
        batch: &[ProjectionBlock<'_>],
        lines: CUdeviceptr,
        rays: CUdeviceptr,
        scales: CUdeviceptr,
    ) -> Result<(), CudaError> {
        let (layout, gain) = (self.layout, self.gain(batch));
        let (pixels, pairs) = (layout.rows * layout.columns, layout.all_rows() / 2);
        let grid = Grid::new([(pairs / self.plan.sequences) as u32, 1, 1], [self.plan.threads as u32, 1, 1])
            .with_shared(self.plan.shared_bytes as u32);
        self.peak.zero()?;
        let mut access = Access::new(&self.stream)?;
        let mut addresses = Vec::with_capacity(batch.len());
        for projection in batch {
            let skipped = projection.first_row * layout.columns * size_of::<f32>();
            addresses.push(access.read(projection.block)? + skipped as CUdeviceptr);
        }
        for address in &addresses {
            let args = Args::new().pointer(*address).value(&(pixels as u64)).buffer(&self.peak);
            // SAFETY: `check_batch` found as many pixels behind the first row.
            unsafe { self.stream.launch(&self.largest, LARGEST, &args)? };
        }
        for (at, (projection, address)) in batch.iter().zip(&addresses).enumerate() {
            let ray = Ray::new(projection.angle_rad);
            let first = (at * layout.parts) as CUdeviceptr;
            let args = Args::new()
                .pointer(*address)
                .i32(layout.rows as i32)
                .f32(projection.weight as f32)
                .buffer(&self.response)
                .buffer(&self.roots)
                .buffer(&self.by)
                .buffer(&self.spectra)
                .buffer(&self.peak)
                .f32(gain)
                .value(&ray.cos)
                .value(&ray.sin)
                .pointer(lines + first * (layout.line_len() * size_of::<u16>()) as CUdeviceptr)
                .pointer(rays + first * size_of::<Ray>() as CUdeviceptr)
                .pointer(scales + first * size_of::<f32>() as CUdeviceptr);
            // SAFETY: the pixels as above; the tables have the length that the kernel was compiled for, and by the
            // promise of the caller there is room for the lines of the batch.
            unsafe { self.stream.launch(&self.filter, grid, &args)? };
        }
        access.finish()
    }
}

/// Checks that all projections of a call can be added.
pub(super) fn check_batch(spec: &ReconSpec, batch: &[ProjectionBlock<'_>]) -> Result<(), OpError> {
    for projection in batch {
        let format = projection.block.format();
        if format.element != ElementType::F32 {
            let found = format.element;
            return Err(beamstream_buffer::ElementMismatch { expected: ElementType::F32, found }.into());
        }
        let expected = (projection.first_row + spec.rows) * spec.columns;
        if format.shape.len() < expected || format.shape.columns != spec.columns {
            return Err(ReconError::ProjectionLength { expected, found: format.shape.len() }.into());
        }
        let ProjectionBlock { angle_rad, weight, .. } = *projection;
        if !angle_rad.is_finite() || !weight.is_finite() {
            return Err(ReconError::Angle { angle_rad, weight }.into());
        }
    }
    Ok(())
}

/// The axis that lines refer to: where rows have their own, the mean of these.
pub(super) fn common_axis(spec: &ReconSpec) -> f64 {
    match &spec.rotation_axis {
        RotationAxis::Same(axis_px) => *axis_px,
        RotationAxis::PerRow(axes) => axes.iter().sum::<f64>() / axes.len().max(1) as f64,
    }
}

/// Columns that each row of all chunks is moved by.
fn tilt(spec: &ReconSpec, layout: LineLayout) -> Vec<f64> {
    let RotationAxis::PerRow(axes) = &spec.rotation_axis else {
        return Vec::new();
    };
    let common = common_axis(spec);
    let by = axes.iter().map(|axis| axis - common);
    by.chain(std::iter::repeat(0.0)).take(layout.all_rows()).collect()
}

/// How rows of this width are transformed; `None` if they are too long.
fn plan(columns: usize, shared_bytes: usize) -> Option<FftPlan> {
    let padded = good_length(2 * columns);
    let some = FftPlan::new(padded, 0, shared_bytes / BLOCKS_TOGETHER);
    some.or_else(|| FftPlan::new(padded, 0, shared_bytes))
}

/// The same, with the widest rows that are not.
fn plan_or_most(columns: usize, shared_bytes: usize) -> Result<FftPlan, OpError> {
    plan(columns, shared_bytes).ok_or_else(|| {
        let most = (1..columns).rev().find(|columns| plan(*columns, shared_bytes).is_some()).unwrap_or(0);
        ReconError::Spec(SpecError::Columns { found: columns, most }).into()
    })
}

fn source(spec: &ReconSpec, layout: LineLayout, padded: usize, plan: &FftPlan) -> KernelSource {
    KernelSource::new("filter_lines.cu", include_str!("../../../../kernels/filter_lines.cu"))
        .define("ROWS", layout.chunk_rows)
        .define("PARTS", layout.parts)
        .define("COLUMNS", layout.columns)
        .define("PADDED", padded)
        .define("FACTORS", plan.factors())
        .define("PAIRS", plan.sequences)
        .define("THREADS", plan.threads)
        .define("EDGE_PADDING", u8::from(spec.padding == Padding::Edge))
        .define("TILTED", u8::from(matches!(spec.rotation_axis, RotationAxis::PerRow(_))))
}

/// The kernel file with the constants of `spec`; `None` if the rows are too long.
pub(super) fn kernel_source(spec: &ReconSpec, shared_bytes: usize) -> Option<KernelSource> {
    let padded = good_length(2 * spec.columns);
    let plan = plan(spec.columns, shared_bytes)?;
    Some(source(spec, LineLayout::new(spec.rows, spec.columns, 1), padded, &plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_waste_few_rows() {
        let of = |rows| {
            let layout = LineLayout::new(rows, 10, 1);
            (layout.chunks, layout.chunk_rows)
        };
        assert_eq!(
            [1, 16, 17, 64, 65, 2048].map(of),
            [(1, 16), (1, 16), (1, 32), (1, 64), (2, 48), (32, 64)]
        );
    }

    #[test]
    fn the_widest_rows_are_told() {
        let error = plan_or_most(60_000, 227 << 10).unwrap_err().to_string();
        assert!(error.contains("60000") && error.contains("to 14400 columns"), "{error}");
        assert_eq!(plan_or_most(2048, 227 << 10).unwrap().sequences, 2);
    }

    #[test]
    fn rows_with_axes_of_their_own_are_moved_to_the_mean() {
        let axes = RotationAxis::PerRow(vec![4.0, 5.0, 6.0]);
        let spec = ReconSpec { rotation_axis: axes, ..ReconSpec::new(3, 10, 0.0) };
        let by = tilt(&spec, LineLayout::new(3, 10, 1));
        assert_eq!((common_axis(&spec), by.len(), &by[..4]), (5.0, 16, &[-1.0, 0.0, 1.0, 0.0][..]));
    }
}
