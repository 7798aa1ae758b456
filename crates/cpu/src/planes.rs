//! Slices in any orientation by direct backprojection of projections that are kept.

use beamstream_ops::{Memory, Method, Plane, Projection, ReconError, ReconSpec, RotationAxis};
use rayon::prelude::*;

use crate::checks::check_projections;
use crate::fft::good_length;
use crate::filter::{RowFilter, RowScratch};
use crate::filtered::{Line, cells_for, floats_of, unfilter};
use crate::pool::Workers;
use crate::rows::RowGroup;
use crate::simd::Cell;

/// Filtered projections of a scan.
///
/// # Memory
/// Four bytes a pixel, and room for the spectra of a batch: see [`memory`](Self::memory).
pub(crate) struct FilteredScan {
    spec: ReconSpec,
    filter: RowFilter,
    groups: Vec<RowGroup>,
    workers: Workers<RowScratch>,
    spectra: Vec<Cell>,
    /// `(cos, sin)` of each projection's angle.
    directions: Vec<[f64; 2]>,
    /// By projection `(row, column)`.
    filtered: Vec<Vec<f32>>,
}

impl FilteredScan {
    pub(crate) fn new(spec: &ReconSpec, threads: usize) -> Result<Self, ReconError> {
        // Interpolation is linear, as that of the direct method, so the filter makes up for it in the same way.
        let spec = ReconSpec { method: Method::Fbp, rotation_axis: RotationAxis::Same(0.0), ..spec.clone() };
        spec.validate()?;
        let filter = RowFilter::new(&spec);
        Ok(Self {
            workers: Workers::new(threads, || RowScratch::new(&[&filter.fft]))?,
            groups: RowGroup::split(spec.rows),
            spectra: Vec::new(),
            directions: Vec::new(),
            filtered: Vec::new(),
            filter,
            spec,
        })
    }

    pub(crate) fn memory(spec: &ReconSpec, projections: usize, threads: usize) -> Memory {
        let padded = good_length(2 * spec.columns);
        let lanes = RowGroup::split(spec.rows).iter().map(|group| group.lanes).max().unwrap_or(1);
        let of_one = (padded + 1 + spec.columns) * 2 * lanes * size_of::<f32>();
        Memory {
            sums_bytes: projections.saturating_mul(spec.rows * spec.columns * size_of::<f32>()),
            work_bytes: of_one + threads.max(1) * RowScratch::bytes(padded),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.filtered.len()
    }

    pub(crate) fn add(&mut self, projections: &[Projection<'_>]) -> Result<(), ReconError> {
        check_projections(&self.spec, projections)?;
        for projection in projections {
            let (sin, cos) = projection.angle_rad.sin_cos();
            self.directions.push([cos, sin]);
            let filtered = self.filter_one(projection);
            self.filtered.push(filtered);
        }
        Ok(())
    }

    fn filter_one(&mut self, projection: &Projection<'_>) -> Vec<f32> {
        let Self { spec, filter, groups, workers, spectra, .. } = self;
        let line = Line { first_column: 0, places: spec.columns };
        let mut multipliers = vec![[0.0; 2]; filter.fft.len() / 2 + 1];
        filter.multipliers(projection.weight, 0.0, &mut multipliers);
        let mut pixels = vec![0.0; spec.rows * spec.columns];
        let mut together = vec![
            Cell::default();
            groups.iter().map(|g| cells_for(spec.columns * g.floats())).max().unwrap_or(0)
        ];
        workers.install(|| {
            for group in &*groups {
                let spectra = floats_of(spectra, filter.frequencies() * group.floats());
                filter.spectra(&[*projection], &multipliers, group, workers, spectra);
                let lines = floats_of(&mut together, spec.columns * group.floats());
                unfilter(filter, spectra, group, workers, line, lines);
                for (lane, part) in (0..2).flat_map(|part| (0..group.lanes).map(move |lane| (lane, part))) {
                    let Some(row) = group.row(lane, part) else { continue };
                    let from = lines.iter().skip(part * group.lanes + lane).step_by(group.floats());
                    for (pixel, value) in pixels[row * spec.columns..].iter_mut().zip(from) {
                        *pixel = *value;
                    }
                }
            }
        });
        pixels
    }

    /// Writes a plane of `columns` columns.
    pub(crate) fn plane(
        &self,
        axis: &RotationAxis,
        plane: &Plane,
        scale: f64,
        columns: usize,
        out: &mut [f32],
    ) {
        self.workers.install(|| {
            out.par_chunks_mut(columns.max(1)).enumerate().for_each(|(i, line)| {
                for (j, voxel) in line.iter_mut().enumerate() {
                    *voxel = (scale * self.voxel(axis, plane.point(i, j))) as f32;
                }
            });
        });
    }

    /// The value at a point, interpolated between the two nearest rows.
    fn voxel(&self, axis: &RotationAxis, [z, y, x]: [f64; 3]) -> f64 {
        let (below, part) = (z.floor(), z - z.floor());
        let of_row = |row: f64, weight: f64| {
            let on_detector = weight > 0.0 && row >= 0.0 && row < self.spec.rows as f64;
            let axis_px = axis.of_row(row as usize).filter(|_| on_detector);
            axis_px.map_or(0.0, |axis_px| weight * self.backproject(row as usize, axis_px, y, x))
        };
        of_row(below, 1.0 - part) + of_row(below + 1.0, part)
    }

    fn backproject(&self, row: usize, axis_px: f64, y: f64, x: f64) -> f64 {
        let columns = self.spec.columns;
        let mut sum = 0.0;
        for ([cos, sin], filtered) in self.directions.iter().zip(&self.filtered) {
            let line = &filtered[row * columns..(row + 1) * columns];
            let column = axis_px + x * cos + y * sin;
            let (left, part) = (column.floor(), column - column.floor());
            let at = |column: f64| {
                let inside = column >= 0.0 && column < columns as f64;
                if inside { f64::from(line[column as usize]) } else { 0.0 }
            };
            sum += (1.0 - part) * at(left) + part * at(left + 1.0);
        }
        sum
    }

    pub(crate) fn reset(&mut self) {
        self.directions.clear();
        self.filtered.clear();
    }
}
