//! The operations as nodes see them: on blocks in host memory.

use std::ops::Range;

use beamstream_buffer::{Block, DeviceId, LeaseMut};
use beamstream_core::{ElementType, Format};
use beamstream_ops::{
    Accumulate, AxisEstimate, Backend, BadPixels, FlatField as FlatFieldOp, FlatFieldSpec,
    MeanImage as MeanImageOp, Memory, OpError, Plane, Projection, ProjectionBlock, ReconError, ReconSpec,
    Reconstruction, RotationAxis, ScanStore, SpecError,
};

use crate::planes::FilteredScan;
use crate::rows::RowGroup;
use crate::{FlatField, MeanImage, PixelError, accumulator, memory, rescale, rotation_axis};

/// All operations on the processors of the host.
#[derive(Debug, Clone)]
pub struct CpuBackend {
    threads: usize,
}

impl CpuBackend {
    /// Operations that use up to `threads` threads each, one at least.
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.max(1) }
    }

    /// Threads of a reconstruction.
    pub fn threads(&self) -> usize {
        self.threads
    }
}

impl Backend for CpuBackend {
    fn device(&self) -> DeviceId {
        DeviceId::Cpu
    }

    fn mean_image(&self, format: Format) -> Result<Box<dyn MeanImageOp>, OpError> {
        Ok(Box::new(BlockMean { format, mean: MeanImage::new(format.element, format.shape.len()) }))
    }

    fn flat_field(&self, spec: &FlatFieldSpec, format: Format) -> Result<Box<dyn FlatFieldOp>, OpError> {
        let field = FlatField::new(*spec, format.element, format.shape.rows, format.shape.columns);
        Ok(Box::new(BlockFlatField { format, field, bad: BadPixels::default() }))
    }

    fn reconstruction(&self, spec: &ReconSpec) -> Result<Box<dyn Reconstruction>, OpError> {
        let sums = accumulator(spec, self.threads)?;
        Ok(Box::new(BlockReconstruction { spec: spec.clone(), sums }))
    }

    fn reconstruction_memory(&self, spec: &ReconSpec) -> Memory {
        memory(spec, self.threads)
    }

    fn slices_at_once(&self, spec: &ReconSpec) -> usize {
        RowGroup::split(spec.rows).iter().map(|group| group.rows.len()).max().unwrap_or(1)
    }

    fn scan_store(&self, spec: &ReconSpec, projections: usize) -> Result<Box<dyn ScanStore>, OpError> {
        let scan = FilteredScan::new(spec, self.threads)?;
        Ok(Box::new(BlockStore { spec: spec.clone(), room: projections, scan }))
    }

    fn scan_store_memory(&self, spec: &ReconSpec, projections: usize) -> Memory {
        FilteredScan::memory(spec, projections, self.threads)
    }

    fn rescale(&self, from: &Block, range: [f32; 2], to: &mut LeaseMut) -> Result<(), OpError> {
        let element = to.format().element;
        expect(from.format().with_element(element), to.format())?;
        rescale(from.elements::<f32>()?, range, element, to.bytes_mut()).map_err(pixel_error)?;
        Ok(())
    }

    fn rotation_axis(&self, at_0: &Block, at_180: &Block) -> Result<AxisEstimate, OpError> {
        expect(at_0.format(), at_180.format())?;
        rotation_axis(at_0.elements()?, at_180.elements()?, at_0.format().shape).map_err(pixel_error)
    }
}

struct BlockMean {
    format: Format,
    mean: MeanImage,
}

impl MeanImageOp for BlockMean {
    fn add(&mut self, frame: &Block) -> Result<(), OpError> {
        expect(self.format, frame.format())?;
        self.mean.add(frame.bytes()).map_err(pixel_error)
    }

    fn count(&self) -> u64 {
        self.mean.count()
    }

    fn mean(&self) -> Result<Vec<f32>, OpError> {
        Ok(self.mean.mean())
    }

    fn reset(&mut self) {
        self.mean.reset();
    }
}

struct BlockFlatField {
    format: Format,
    field: FlatField,
    bad: BadPixels,
}

