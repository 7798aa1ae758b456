//! Slices in any orientation from filtered projections that are kept.
#![allow(unsafe_code, reason = "kernels are started")]

use beamstream_buffer::{ElementMismatch, LeaseMut};
use beamstream_core::ElementType;
use beamstream_ops::{
    Memory, Method, OpError, Plane, ProjectionBlock, ReconError, ReconSpec, RotationAxis, ScanStore,
    SpecError,
};
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdeviceptr;

use super::lines::{LineFilter, LineLayout, Ray, check_batch};
use super::window::{FARTHEST, Piece, Window};
use crate::access::Access;
use crate::args::Args;
use crate::device_buffer::DeviceBuffer;
use crate::kernel::Grid;
use crate::source::KernelSource;
use crate::stream::CudaStream;

/// A plane as the kernel takes it.
#[derive(Debug, Clone, Copy, Zeroable, Pod)]
#[repr(C)]
struct KernelPlane([[f64; 3]; 3]);

/// Filtered projections of a scan in half precision, rows innermost.
///
/// One position then serves all rows of a plane along the axis, and a plane across it reads one row of all columns: a
/// block of pixels brings what it needs of each projection to shared memory, in pieces of 8 rows. From 1800 projections
/// an H200 makes a plane of 2048^2 pixels across the axis in 5.5 ms, along it in 6.7 ms, oblique in 8 to 9 ms.
///
/// # Memory
/// 2 bytes a pixel, whatever the storage of the specification: rounding costs a few millionths of the plane's range.
pub(crate) struct CudaScanStore {
    stream: CudaStream,
    spec: ReconSpec,
    layout: LineLayout,
    filter: LineFilter,
    capacity: usize,
    /// Of all projections kept.
    directions: Vec<Ray>,
    lines: DeviceBuffer<u16>,
    rays: DeviceBuffer<Ray>,
    scales: DeviceBuffer<f32>,
}

impl CudaScanStore {
    pub(crate) fn new(stream: &CudaStream, spec: &ReconSpec, projections: usize) -> Result<Self, OpError> {
        // Interpolation is linear, as that of the direct method, so the filter makes up for it in the same way.
        let spec = ReconSpec { method: Method::Fbp, rotation_axis: RotationAxis::Same(0.0), ..spec.clone() };
        spec.validate().map_err(ReconError::from)?;
        let layout = layout(&spec);
        Ok(Self {
            stream: stream.clone(),
            filter: LineFilter::new(stream, &spec, layout)?,
            capacity: projections,
            directions: Vec::with_capacity(projections),
            lines: DeviceBuffer::alloc(stream, projections.saturating_mul(layout.line_len()))?,
            rays: DeviceBuffer::alloc(stream, projections)?,
            scales: DeviceBuffer::alloc(stream, projections)?,
            spec,
            layout,
        })
    }

    pub(crate) fn memory(spec: &ReconSpec, projections: usize) -> Memory {
        let layout = layout(spec);
        let of_line = layout.line_len() * size_of::<u16>() + size_of::<Ray>() + size_of::<f32>();
        Memory { sums_bytes: projections.saturating_mul(of_line), work_bytes: LineFilter::bytes(layout) }
    }

    fn plane(&self, axes: &Axes, plane: &Plane, scale: f64, to: &mut LeaseMut) -> Result<(), OpError> {
        let shape = to.format().shape;
        let window = Window::new(plane, &self.directions, axes.spread_px)?;
        let source = source(self.layout.chunk_rows, window.piece, axes.offsets.is_some());
        let kernel = self.stream.gpu().compile(&source)?.kernel("backproject_plane")?;
        let mut access = Access::new(&self.stream)?;
        let args = Args::new()
            .buffer(&self.lines)
            .buffer(&self.rays)
            .buffer(&self.scales)
            .i32(self.directions.len() as i32)
            .i32(self.layout.chunks as i32)
            .i32(self.layout.columns as i32)
            .value(&axes.first_px)
            .value(&axes.spread_px)
            .pointer(axes.offsets.as_ref().map_or(0, DeviceBuffer::pointer))
            .value(&KernelPlane([plane.origin, plane.down, plane.right]))
            .i32(shape.rows as i32)
            .i32(shape.columns as i32)
            .value(&[window.columns, window.groups, window.lines].map(|count| count as i32))
            .f32(scale as f32)
            .pointer(access.write(to)?);
        let edge = window.piece.edge;
        let blocks = [shape.columns.div_ceil(edge) as u32, shape.rows.div_ceil(edge) as u32, 1];
        let grid = Grid::new(blocks, [window.piece.threads() as u32, 1, 1])
            .with_shared(window.shared_bytes() as u32);
        // SAFETY: the buffers hold as many lines as there are directions, with the layout that the kernel was compiled
        // for; the window covers what the pixels of a block need, and the lease has its format's pixels.
        unsafe { self.stream.launch(&kernel, grid, &args)? };
        Ok(access.finish()?)
    }
}

