//! From the spectra of slices to the slices: an inverse transform along v, then along u.

use rayon::prelude::*;

use super::grid::{Grid, GridShape, PANEL};
use super::window::Window;
use crate::fft::LaneFft;
use crate::filter::RowScratch;
use crate::pool::Workers;
use crate::simd::{Cell, Complex, Kernel, Lanes, WIDTH, run};

/// What turns a grid into slices of `size` x `size`.
pub(super) struct Inverse {
    size: usize,
    pub(super) fft: LaneFft,
    /// Correction of the window for each pixel along an axis.
    correction: Vec<f32>,
}

/// Which lanes of a grid are wanted: `count` (8, 4, 2 or 1) from `first` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneChoice {
    pub(super) first: usize,
    pub(super) count: usize,
}

impl LaneChoice {
    /// Columns or rows that fill a vector together.
    const fn together(self) -> usize {
        WIDTH / self.count
    }
}

impl Inverse {
    pub(super) fn new(size: usize, shape: GridShape, window: &Window) -> Self {
        let correction = |pixel: usize| {
            let x = pixel as f64 - (size / 2) as f64;
            window.correction(x, shape.len) as f32
        };
        Self { size, fft: LaneFft::new(shape.len), correction: (0..size).map(correction).collect() }
    }

    /// Cells of memory that the transform of `count` lanes needs between its two steps.
    pub(super) fn middle_cells(&self, shape: GridShape, count: usize) -> usize {
        shape.points().div_ceil(WIDTH / count) * self.size
    }

    /// Pixel along an axis at an index of the transform.
    #[inline(always)]
    fn pixel(&self, at: usize) -> Option<usize> {
        let len = self.fft.len();
        let pixel = at + self.size / 2;
        let pixel = if pixel >= len { pixel - len } else { pixel };
        (pixel < self.size).then_some(pixel)
    }

    /// Writes slices: one buffer for the real parts of each lane, then one for the imaginary parts of each; `None`
    /// where nothing is wanted.
    pub(super) fn slices(
        &self,
        grid: &Grid,
        lanes: LaneChoice,
        workers: &Workers<RowScratch>,
        middle: &mut [Cell],
        out: Vec<Option<&mut [f32]>>,
    ) {
        let middle = &mut middle[..self.middle_cells(grid.shape, lanes.count)];
        middle.par_chunks_exact_mut(self.size).enumerate().for_each(|(octet, lines)| {
            workers.with_scratch(|scratch| {
                run(AlongV { inverse: self, grid, lanes, first_column: octet * lanes.together(), scratch, lines });
            });
        });
        let middle = &*middle;
        self.lines_of(out, lanes.together()).into_par_iter().enumerate().for_each(|(block, lines)| {
            workers.with_scratch(|scratch| {
                let first_row = block * lanes.together();
                run(AlongU { inverse: self, shape: grid.shape, lanes, first_row, middle, scratch, lines });
            });
        });
    }

    /// The lines of all buffers, grouped by blocks of `rows` rows: `(block, buffer)`, each a few whole lines.
    fn lines_of<'a>(&self, out: Vec<Option<&'a mut [f32]>>, rows: usize) -> Vec<Vec<Option<&'a mut [f32]>>> {
        let blocks = self.size.div_ceil(rows);
        let mut lines: Vec<Vec<Option<&mut [f32]>>> = (0..blocks).map(|_| Vec::with_capacity(out.len())).collect();
        for buffer in out {
            let mut parts = buffer.map(|buffer| buffer.chunks_mut(rows * self.size));
            for block in &mut lines {
                block.push(parts.as_mut().and_then(Iterator::next));
            }
        }
        lines
    }
}

/// The transform along v of as many columns as fill a vector.
struct AlongV<'a> {
    inverse: &'a Inverse,
    grid: &'a Grid,
    lanes: LaneChoice,
    first_column: usize,
    scratch: &'a mut RowScratch,
    /// `(y)`.
    lines: &'a mut [Cell],
}

