//! The spectra of the slices of a row group, and how samples are added to them.

use std::ops::Range;

use rayon::prelude::*;

use super::window::{TAPS, Window};
use crate::rows::{RowGroup, with_lanes};
use crate::simd::{Cell, Kernel, Lanes, WIDTH, run};

/// Columns of the grid that lie together in memory. A panel is walked along v, so that the points which a ray
/// meets are near each other; and it belongs to one thread at a time.
pub(super) const PANEL: usize = 32;
/// Points past half of the grid that a sample may reach.
const MARGIN: usize = TAPS / 2;

/// Extent of a grid: frequencies `-reach ..= reach` along u and v, in units of `1 / len`.
#[derive(Debug, Clone, Copy)]
pub(super) struct GridShape {
    /// Length of the transform. Frequencies that differ by it are the same.
    pub(super) len: usize,
    /// The highest frequency that is stored.
    pub(super) reach: usize,
}

impl GridShape {
    pub(super) const fn new(len: usize) -> Self {
        Self { len, reach: len / 2 + MARGIN }
    }

    /// Points along each axis.
    pub(super) const fn points(self) -> usize {
        2 * self.reach + 1
    }

    pub(super) const fn panels(self) -> usize {
        self.points().div_ceil(PANEL)
    }

    /// Floats of one panel, `(v, u within the panel, part and lane)`.
    pub(super) const fn panel_floats(self, lanes: usize) -> usize {
        self.points() * PANEL * 2 * lanes
    }

    /// Cells that hold all panels.
    pub(super) const fn cells(self, lanes: usize) -> usize {
        (self.panels() * self.panel_floats(lanes)).div_ceil(2 * WIDTH)
    }

    /// Where the frequencies with index `at` of a transform are stored: one place, or two near the highest frequency.
    pub(super) fn places(self, at: usize) -> (usize, Option<usize>) {
        let first = if at <= self.len / 2 { self.reach + at } else { self.reach + at - self.len };
        let second = if first > self.reach { first.checked_sub(self.len) } else { Some(first + self.len) };
        (first, second.filter(|place| *place < self.points()))
    }
}

/// The spectra of a group's slices.
pub(super) struct Grid {
    pub(super) group: RowGroup,
    pub(super) shape: GridShape,
    cells: Vec<Cell>,
}

/// Where the samples of one projection lie: frequency index `k` from the middle is at `k * (u, v)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ray {
    /// Grid points along u between two samples, times 2^32.
    u: i64,
    /// Along v.
    v: i64,
}

/// One, in the fixed-point numbers of positions.
const ONE: i64 = 1 << 32;

impl Ray {
    /// The ray at an angle whose samples are `spacing` grid points apart.
    pub(super) fn new(angle_rad: f64, spacing: f64) -> Self {
        let (sin, cos) = angle_rad.sin_cos();
        let fixed = |value: f64| (value * spacing * ONE as f64).round() as i64;
        Self { u: fixed(cos), v: fixed(sin) }
    }

    /// The frequency indices from `-half` to `half` whose windows may touch the columns `first..first + PANEL`.
    fn samples_over(self, first: i64, half: i64) -> Range<i64> {
        let (low, high) = ((first - 3) * ONE, (first + PANEL as i64 + 2) * ONE);
        match self.u {
            0 if low <= 0 && high >= 0 => -half..half + 1,
            0 => 0..0,
            u => {
                let (a, b) = (low / u, high / u);
                (a.min(b) - 1).max(-half)..(a.max(b) + 2).min(half + 1)
            }
        }
    }
}

impl Grid {
    pub(super) fn new(group: RowGroup, shape: GridShape) -> Self {
        let cells = bytemuck::zeroed_vec(shape.cells(group.lanes));
        Self { group, shape, cells }
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(Cell::default());
    }

    /// The values of one panel.
    pub(super) fn panel(&self, panel: usize) -> &[f32] {
        let len = self.shape.panel_floats(self.group.lanes);
        &bytemuck::cast_slice::<Cell, f32>(&self.cells)[panel * len..][..len]
    }

    /// Adds spectra `(ray, frequency, part and lane)`.
    ///
    /// Each grid point belongs to one panel, which takes the samples in the order of the rays: so the sum does
    /// not depend on the threads.
    pub(super) fn add(&mut self, rays: &[Ray], spectra: &[f32], frequencies: usize, window: &Window) {
        let (shape, lanes) = (self.shape, self.group.lanes);
        let floats: &mut [f32] = bytemuck::cast_slice_mut(&mut self.cells);
        floats.par_chunks_exact_mut(shape.panel_floats(lanes)).enumerate().for_each(|(panel, points)| {
            let job = PanelJob { shape, panel, points, rays, spectra, frequencies, window };
            with_lanes!(lanes, L => run(PanelKernel::<L>(job)));
        });
    }
}

/// The samples of a batch that touch one panel.
struct PanelJob<'a> {
    shape: GridShape,
    panel: usize,
    points: &'a mut [f32],
    rays: &'a [Ray],
    spectra: &'a [f32],
    frequencies: usize,
    window: &'a Window,
}

struct PanelKernel<'a, const L: usize>(PanelJob<'a>);