impl FlatFieldOp for BlockFlatField {
    fn set_references(&mut self, dark: &[f32], flats: &[&[f32]]) -> Result<(), OpError> {
        let expected = self.format.shape.len();
        if let Some(other) = std::iter::once(&dark).chain(flats).find(|image| image.len() != expected) {
            return Err(OpError::ReferenceLength { expected, found: other.len() });
        }
        self.field.set_references(dark, flats).map_err(pixel_error)
    }

    fn correct(&mut self, frame: &Block, later: f32, to: &mut LeaseMut) -> Result<(), OpError> {
        expect(self.format, frame.format())?;
        expect(self.format.with_element(ElementType::F32), to.format())?;
        self.bad += self.field.correct(frame.bytes(), later, to.elements_mut()?).map_err(pixel_error)?;
        Ok(())
    }

    fn take_bad_pixels(&mut self) -> Result<BadPixels, OpError> {
        Ok(std::mem::take(&mut self.bad))
    }
}

struct BlockReconstruction {
    spec: ReconSpec,
    sums: Box<dyn Accumulate>,
}

/// The rows of projections that are reconstructed.
fn projections<'a>(
    spec: &ReconSpec,
    batch: &'a [ProjectionBlock<'_>],
) -> Result<Vec<Projection<'a>>, OpError> {
    let one = |projection: &'a ProjectionBlock<'_>| {
        let pixels = projection.block.elements::<f32>()?;
        let first = projection.first_row * spec.columns;
        let end = first + spec.rows * spec.columns;
        let pixels = pixels
            .get(first..end)
            .ok_or(ReconError::ProjectionLength { expected: end, found: pixels.len() })?;
        Ok(Projection { pixels, angle_rad: projection.angle_rad, weight: projection.weight })
    };
    batch.iter().map(one).collect()
}

struct BlockStore {
    spec: ReconSpec,
    room: usize,
    scan: FilteredScan,
}

impl ScanStore for BlockStore {
    fn add(&mut self, batch: &[ProjectionBlock<'_>]) -> Result<(), OpError> {
        let total = self.scan.len() + batch.len();
        if total > self.room {
            return Err(OpError::Count { what: "projections at most", expected: self.room, found: total });
        }
        Ok(self.scan.add(&projections(&self.spec, batch)?)?)
    }

    fn len(&self) -> usize {
        self.scan.len()
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
        if let RotationAxis::PerRow(axes) = axis
            && axes.len() != self.spec.rows
        {
            let error = SpecError::AxisCount { expected: self.spec.rows, found: axes.len() };
            return Err(ReconError::Spec(error).into());
        }
        for (plane, lease) in planes.iter().zip(to) {
            let columns = lease.format().shape.columns;
            self.scan.plane(axis, plane, scale, columns, lease.elements_mut()?);
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.scan.reset();
    }
}

impl Reconstruction for BlockReconstruction {
    fn accumulate(&mut self, batch: &[ProjectionBlock<'_>]) -> Result<(), OpError> {
        Ok(self.sums.accumulate(&projections(&self.spec, batch)?)?)
    }

    fn slice(&mut self, row: usize, scale: f64, to: &mut LeaseMut) -> Result<(), OpError> {
        let slice = to.elements_mut()?;
        self.sums.slice(row, slice)?;
        multiply(slice, scale);
        Ok(())
    }

    fn row_groups(&self) -> Vec<Range<usize>> {
        self.sums.row_groups()
    }

    fn slices(&mut self, group: usize, scale: f64, to: &mut [LeaseMut]) -> Result<(), OpError> {
        let mut slices = Vec::with_capacity(to.len());
        for lease in to {
            slices.push(lease.elements_mut()?);
        }
        self.sums.slices(group, &mut slices)?;
        for slice in slices {
            multiply(slice, scale);
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.sums.reset();
    }
}

fn multiply(slice: &mut [f32], scale: f64) {
    // A scale of one leaves every bit as it is.
    if scale != 1.0 {
        let scale = scale as f32;
        for voxel in slice {
            *voxel *= scale;
        }
    }
}

fn expect(expected: Format, found: Format) -> Result<(), OpError> {
    if expected == found {
        Ok(())
    } else {
        Err(OpError::Format { expected: expected.to_string(), found: found.to_string() })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it stands behind `map_err`")]
fn pixel_error(error: PixelError) -> OpError {
    OpError::Device { device: DeviceId::Cpu, cause: error.to_string() }
}
