//! The computations as a node sees them: on blocks, whatever device they lie on.

use std::ops::Range;

use beamstream_buffer::{Block, DeviceId, ElementMismatch, LeaseMut};
use beamstream_core::{ElementType, Format};

use crate::{BadPixels, FlatFieldSpec, Memory, ReconError, ReconSpec, ScanStore};

/// All computations of one device. The CPU's are the reference that the others are held against.
///
/// A backend belongs to one node: it enqueues on a stream of its own and does not wait for a device, unless a
/// method says so.
pub trait Backend: Send + Sync {
    /// The device.
    fn device(&self) -> DeviceId;

    /// Averages frames of `format`.
    ///
    /// # Errors
    /// [`OpError`] if the device has no room.
    fn mean_image(&self, format: Format) -> Result<Box<dyn MeanImage>, OpError>;

    /// Flat-field correction of frames of `format`.
    ///
    /// # Errors
    /// [`OpError`] if the device has no room.
    fn flat_field(&self, spec: &FlatFieldSpec, format: Format) -> Result<Box<dyn FlatField>, OpError>;

    /// Frames of this format that a flat-field correction takes in one go, where so many wait.
    fn frames_at_once(&self, _format: Format) -> usize {
        1
    }

    /// Reconstruction by accumulation.
    ///
    /// # Errors
    /// [`OpError`] if the specification is unusable or the device has no room.
    fn reconstruction(&self, spec: &ReconSpec) -> Result<Box<dyn Reconstruction>, OpError>;

    /// Memory that a reconstruction takes on the device.
    fn reconstruction_memory(&self, spec: &ReconSpec) -> Memory;

    /// Projections that a reconstruction adds in one go unless told otherwise.
    fn batch(&self) -> usize {
        ReconSpec::DEFAULT_BATCH
    }

    /// Most slices that [`Reconstruction::slices`] makes together.
    fn slices_at_once(&self, spec: &ReconSpec) -> usize;

    /// Room for `projections` filtered projections, for slices in any orientation. The axis of `spec` is not used.
    ///
    /// # Errors
    /// [`OpError`] if the specification is unusable or the device has no room.
    fn scan_store(&self, spec: &ReconSpec, projections: usize) -> Result<Box<dyn ScanStore>, OpError>;

    /// Memory that a scan store takes on the device.
    fn scan_store_memory(&self, spec: &ReconSpec, projections: usize) -> Memory;

    /// Writes `from` (f32) into `to` (f16, u16, u8 or f32): `range` LO becomes 0 and HI the highest integer, values
    /// are rounded and what lies outside is cut. Floats are converted, the range does not touch them.
    ///
    /// # Errors
    /// [`OpError`] if the types or shapes do not fit.
    fn rescale(&self, from: &Block, range: [f32; 2], to: &mut LeaseMut) -> Result<(), OpError>;

    /// Finds the rotation axis from two projections half a turn apart, in columns of the projections. Waits for the
    /// device.
    ///
    /// # Errors
    /// [`OpError`] if the types or shapes do not fit.
    fn rotation_axis(&self, at_0: &Block, at_180: &Block) -> Result<AxisEstimate, OpError>;
}

/// A rotation axis and how far to trust it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisEstimate {
    /// Columns from the centre of the first column.
    pub rotation_axis_px: f64,
    /// 0..1; below 0.5 it should not be relied on.
    pub confidence: f64,
}

/// A mean over frames: `(row, column)`, f32, in the unit of the frames.
pub trait MeanImage: Send {
    /// Adds a frame.
    ///
    /// # Errors
    /// [`OpError`] if its type or shape differs.
    fn add(&mut self, frame: &Block) -> Result<(), OpError>;
    /// Number of frames added.
    fn count(&self) -> u64;
    /// The mean; zeros if nothing was added. Waits for the device.
    ///
    /// # Errors
    /// [`OpError`] if the device refuses.
    fn mean(&self) -> Result<Vec<f32>, OpError>;
    /// Forgets all frames.
    fn reset(&mut self);
}

/// Flat-field correction with fixed darks and flats.
pub trait FlatField: Send {
    /// Sets the mean dark and one or two mean flats, each `(row, column)` like the frames, in counts.
    ///
    /// # Errors
    /// [`OpError`] if a shape differs.
    fn set_references(&mut self, dark: &[f32], flats: &[&[f32]]) -> Result<(), OpError>;

