//! Reconstruction by gridding in Fourier space.
//!
//! By the projection-slice theorem the spectrum of a projection is the spectrum of the slice along a ray. Each
//! filtered sample of it is spread over 4 x 4 points of a regular grid by a Kaiser-Bessel window; an inverse
//! transform, divided by the transform of the window, is the slice. The grid is a sum over projections, so it
//! is kept while they come.
//!
//! # Source
//! J. D. O'Sullivan, IEEE Trans. Med. Imaging 4 (1985) 200 (gridding for tomography); window and oversampling as
//! in [`window`].

mod grid;
mod invert;
mod window;

use std::ops::Range;

use beamstream_ops::{Accumulate, Gridding, Memory, Projection, ReconError, ReconSpec};
use rayon::prelude::*;

use crate::checks::{check_group, check_projections, check_room, check_row};
use crate::fft::good_length;
use crate::filter::{RowFilter, RowScratch};
use crate::pool::Workers;
use crate::rows::RowGroup;
use crate::simd::Cell;
use grid::{Grid, GridShape, Ray};
use invert::{Inverse, LaneChoice};
use window::Window;

/// Sums of a scan's projections in Fourier space.
///
/// # Memory
/// About `2 * (1.25 n)^2 * 4` bytes a row of `n` columns, and room for a batch of spectra and one group of slices:
/// see [`memory`](Self::memory).
pub struct FourierAccumulator {
    spec: ReconSpec,
    filter: RowFilter,
    window: Window,
    inverse: Inverse,
    groups: Vec<RowGroup>,
    /// One a group.
    grids: Vec<Grid>,
    workers: Workers<RowScratch>,
    /// Of one batch, `(projection, frequency)`.
    multipliers: Vec<[f32; 2]>,
    /// Of one batch and one group, `(projection, frequency, part and lane)`.
    spectra: Vec<Cell>,
    /// Between the two steps of the inverse transform of one group.
    middle: Vec<Cell>,
}

impl FourierAccumulator {
    /// Makes room for the sums and starts `threads` threads.
    ///
    /// # Errors
    /// If the specification is impossible or the threads cannot be started.
    pub fn new(spec: &ReconSpec, threads: usize) -> Result<Self, ReconError> {
        spec.validate()?;
        let gridding = Gridding::new(spec.size());
        let shape = GridShape::new(gridding.points());
        let window = Window::new(&gridding);
        let filter = RowFilter::new(spec);
        let inverse = Inverse::new(spec.size(), &gridding);
        let workers = Workers::new(threads, || RowScratch::new(&[&filter.fft, &inverse.fft]))?;
        let groups = RowGroup::split(spec.rows);
        let grids = groups.iter().map(|group| Grid::new(group.clone(), shape)).collect();
        Ok(Self {
            spec: spec.clone(),
            filter,
            window,
            inverse,
            groups,
            grids,
            workers,
            multipliers: Vec::new(),
            spectra: Vec::new(),
            middle: Vec::new(),
        })
    }

    /// The memory that a reconstruction will hold.
    pub fn memory(spec: &ReconSpec, threads: usize) -> Memory {
        let shape = GridShape::new(Gridding::new(spec.size()).points());
        let padded = good_length(2 * spec.columns);
        let cell = size_of::<Cell>();
        let groups = RowGroup::split(spec.rows);
        let lanes = groups.iter().map(|group| group.lanes).max().unwrap_or(1);
        let middle = invert::middle_cells(spec.size(), shape, lanes) * cell;
        let spectra = spec.batch * (padded + 1) * 2 * lanes * size_of::<f32>();
        let multipliers = spec.batch * (padded / 2 + 1) * size_of::<[f32; 2]>();
        let scratch = threads.max(1) * RowScratch::bytes(padded.max(shape.len));
        Memory {
            sums_bytes: groups.iter().map(|group| shape.cells(group.lanes) * cell).sum(),
            work_bytes: middle + spectra + multipliers + scratch,
        }
    }

