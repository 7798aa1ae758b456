//! Filtered backprojection with linear interpolation.
//!
//! The rows of a group share all positions and weights, so the filtered projections and the slices are kept with
//! the rows innermost: one position serves 16 voxels.
//!
//! # Source
//! A. C. Kak, M. Slaney, "Principles of Computerized Tomographic Imaging" (1988), section 3.3.

use std::f64::consts::FRAC_1_SQRT_2;
use std::ops::Range;

use beamstream_ops::{Accumulate, Memory, Projection, ReconError, ReconSpec};
use rayon::prelude::*;

use crate::checks::{check_group, check_projections, check_room, check_row};
use crate::fft::good_length;
use crate::filter::{RowFilter, RowScratch};
use crate::filtered::{Line, cells_for, floats_of, unfilter};
use crate::pool::Workers;
use crate::rows::{RowGroup, with_lanes};
use crate::simd::{Cell, Kernel, Lanes, WIDTH, run};

/// Rows of a slice that one thread takes at a time.
const BLOCK_ROWS: usize = 32;
/// Columns of a slice for which the filtered projections stay in the cache.
const BLOCK_COLUMNS: usize = 64;
/// Projections that are added to a pixel while it is in registers.
const BLOCK_PROJECTIONS: usize = 16;
/// Pixels that are in registers together.
const PIXELS: usize = 4;
/// One, in the fixed-point numbers of positions.
const ONE: f64 = (1_i64 << 32) as f64;

/// Sums of a scan's backprojections.
///
/// # Memory
/// `n^2 * 4` bytes a row of `n` columns, and room for a batch of filtered projections: see
/// [`memory`](Self::memory). Detector columns outside of the first and last contribute 0.
pub struct FbpAccumulator {
    spec: ReconSpec,
    filter: RowFilter,
    groups: Vec<RowGroup>,
    /// One a group, `(y, x, row)`.
    volumes: Vec<Vec<Cell>>,
    workers: Workers<RowScratch>,
    multipliers: Vec<[f32; 2]>,
    /// Of one batch and one group, `(projection, frequency, row)`.
    spectra: Vec<Cell>,
    /// Of one batch and one group, `(projection, place, row)`.
    filtered: Vec<Cell>,
    line: Line,
}

/// All places that a slice can ask for.
fn line_for(size: usize, axis_px: f64) -> Line {
    // Beyond the corners: pixels past the end of a line, and places that are loaded along.
    let reach = (size as f64 * FRAC_1_SQRT_2).ceil() as i64 + 1 + PIXELS as i64 + WIDTH as i64;
    Line { first_column: axis_px.floor() as i64 - reach, places: 2 * reach as usize + 2 }
}

impl FbpAccumulator {
    /// Makes room for the sums and starts `threads` threads.
    ///
    /// # Errors
    /// If the specification is impossible or the threads cannot be started.
    pub fn new(spec: &ReconSpec, threads: usize) -> Result<Self, ReconError> {
        spec.validate()?;
        let filter = RowFilter::new(spec);
        let workers = Workers::new(threads, || RowScratch::new(&[&filter.fft]))?;
        let groups = RowGroup::split(spec.rows);
        let volume = |group: &RowGroup| bytemuck::zeroed_vec(cells_for(spec.slice_len() * group.floats()));
        Ok(Self {
            spec: spec.clone(),
            volumes: groups.iter().map(volume).collect(),
            line: line_for(spec.size(), filter.axis_px()),
            filter,
            groups,
            workers,
            multipliers: Vec::new(),
            spectra: Vec::new(),
            filtered: Vec::new(),
        })
    }

    /// The memory that a reconstruction will hold.
    pub fn memory(spec: &ReconSpec, threads: usize) -> Memory {
        let padded = good_length(2 * spec.columns);
        let groups = RowGroup::split(spec.rows);
        let floats = groups.iter().map(RowGroup::floats).max().unwrap_or(1);
        let row_bytes = floats * size_of::<f32>();
        let places = line_for(spec.size(), 0.0).places;
        let batch =
            spec.batch * ((padded + 1 + places) * row_bytes + (padded / 2 + 1) * size_of::<[f32; 2]>());
        let volume = |group: &RowGroup| cells_for(spec.slice_len() * group.floats()) * size_of::<Cell>();
        Memory {
            sums_bytes: groups.iter().map(volume).sum(),
            work_bytes: batch + threads.max(1) * RowScratch::bytes(padded),
        }
    }