impl<const L: usize> Kernel for PanelKernel<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let PanelJob { shape, panel, points, rays, spectra, frequencies, window } = self.0;
        let reach = shape.reach as i64;
        let first_column = (panel * PANEL) as i64 - reach;
        let half = (frequencies / 2) as i64;
        for (ray, spectrum) in rays.iter().zip(spectra.chunks_exact(frequencies * 2 * L)) {
            for k in ray.samples_over(first_column, half) {
                // A sample that falls on a grid point spreads to one side or the other, by the sign of its frequency:
                // then k and -k mirror each other, and pairs of rows stay apart.
                let side = i64::from(k < 0);
                let (u, v) = (k * ray.u - side, k * ray.v - side);
                let column = (u >> 32) - 1 - first_column;
                let row = (v >> 32) - 1 + reach;
                if column <= -(TAPS as i64) || column >= PANEL as i64 {
                    continue;
                }
                let sample = &spectrum[(k + half) as usize * 2 * L..][..2 * L];
                let mut along_u = window.weights(u as u32);
                let mut along_v = window.weights(v as u32);
                if k == 0 {
                    // The one in the middle is its own mirror: without the tap at the very end of the window it
                    // spreads evenly.
                    (along_u[TAPS - 1], along_v[TAPS - 1]) = (0.0, 0.0);
                }
                let rows = &mut points[row as usize * PANEL * 2 * L..][..TAPS * PANEL * 2 * L];
                if column >= 0 && column <= (PANEL - TAPS) as i64 {
                    spread::<V, L>(rows, column as usize, sample, along_u, along_v);
                } else {
                    spread_cut::<L>(rows, column, sample, along_u, along_v);
                }
            }
        }
    }
}

/// Adds a sample to 4 x 4 grid points inside of a panel.
///
/// Four points in a line are `L` vectors: two, one, half or a quarter of one for each.
#[inline(always)]
fn spread<V: Lanes, const L: usize>(
    rows: &mut [f32],
    column: usize,
    sample: &[f32],
    along_u: [f32; TAPS],
    along_v: [f32; TAPS],
) {
    let mut weighted = [V::splat(0.0); WIDTH];
    if L >= WIDTH / 2 {
        let parts = sample.as_chunks::<WIDTH>().0;
        for at in 0..L {
            weighted[at] = V::load(&parts[at % parts.len()]).mul(V::splat(along_u[at * TAPS / L]));
        }
    } else {
        let mut flat = [0.0; TAPS * WIDTH];
        for tap in 0..TAPS {
            for part in 0..2 * L {
                flat[tap * 2 * L + part] = along_u[tap] * sample[part];
            }
        }
        let vectors = flat.as_chunks::<WIDTH>().0;
        for at in 0..L {
            weighted[at] = V::load(&vectors[at]);
        }
    }
    for row in 0..TAPS {
        let weight = V::splat(along_v[row]);
        let first = (row * PANEL + column) * 2 * L;
        let points = rows[first..first + TAPS * 2 * L].as_chunks_mut::<WIDTH>().0;
        for at in 0..L {
            let point = &mut points[at];
            weighted[at].mul_add(weight, V::load(point)).store(point);
        }
    }
}

/// Adds a sample to those of its 4 x 4 grid points that lie in a panel, whose first may lie before it.
#[inline(always)]
fn spread_cut<const L: usize>(
    rows: &mut [f32],
    column: i64,
    sample: &[f32],
    along_u: [f32; TAPS],
    along_v: [f32; TAPS],
) {
    for tap in 0..TAPS {
        let column = column + tap as i64;
        if column < 0 || column >= PANEL as i64 {
            continue;
        }
        for row in 0..TAPS {
            let weight = along_v[row] * along_u[tap];
            let point = &mut rows[(row * PANEL + column as usize) * 2 * L..][..2 * L];
            for part in 0..2 * L {
                point[part] += weight * sample[part];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frequency_of_the_transform_has_its_places() {
        for len in [16, 18, 20, 30] {
            let shape = GridShape::new(len);
            let mut seen = vec![0; shape.points()];
            for at in 0..len {
                let (first, second) = shape.places(at);
                for place in [Some(first), second].into_iter().flatten() {
                    seen[place] += 1;
                    let frequency = place as i64 - shape.reach as i64;
                    assert_eq!(frequency.rem_euclid(len as i64), at as i64);
                }
            }
            assert!(seen.iter().all(|count| *count == 1), "{len}: {seen:?}");
        }
    }

    #[test]
    fn a_sample_adds_its_weight_once_whatever_the_panels() {
        // Along every ray, the sum of the grid is the sum of the weights of the samples.
        let (shape, half) = (GridShape::new(90), 70);
        let window = Window::new(&beamstream_ops::Gridding::new(2048));
        for angle in [0.0, 0.3, std::f64::consts::FRAC_PI_2, 2.2, 4.0, 5.9] {
            let ray = Ray::new(angle, 45.0 / 70.0);
            let mut grid = Grid::new(RowGroup { rows: 0..1, lanes: 1 }, shape);
            let spectra: Vec<f32> = (0..=2 * half).flat_map(|_| [1.0, 0.5]).collect();
            grid.add(&[ray], &spectra, 2 * half + 1, &window);
            let sums = (0..shape.panels()).fold([0.0_f64; 2], |mut sums, panel| {
                for point in grid.panel(panel).chunks(2) {
                    sums[0] += f64::from(point[0]);
                    sums[1] += f64::from(point[1]);
                }
                sums
            });
            let expected: f64 = (-(half as i64)..=half as i64)
                .map(|k| {
                    let taps = if k == 0 { TAPS - 1 } else { TAPS };
                    let sum = |step: i64| {
                        let weights = window.weights((k * step) as u32);
                        weights[..taps].iter().map(|w| f64::from(*w)).sum::<f64>()
                    };
                    sum(ray.u) * sum(ray.v)
                })
                .sum();
            assert!((sums[0] / expected - 1.0).abs() < 1e-5, "{angle}: {} {expected}", sums[0]);
            assert!((sums[1] / expected - 0.5).abs() < 1e-5);
        }
    }
}