    fn add_batch(&mut self, batch: &[Projection<'_>]) {
        let Self { filter, workers, grids, window, multipliers, spectra, .. } = self;
        // In the order of their angles, neighbours touch the same part of the grid.
        let mut batch = batch.to_vec();
        batch.sort_by(|a, b| folded(a.angle_rad).total_cmp(&folded(b.angle_rad)));

        let half_spectrum = filter.fft.len() / 2 + 1;
        multipliers.resize(batch.len() * half_spectrum, [0.0; 2]);
        // The middle pixel of a slice with an even edge is half a pixel off the axis.
        let middle_px = if self.spec.size().is_multiple_of(2) { 0.5 } else { 0.0 };
        let axis_px = filter.axis_px();
        workers.install(|| {
            multipliers.par_chunks_mut(half_spectrum).zip(&batch).for_each(|(out, projection)| {
                let (sin, cos) = projection.angle_rad.sin_cos();
                filter.multipliers(projection.weight, axis_px + middle_px * (sin + cos), out);
            });
        });

        let spacing = grids.first().map_or(1.0, |grid| grid.shape.len as f64 / filter.fft.len() as f64);
        let rays: Vec<Ray> = batch.iter().map(|p| Ray::new(p.angle_rad, spacing)).collect();
        workers.install(|| {
            for grid in grids {
                let floats = batch.len() * filter.frequencies() * grid.group.floats();
                let cells = floats.div_ceil(size_of::<Cell>() / size_of::<f32>());
                if spectra.len() < cells {
                    spectra.resize(cells, Cell::default());
                }
                let spectra: &mut [f32] = &mut bytemuck::cast_slice_mut(spectra)[..floats];
                filter.spectra(&batch, multipliers, &grid.group, workers, spectra);
                grid.add(&rays, spectra, filter.frequencies(), window);
            }
        });
    }
}

/// An angle modulo half a turn, so that opposite projections are neighbours.
fn folded(angle_rad: f64) -> f64 {
    angle_rad.rem_euclid(std::f64::consts::PI)
}

impl Accumulate for FourierAccumulator {
    fn accumulate(&mut self, projections: &[Projection<'_>]) -> Result<(), ReconError> {
        check_projections(&self.spec, projections)?;
        for batch in projections.chunks(self.spec.batch) {
            self.add_batch(batch);
        }
        Ok(())
    }

    fn slice(&self, row: usize, out: &mut [f32]) -> Result<(), ReconError> {
        check_row(&self.spec, row)?;
        check_room(&self.spec, out)?;
        let Some(grid) = self.grids.iter().find(|grid| grid.group.rows.contains(&row)) else {
            return Err(ReconError::Row { rows: self.spec.rows, found: row });
        };
        let within = row - grid.group.rows.start;
        let (lane, part) = (within % grid.group.lanes, within / grid.group.lanes);
        let lanes = LaneChoice { first: lane, count: 1 };
        let mut middle =
            vec![Cell::default(); invert::middle_cells(self.spec.size(), grid.shape, lanes.count)];
        let buffers = if part == 0 { vec![Some(out), None] } else { vec![None, Some(out)] };
        self.workers.install(|| {
            self.inverse.slices(grid, lanes, &self.workers, &mut middle, buffers);
        });
        Ok(())
    }

    fn row_groups(&self) -> Vec<Range<usize>> {
        self.grids.iter().map(|grid| grid.group.rows.clone()).collect()
    }

    fn slices(&mut self, group: usize, out: &mut [&mut [f32]]) -> Result<(), ReconError> {
        check_group(&self.spec, &self.groups, group, out)?;
        let grid = &self.grids[group];
        let lanes = LaneChoice { first: 0, count: grid.group.lanes };
        let cells = invert::middle_cells(self.spec.size(), grid.shape, lanes.count);
        if self.middle.len() < cells {
            self.middle.resize(cells, Cell::default());
        }
        let mut buffers: Vec<Option<&mut [f32]>> = out.iter_mut().map(|slice| Some(&mut **slice)).collect();
        buffers.resize_with(grid.group.floats(), || None);
        let Self { inverse, workers, middle, .. } = self;
        workers.install(|| inverse.slices(grid, lanes, workers, middle, buffers));
        Ok(())
    }

    fn reset(&mut self) {
        let Self { workers, grids, .. } = self;
        workers.install(|| grids.par_iter_mut().for_each(Grid::clear));
    }
}