    /// Corrects a frame into `to` (f32). `later` in 0..1 is the part of the second flat, where there are two.
    ///
    /// # Errors
    /// [`OpError`] if a type or shape differs.
    fn correct(&mut self, frame: &Block, later: f32, to: &mut LeaseMut) -> Result<(), OpError>;

    /// Corrects several frames, each into its lease: as often [`correct`](Self::correct), in fewer steps for a device.
    ///
    /// # Errors
    /// As there; also if there is not a lease for each frame.
    fn correct_all(&mut self, frames: &[Block], later: f32, to: &mut [LeaseMut]) -> Result<(), OpError> {
        if frames.len() != to.len() {
            let (expected, found) = (frames.len(), to.len());
            return Err(OpError::Count { what: "buffers for frames", expected, found });
        }
        frames.iter().zip(to).try_for_each(|(frame, to)| self.correct(frame, later, to))
    }

    /// Pixels without a valid value in all frames that were corrected since this was last asked. Waits for the device.
    ///
    /// # Errors
    /// [`OpError`] if the device refuses.
    fn take_bad_pixels(&mut self) -> Result<BadPixels, OpError>;
}

/// One projection of a batch.
#[derive(Debug, Clone, Copy)]
pub struct ProjectionBlock<'a> {
    /// Line integrals, f32 `(row, column)`; it may have more rows than are reconstructed.
    pub block: &'a Block,
    /// The row of the block that is the first to be reconstructed.
    pub first_row: usize,
    /// Rotation angle in radians.
    pub angle_rad: f64,
    /// Weight in radians; those of a whole scan sum to pi.
    pub weight: f64,
}

/// A reconstruction that grows with every batch of projections: [`crate::Accumulate`] on blocks.
pub trait Reconstruction: Send {
    /// Adds a batch. The result depends on the batches and their order alone, not on time or threads.
    ///
    /// # Errors
    /// [`OpError`] if a type or shape differs; then none of the batch is added.
    fn accumulate(&mut self, batch: &[ProjectionBlock<'_>]) -> Result<(), OpError>;

    /// Writes `scale` times the slice of one row from what was accumulated so far, f32 `(y, x)`; accumulation can go
    /// on.
    ///
    /// # Errors
    /// [`OpError`] if the shape differs or the row is beyond the detector.
    fn slice(&mut self, row: usize, scale: f64, to: &mut LeaseMut) -> Result<(), OpError>;

    /// Rows that are made together, in order.
    fn row_groups(&self) -> Vec<Range<usize>>;

    /// Writes `scale` times the slices of the `group`-th of the [`row_groups`](Self::row_groups), one lease a row.
    ///
    /// # Errors
    /// [`OpError`] if there is no such group or a shape differs.
    fn slices(&mut self, group: usize, scale: f64, to: &mut [LeaseMut]) -> Result<(), OpError>;

    /// Forgets all projections.
    fn reset(&mut self);
}

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// A reconstruction refused its input.
    #[error(transparent)]
    Recon(#[from] ReconError),
    /// A block has another element type.
    #[error(transparent)]
    Element(#[from] ElementMismatch),
    /// A block has another type or shape.
    #[error("expected {expected}, found {found}")]
    Format {
        /// What the operation was set up for, or takes at all.
        expected: String,
        /// What came.
        found: String,
    },
    /// A reference image has another size.
    #[error("expected a reference image of {expected} pixels, found {found}")]
    ReferenceLength {
        /// Pixels of a frame.
        expected: usize,
        /// Pixels given.
        found: usize,
    },
    /// The numbers of planes and of buffers differ, or a scan store is full.
    #[error("expected {expected} {what}, found {found}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// The device refused.
    #[error("{device} failed: {cause}")]
    Device {
        /// The device.
        device: DeviceId,
        /// What it said.
        cause: String,
    },
}

/// Element types that [`Backend::rescale`] writes.
pub const OUTPUT_TYPES: [ElementType; 4] =
    [ElementType::F32, ElementType::F16, ElementType::U16, ElementType::U8];