    fn add_batch(&mut self, batch: &[Projection<'_>]) {
        let Self { spec, filter, groups, volumes, workers, multipliers, spectra, filtered, line } = self;
        let half_spectrum = filter.fft.len() / 2 + 1;
        multipliers.resize(batch.len() * half_spectrum, [0.0; 2]);
        for (out, projection) in multipliers.chunks_mut(half_spectrum).zip(batch) {
            filter.multipliers(projection.weight, 0.0, out);
        }
        let rays: Vec<Ray> =
            batch.iter().map(|p| Ray::new(p.angle_rad, spec.size(), filter.axis_px(), *line)).collect();
        workers.install(|| {
            for (group, volume) in groups.iter().zip(volumes) {
                let spectra = floats_of(spectra, batch.len() * filter.frequencies() * group.floats());
                filter.spectra(batch, multipliers, group, workers, spectra);
                let line_floats = line.places * group.floats();
                let filtered = floats_of(filtered, batch.len() * line_floats);
                unfilter(filter, spectra, group, workers, *line, filtered);
                let block = BLOCK_ROWS * spec.size() * group.floats();
                let floats =
                    &mut bytemuck::cast_slice_mut::<Cell, f32>(volume)[..spec.slice_len() * group.floats()];
                floats.par_chunks_mut(block).enumerate().for_each(|(index, rows)| {
                    let job = BlockJob {
                        size: spec.size(),
                        first_row: index * BLOCK_ROWS,
                        rows,
                        rays: &rays,
                        filtered,
                        line_floats,
                    };
                    with_lanes!(group.lanes, L => run(BlockKernel::<L>(job)));
                });
            }
        });
    }
}

/// Where the pixels of a slice lie on one filtered projection, in places times 2^32.
#[derive(Debug, Clone, Copy)]
struct Ray {
    /// The pixel in the first row and column.
    origin: i64,
    along_x: i64,
    along_y: i64,
}

impl Ray {
    fn new(angle_rad: f64, size: usize, axis_px: f64, line: Line) -> Self {
        let (sin, cos) = angle_rad.sin_cos();
        let fixed = |value: f64| (value * ONE).round() as i64;
        let middle = (size - 1) as f64 / 2.0;
        let axis_place = axis_px - line.first_column as f64;
        Self { origin: fixed(axis_place - middle * (cos + sin)), along_x: fixed(cos), along_y: fixed(sin) }
    }
}

/// Some rows of a group's slices, and a batch to add to them.
struct BlockJob<'a> {
    size: usize,
    first_row: usize,
    /// `(y, x, row)`.
    rows: &'a mut [f32],
    rays: &'a [Ray],
    filtered: &'a [f32],
    line_floats: usize,
}

struct BlockKernel<'a, const L: usize>(BlockJob<'a>);

impl<const L: usize> Kernel for BlockKernel<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let BlockJob { size, first_row, rows, rays, filtered, line_floats } = self.0;
        for start in (0..size).step_by(BLOCK_COLUMNS) {
            let end = size.min(start + BLOCK_COLUMNS);
            let blocks = rays.chunks(BLOCK_PROJECTIONS).zip(filtered.chunks(BLOCK_PROJECTIONS * line_floats));
            for (rays, lines) in blocks {
                for (y, row) in rows.chunks_exact_mut(size * 2 * L).enumerate() {
                    let y = (first_row + y) as i64;
                    let mut x = start;
                    while x < end {
                        let pixels = &mut row[x * 2 * L..end.min(x + PIXELS) * 2 * L];
                        if L >= WIDTH / 2 {
                            add_wide::<V, L>(pixels, x as i64, y, rays, lines, line_floats);
                        } else {
                            add_narrow::<V, L>(pixels, x as i64, y, rays, lines, line_floats);
                        }
                        x += PIXELS;
                    }
                }
            }
        }
    }
}

/// The place on a projection, and how far it is to the next.
#[inline(always)]
fn split(position: i64) -> (usize, f32) {
    let fraction = (position as u32 >> 8) as i32 as f32 / (1_u32 << 24) as f32;
    ((position >> 32) as usize, fraction)
}

