//! A scan in pinned memory, as large as it must be and as quick to make as it can be.
//!
//! The phantom is a rosette, whose projections repeat: few different frames serve the whole scan. Rows share a few
//! heights of it, and each has a density of its own, so that no slice can be taken for its neighbour.

use std::ops::Range;

use beamstream_buffer::{Allocator, Block, LeaseMut, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_phantom::{Slice, heights};

use crate::Outcome;

/// Heights of the phantom that the rows share.
const HEIGHTS: usize = 4;
/// Counts without beam.
const DARK_COUNTS: u16 = 100;
/// Counts of the open beam above that, in the middle of the detector.
const BEAM_COUNTS: f32 = 50_000.0;

/// Sizes of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    /// Projections over half a turn.
    pub(crate) angles: usize,
    /// Copies in the rosette.
    pub(crate) copies: usize,
    /// Passes over the scan, each with its part of the rows.
    pub(crate) bands: usize,
}

impl Extent {
    /// # Errors
    /// If projections would not repeat, or rows would be left over.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.copies % 2 == 1 || !(2 * self.angles).is_multiple_of(self.copies) {
            return Err(format!(
                "--copies: expected an even number that divides {}, found {}",
                2 * self.angles,
                self.copies
            ));
        }
        if !self.rows.is_multiple_of(self.bands) {
            return Err(format!(
                "--bands: expected a divisor of the {} rows, found {}",
                self.rows, self.bands
            ));
        }
        Ok(())
    }

    /// Projections that differ: after a copy's part of the turn they repeat.
    fn distinct(&self) -> usize {
        2 * self.angles / self.copies
    }

    /// Rotation axis in columns.
    pub(crate) fn axis_px(&self) -> f64 {
        (self.columns as f64 - 1.0) / 2.0
    }

    /// Angle of a projection in radians; a scan may go on beyond half a turn.
    pub(crate) fn angle_rad(&self, projection: u64) -> f64 {
        std::f64::consts::PI * projection as f64 / self.angles as f64
    }

    /// Rows of a band.
    pub(crate) fn band(&self, band: usize) -> Range<usize> {
        let rows = self.rows / self.bands;
        band * rows..(band + 1) * rows
    }

    /// Frames as the detector gives them, of one band.
    pub(crate) fn frame_format(&self) -> Format {
        Format::frame(ElementType::U16, self.rows / self.bands, self.columns)
    }

    /// Bytes of all projections.
    pub(crate) fn scan_bytes(&self) -> f64 {
        (self.angles * self.rows * self.columns * ElementType::U16.size()) as f64
    }

    /// Voxels of the volume.
    pub(crate) fn voxels(&self) -> f64 {
        (self.rows * self.columns * self.columns) as f64
    }

    /// Density of a row relative to the phantom's: no two neighbours have the same.
    fn density(row: usize) -> f32 {
        const GOLDEN: f32 = 0.618_034;
        0.6 + 0.4 * (row as f32 * GOLDEN).fract()
    }

    fn slice(&self, row: usize) -> Slice {
        Slice::rosette(heights(HEIGHTS)[row % HEIGHTS], self.copies)
    }

    /// The slice of a row, attenuation per pixel.
    pub(crate) fn truth(&self, row: usize) -> Vec<f32> {
        let n = self.columns;
        let slice = self.slice(row);
        let mut image = vec![0.0; n * n];
        let rows_each = n.div_ceil(threads());
        std::thread::scope(|scope| {
            for (part, rows) in image.chunks_mut(rows_each * n).enumerate() {
                let slice = &slice;
                scope.spawn(move || slice.truth(n, part * rows_each, rows));
            }
        });
        for voxel in &mut image {
            *voxel *= Self::density(row);
        }
        image
    }

    /// Line integrals `(projection, column)` of each height, of the projections that differ.
    fn sinograms(&self) -> Vec<Vec<f32>> {
        let angles: Vec<f64> = (0..self.distinct()).map(|at| self.angle_rad(at as u64)).collect();
        let part = angles.len().div_ceil(threads());
        let sinogram = |height: usize| {
            let slice = self.slice(height);
            std::thread::scope(|scope| {
                let part_of = |angles| {
                    let slice = &slice;
                    scope.spawn(move || slice.sinogram(self.columns, angles, self.axis_px()))
                };
                let parts: Vec<_> = angles.chunks(part).map(part_of).collect();
                parts.into_iter().filter_map(|part| part.join().ok()).flatten().collect()
            })
        };
        (0..HEIGHTS).map(sinogram).collect()
    }
}

/// Threads that make the scan.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What a frame shows.
#[derive(Clone, Copy)]
enum Shows {
    Dark,
    Flat,
    Projection(usize),
}

/// The frames of one band.
struct Band {
    dark: Block,
    flat: Block,
    projections: Vec<Block>,
}

/// A scan in memory. A frame is a share of a block: taking it copies nothing.
pub(crate) struct Scan {
    pub(crate) extent: Extent,
    bands: Vec<Band>,
}

