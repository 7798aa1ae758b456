//! The computations as a node sees them: on blocks, whatever device they lie on.

use std::ops::Range;

use beamstream_buffer::{Block, DeviceId, LeaseMut, Stream};
use beamstream_core::{ElementType, Format};

use crate::{BadPixels, FlatFieldSpec, OpError, ReconSpec};

/// All computations of one device. The CPU's are the reference that the others are held against.
///
/// A backend enqueues on the stream of the node that it was made for and does not wait for a device.
pub trait Backend: Send + Sync {
    /// The device.
    fn device(&self) -> DeviceId;

    /// A stream of work for one node.
    fn stream(&self) -> Box<dyn Stream>;

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

    /// Reconstruction by accumulation.
    ///
    /// # Errors
    /// [`OpError`] if the specification is unusable or the device has no room.
    fn reconstruction(&self, spec: &ReconSpec) -> Result<Box<dyn Reconstruction>, OpError>;

    /// Bytes of the device's memory that a reconstruction takes.
    fn reconstruction_bytes(&self, spec: &ReconSpec) -> usize;

    /// Writes `from` (f32) into `to` (f16, u16, u8 or f32): `range` LO becomes 0 and HI the highest integer, values
    /// are rounded and what lies outside is cut. Floats are converted, the range does not touch them.
    ///
    /// # Errors
    /// [`OpError`] if the types or shapes do not fit.
    fn rescale(&self, from: &Block, range: [f32; 2], to: &mut LeaseMut) -> Result<(), OpError>;

    /// Finds the rotation axis from two projections half a turn apart, in columns of the projections.
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
    /// The mean; zeros if nothing was added.
    fn mean(&self) -> Vec<f32>;
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
    fn correct(&mut self, frame: &Block, later: f32, to: &mut LeaseMut) -> Result<BadPixels, OpError>;
}

/// One projection of a batch.
#[derive(Debug, Clone, Copy)]
pub struct Projection<'a> {
    /// Line integrals, f32 `(row, column)`.
    pub block: &'a Block,
    /// Rotation angle, reduced or not.
    pub angle_rad: f64,
    /// Weight in the sum over angles, in radians; the weights of a scan sum to pi.
    pub weight: f64,
}

/// A reconstruction that grows with every batch of projections.
pub trait Reconstruction: Send {
    /// Adds a batch. The result depends on the batches and their order alone, not on time or threads.
    ///
    /// # Errors
    /// [`OpError`] if a type or shape differs.
    fn accumulate(&mut self, batch: &[Projection<'_>]) -> Result<(), OpError>;

    /// The slices of `rows` from what was accumulated so far, `to[i]` for the i-th of them, f32 `(y, x)`.
    /// Accumulation can go on afterwards.
    ///
    /// # Errors
    /// [`OpError`] if a shape differs or a row is beyond the detector.
    fn slices(&mut self, rows: Range<usize>, to: &mut [LeaseMut]) -> Result<(), OpError>;

    /// How many slices are best made in one call.
    fn slices_at_once(&self) -> usize;

    /// Forgets all projections.
    fn reset(&mut self);
}

/// Element types that [`Backend::rescale`] writes.
pub const OUTPUT_TYPES: [ElementType; 4] = [ElementType::F32, ElementType::F16, ElementType::U16, ElementType::U8];