/// Adds projections to a few neighbouring pixels, whose rows fill one or two vectors.
#[inline(always)]
fn add_wide<V: Lanes, const L: usize>(
    pixels: &mut [f32],
    x: i64,
    y: i64,
    rays: &[Ray],
    lines: &[f32],
    line_floats: usize,
) {
    let mut sums = [[V::splat(0.0); 2]; PIXELS];
    for at in 0..rays.len() {
        let (ray, line) = (rays[at], &lines[at * line_floats..][..line_floats]);
        let mut position = ray.origin + x * ray.along_x + y * ray.along_y;
        for pixel in 0..PIXELS {
            let (place, fraction) = split(position);
            position += ray.along_x;
            let (here, next) = (V::splat(1.0 - fraction), V::splat(fraction));
            let sum = &mut sums[pixel];
            match line[place * 2 * L..][..4 * L].as_chunks::<WIDTH>().0 {
                [re, im, next_re, next_im] => {
                    sum[0] = V::load(re).mul_add(here, V::load(next_re).mul_add(next, sum[0]));
                    sum[1] = V::load(im).mul_add(here, V::load(next_im).mul_add(next, sum[1]));
                }
                [both, next_both] => {
                    sum[0] = V::load(both).mul_add(here, V::load(next_both).mul_add(next, sum[0]));
                }
                _ => {}
            }
        }
    }
    for (pixel, sum) in pixels.chunks_exact_mut(2 * L).zip(sums) {
        for (part, value) in pixel.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
            sum[part].add(V::load(value)).store(value);
        }
    }
}

/// The same for at most four rows: both places of an interpolation are in one vector.
#[inline(always)]
fn add_narrow<V: Lanes, const L: usize>(
    pixels: &mut [f32],
    x: i64,
    y: i64,
    rays: &[Ray],
    lines: &[f32],
    line_floats: usize,
) {
    // Weights are `1 - fraction` for the rows at the place, `fraction` for those at the next; the rest is not used.
    let (mut start, mut slope) = ([0.0; WIDTH], [0.0; WIDTH]);
    for row in 0..2 * L {
        (start[row], slope[row], slope[2 * L + row]) = (1.0, -1.0, 1.0);
    }
    let (start, slope) = (V::load(&start), V::load(&slope));
    let mut sums = [V::splat(0.0); PIXELS];
    for at in 0..rays.len() {
        let (ray, line) = (rays[at], &lines[at * line_floats..][..line_floats]);
        let mut position = ray.origin + x * ray.along_x + y * ray.along_y;
        for pixel in 0..PIXELS {
            let (place, fraction) = split(position);
            position += ray.along_x;
            if let Some((places, _)) = line[place * 2 * L..].split_first_chunk::<WIDTH>() {
                let weights = slope.mul_add(V::splat(fraction), start);
                sums[pixel] = V::load(places).mul_add(weights, sums[pixel]);
            }
        }
    }
    for (pixel, sum) in pixels.chunks_exact_mut(2 * L).zip(sums) {
        let mut both = [0.0; WIDTH];
        sum.store(&mut both);
        for row in 0..2 * L {
            pixel[row] += both[row] + both[2 * L + row];
        }
    }
}

/// Copies one row's slice out of its group's.
fn pick(volume: &[Cell], floats: usize, within: usize, out: &mut [f32]) {
    let voxels = bytemuck::cast_slice::<Cell, f32>(volume).chunks_exact(floats);
    for (to, voxel) in out.iter_mut().zip(voxels) {
        *to = voxel[within];
    }
}

impl Accumulate for FbpAccumulator {
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
        for (group, volume) in
            self.groups.iter().zip(&self.volumes).filter(|(group, _)| group.rows.contains(&row))
        {
            pick(volume, group.floats(), row - group.rows.start, out);
        }
        Ok(())
    }

    fn row_groups(&self) -> Vec<Range<usize>> {
        self.groups.iter().map(|group| group.rows.clone()).collect()
    }

    fn slices(&mut self, group: usize, out: &mut [&mut [f32]]) -> Result<(), ReconError> {
        check_group(&self.spec, &self.groups, group, out)?;
        let (volume, floats, size) = (&self.volumes[group], self.groups[group].floats(), self.spec.size());
        self.workers.install(|| {
            // By blocks of voxels, so that what is read stays in the cache for all rows.
            let mut parts: Vec<_> = out.iter_mut().map(|slice| slice.chunks_mut(size)).collect();
            let lines: Vec<Vec<&mut [f32]>> =
                (0..size).map(|_| parts.iter_mut().filter_map(Iterator::next).collect()).collect();
            let voxels: &[f32] = bytemuck::cast_slice(volume);
            lines.into_par_iter().zip(voxels.par_chunks(size * floats)).for_each(|(lines, voxels)| {
                for (within, line) in lines.into_iter().enumerate() {
                    for (to, voxel) in line.iter_mut().zip(voxels.chunks_exact(floats)) {
                        *to = voxel[within];
                    }
                }
            });
        });
        Ok(())
    }

    fn reset(&mut self) {
        let Self { workers, volumes, .. } = self;
        workers.install(|| {
            volumes.par_iter_mut().for_each(|volume| volume.fill(Cell::default()));
        });
    }
}