/// Rotation axes of the rows: the first of them along the columns, and how far the others are from it.
struct Axes {
    first_px: f64,
    spread_px: f64,
    offsets: Option<DeviceBuffer<f32>>,
}

impl Axes {
    fn new(stream: &CudaStream, axis: &RotationAxis, layout: LineLayout) -> Result<Self, OpError> {
        let axes = match axis {
            RotationAxis::Same(axis_px) => {
                return Ok(Self { first_px: *axis_px, spread_px: 0.0, offsets: None });
            }
            RotationAxis::PerRow(axes) => axes,
        };
        if axes.len() != layout.rows {
            let error = SpecError::AxisCount { expected: layout.rows, found: axes.len() };
            return Err(ReconError::Spec(error).into());
        }
        let (first_px, last_px) =
            axes.iter().fold((f64::MAX, f64::MIN), |(low, high), axis| (axis.min(low), axis.max(high)));
        let offsets = axes.iter().map(|axis| (axis - first_px) as f32);
        let offsets: Vec<f32> = offsets.chain(std::iter::repeat(0.0)).take(layout.all_rows()).collect();
        let offsets = Some(DeviceBuffer::from_slice(stream, &offsets)?);
        Ok(Self { first_px, spread_px: last_px - first_px, offsets })
    }
}

impl ScanStore for CudaScanStore {
    fn add(&mut self, projections: &[ProjectionBlock<'_>]) -> Result<(), OpError> {
        check_batch(&self.spec, projections)?;
        let (first, expected) = (self.directions.len(), self.capacity);
        let found = first + projections.len();
        if found > expected {
            return Err(OpError::Count { what: "projections at most", expected, found });
        }
        let line_bytes = self.layout.line_len() * size_of::<u16>();
        let at = |pointer: CUdeviceptr, bytes: usize| pointer + (first * bytes) as CUdeviceptr;
        self.filter.enqueue(
            projections,
            at(self.lines.pointer(), line_bytes),
            at(self.rays.pointer(), size_of::<Ray>()),
            at(self.scales.pointer(), size_of::<f32>()),
        )?;
        self.directions.extend(projections.iter().map(|projection| Ray::new(projection.angle_rad)));
        Ok(())
    }

    fn len(&self) -> usize {
        self.directions.len()
    }

    fn planes(
        &mut self,
        axis: &RotationAxis,
        planes: &[Plane],
        scale: f64,
        to: &mut [LeaseMut],
    ) -> Result<(), OpError> {
        if planes.len() != to.len() {
            return Err(OpError::Count {
                what: "buffers for planes",
                expected: planes.len(),
                found: to.len(),
            });
        }
        if let Some(other) = to.iter().map(|lease| lease.format().element).find(|e| *e != ElementType::F32) {
            return Err(ElementMismatch { expected: ElementType::F32, found: other }.into());
        }
        let axes = Axes::new(&self.stream, axis, self.layout)?;
        if !axes.first_px.is_finite() || axes.first_px.abs() > FARTHEST {
            let (columns, found) = (self.layout.columns, axes.first_px);
            return Err(ReconError::Spec(SpecError::Axis { columns, found }).into());
        }
        planes.iter().zip(to).try_for_each(|(plane, to)| self.plane(&axes, plane, scale, to))
    }

    fn reset(&mut self) {
        self.directions.clear();
    }
}

fn layout(spec: &ReconSpec) -> LineLayout {
    LineLayout::new(spec.rows, spec.columns, 1)
}

fn source(chunk_rows: usize, piece: Piece, tilted: bool) -> KernelSource {
    KernelSource::new("plane.cu", include_str!("../../../../kernels/plane.cu"))
        .define("ROWS", chunk_rows)
        .define("EDGE", piece.edge)
        .define("BETWEEN", u8::from(piece.between))
        .define("TILTED", u8::from(tilted))
}

pub(super) fn kernels() -> Vec<KernelSource> {
    let of = |edge, between, tilted| source(64, Piece { edge, between }, tilted);
    vec![
        of(64, false, false),
        of(64, true, true),
        of(32, true, false),
        of(16, true, false),
        of(8, false, true),
    ]
}