impl Scan {
    /// Makes the frames.
    ///
    /// # Errors
    /// If there is no such memory.
    pub(crate) fn new(extent: Extent, allocator: &dyn Allocator) -> Outcome<Self> {
        let format = extent.frame_format();
        let distinct = extent.distinct();
        let pool = Pool::new("scan", allocator, extent.bands * (distinct + 2), format.bytes())?;
        let sinograms = extent.sinograms();
        let mut bands = Vec::with_capacity(extent.bands);
        for band in 0..extent.bands {
            let shows = [Shows::Dark, Shows::Flat].into_iter().chain((0..distinct).map(Shows::Projection));
            let leases: Result<Vec<_>, _> = shows.map(|shows| Ok((shows, pool.lease(format)?))).collect();
            let mut leases: Vec<(Shows, LeaseMut)> =
                leases.map_err(|error: beamstream_buffer::PoolError| error)?;
            let each = leases.len().div_ceil(threads());
            std::thread::scope(|scope| {
                for part in leases.chunks_mut(each) {
                    let sinograms = &sinograms;
                    scope.spawn(move || {
                        for (shows, lease) in part {
                            fill(&extent, band, *shows, sinograms, lease);
                        }
                    });
                }
            });
            let meta = BlockMeta::new(FrameId::new(0), Role::Projection);
            let mut blocks = leases.into_iter().map(|(_, lease)| lease.freeze(meta));
            let (Some(dark), Some(flat)) = (blocks.next(), blocks.next()) else { continue };
            bands.push(Band { dark, flat, projections: blocks.collect() });
        }
        Ok(Self { extent, bands })
    }

    /// A frame of a band: a dark, a flat, or the projection of this number.
    pub(crate) fn frame(&self, band: usize, role: Role, projection: u64) -> Block {
        let Band { dark, flat, projections } = &self.bands[band];
        match role {
            Role::Dark => dark.clone(),
            Role::Flat => flat.clone(),
            _ => projections[projection as usize % projections.len()].clone(),
        }
    }

    /// The projections that differ, of a band.
    pub(crate) fn projections(&self, band: usize) -> &[Block] {
        &self.bands[band].projections
    }
}

fn fill(extent: &Extent, band: usize, shows: Shows, sinograms: &[Vec<f32>], lease: &mut LeaseMut) {
    let columns = extent.columns;
    let beam: Vec<f32> = (0..columns).map(|column| beam_counts(column, columns)).collect();
    let Ok(pixels) = lease.elements_mut::<u16>() else { return };
    for (row, line) in extent.band(band).zip(pixels.chunks_exact_mut(columns)) {
        match shows {
            Shows::Dark => line.fill(DARK_COUNTS),
            Shows::Flat => {
                for (pixel, beam) in line.iter_mut().zip(&beam) {
                    *pixel = DARK_COUNTS + beam.round() as u16;
                }
            }
            Shows::Projection(at) => {
                let density = Extent::density(row);
                let integrals = &sinograms[row % HEIGHTS][at * columns..(at + 1) * columns];
                for (pixel, (beam, integral)) in line.iter_mut().zip(beam.iter().zip(integrals)) {
                    *pixel = DARK_COUNTS + (beam * (-density * integral).exp()).round() as u16;
                }
            }
        }
    }
}

/// An uneven beam.
fn beam_counts(column: usize, columns: usize) -> f32 {
    BEAM_COUNTS * (1.0 - 0.15 * (column as f32 / columns as f32 * 5.0).cos().powi(2))
}

/// The mean dark and flat of a band, as an average of frames gives them.
pub(crate) fn references(scan: &Scan, band: usize) -> Outcome<[Vec<f32>; 2]> {
    let image = |role| -> Outcome<Vec<f32>> {
        let frame = scan.frame(band, role, 0);
        Ok(frame.elements::<u16>()?.iter().map(|&counts| f32::from(counts)).collect())
    };
    Ok([image(Role::Dark)?, image(Role::Flat)?])
}

/// Line integrals `(row, column)` of the projections that differ, of the first `rows` rows, in host memory.
pub(crate) fn line_integrals(extent: &Extent, rows: usize) -> Outcome<Vec<Block>> {
    let format = Format::frame(ElementType::F32, rows, extent.columns);
    let pool = Pool::host("line integrals", extent.distinct(), format.bytes())?;
    let sinograms = extent.sinograms();
    let mut blocks = Vec::with_capacity(extent.distinct());
    for at in 0..extent.distinct() {
        let mut lease = pool.lease(format)?;
        let lines = lease.elements_mut::<f32>()?.chunks_exact_mut(extent.columns);
        for (row, line) in lines.enumerate() {
            let integrals = &sinograms[row % HEIGHTS][at * extent.columns..(at + 1) * extent.columns];
            for (pixel, integral) in line.iter_mut().zip(integrals) {
                *pixel = Extent::density(row) * integral;
            }
        }
        blocks.push(lease.freeze(BlockMeta::new(FrameId::new(at as u64), Role::Projection)));
    }
    Ok(blocks)
}