impl Kernel for AlongV<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { inverse, grid, lanes, first_column, scratch, lines } = self;
        let floats = grid.group.floats();
        let panel = grid.panel(first_column / PANEL);
        let inside = first_column % PANEL;
        let whole = lanes.count == WIDTH;
        let offset = |lane: usize| (lane / lanes.count) * floats + lanes.first + lane % lanes.count;
        let offsets: [usize; WIDTH] = std::array::from_fn(offset);
        let at = |row: usize| -> Complex<V> {
            let points = &panel[(row * PANEL + inside) * floats..][..lanes.together() * floats];
            if whole && let [re, im] = points.as_chunks::<WIDTH>().0 {
                return Complex { re: V::load(re), im: V::load(im) };
            }
            let re = offsets.map(|offset| points[offset]);
            let im = offsets.map(|offset| points[offset + floats / 2]);
            Complex { re: V::load(&re), im: V::load(&im) }
        };
        let load = |index: usize, _: &Cell| match grid.shape.places(index) {
            (first, None) => at(first).swap(),
            (first, Some(second)) => at(first).add(at(second)).swap(),
        };
        inverse.fft.run::<V>(&mut scratch.work, &mut scratch.fft, load, |index, value| {
            if let Some(y) = inverse.pixel(index) {
                value.swap().store(&mut lines[y]);
            }
        });
    }
}

/// The transform along u of as many rows as fill a vector.
struct AlongU<'a> {
    inverse: &'a Inverse,
    shape: GridShape,
    lanes: LaneChoice,
    first_row: usize,
    /// `(columns that fill a vector, y)`.
    middle: &'a [Cell],
    scratch: &'a mut RowScratch,
    lines: Vec<Option<&'a mut [f32]>>,
}

impl Kernel for AlongU<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { inverse, shape, lanes, first_row, middle, scratch, lines } = self;
        let size = inverse.size;
        let together = lanes.together();
        let at = |column: usize| -> Complex<V> {
            if together == 1 {
                return Complex::load(&middle[column * size + first_row]);
            }
            let (octet, slot) = (column / together, column % together);
            let rows = &middle[octet * size..][..size];
            let mut cell = Cell::default();
            for row in 0..together.min(size - first_row) {
                let from = &rows[first_row + row];
                for lane in 0..lanes.count {
                    cell.re[row * lanes.count + lane] = from.re[slot * lanes.count + lane];
                    cell.im[row * lanes.count + lane] = from.im[slot * lanes.count + lane];
                }
            }
            Complex::load(&cell)
        };
        let load = |index: usize, _: &Cell| match shape.places(index) {
            (first, None) => at(first).swap(),
            (first, Some(second)) => at(first).add(at(second)).swap(),
        };
        let RowScratch { work, out, fft } = scratch;
        inverse.fft.run::<V>(work, fft, load, |index, value| {
            if let Some(x) = inverse.pixel(index) {
                value.swap().store(&mut out[x]);
            }
        });
        write_lines::<V>(inverse, lanes.count, first_row, &out[..size], lines);
    }
}

/// Corrects for the window and writes the lanes to their slices.
#[inline(always)]
fn write_lines<V: Lanes>(
    inverse: &Inverse,
    count: usize,
    first_row: usize,
    values: &[Cell],
    mut lines: Vec<Option<&mut [f32]>>,
) {
    let size = inverse.size;
    for (start, cells) in values.chunks(WIDTH).enumerate() {
        let start = start * WIDTH;
        let cell = |x: usize| cells.get(x).copied().unwrap_or_default();
        let correction: [f32; WIDTH] = std::array::from_fn(|x| inverse.correction.get(start + x).copied().unwrap_or(0.0));
        let correction = V::load(&correction);
        for part in 0..2 {
            let columns =
                V::transpose(std::array::from_fn(|x| if part == 0 { V::load(&cell(x).re) } else { V::load(&cell(x).im) }));
            for (lane, values) in columns.into_iter().enumerate() {
                let row = lane / count;
                let Some(Some(line)) = lines.get_mut(part * count + lane % count) else { continue };
                let Some(to) = line.get_mut(row * size + start..row * size + start + cells.len()) else { continue };
                let mut octet = [0.0; WIDTH];
                values.mul(correction).mul(V::splat(inverse.correction[first_row + row])).store(&mut octet);
                to.copy_from_slice(&octet[..to.len()]);
            }
        }
    }
}
