//! From the spectra of slices to the slices: an inverse transform along v, then along u.

use beamstream_ops::Gridding;
use rayon::prelude::*;

use super::grid::{Grid, GridShape, PANEL};
use crate::fft::{LaneFft, Sink, Source, TOGETHER};
use crate::filter::RowScratch;
use crate::pool::Workers;
use crate::simd::{Cell, Complex, Kernel, Lanes, WIDTH, load_transposed, run};

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

/// Cells between the two steps, for `count` lanes: `(panel, y, cell of the panel's columns)`.
pub(super) const fn middle_cells(size: usize, shape: GridShape, count: usize) -> usize {
    shape.panels() * size * panel_cells(count)
}

/// Cells that hold one row of a panel's columns.
const fn panel_cells(count: usize) -> usize {
    PANEL * count / WIDTH
}

impl Inverse {
    pub(super) fn new(size: usize, gridding: &Gridding) -> Self {
        let correction = |pixel: usize| {
            let x = pixel as f64 - (size / 2) as f64;
            gridding.correction(x) as f32
        };
        Self { size, fft: LaneFft::new(gridding.points()), correction: (0..size).map(correction).collect() }
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
        let panel_len = self.size * panel_cells(lanes.count);
        let middle = &mut middle[..middle_cells(self.size, grid.shape, lanes.count)];
        middle.par_chunks_exact_mut(panel_len).enumerate().for_each(|(panel, lines)| {
            workers.with_scratch(|scratch| {
                run(AlongV { inverse: self, grid, lanes, panel, scratch, lines });
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
        let mut lines: Vec<Vec<Option<&mut [f32]>>> =
            (0..blocks).map(|_| Vec::with_capacity(out.len())).collect();
        for buffer in out {
            let mut parts = buffer.map(|buffer| buffer.chunks_mut(rows * self.size));
            for block in &mut lines {
                block.push(parts.as_mut().and_then(Iterator::next));
            }
        }
        lines
    }
}

/// The transform along v of the columns of a panel.
struct AlongV<'a> {
    inverse: &'a Inverse,
    grid: &'a Grid,
    lanes: LaneChoice,
    panel: usize,
    scratch: &'a mut RowScratch,
    /// `(y, cell of the panel's columns)`.
    lines: &'a mut [Cell],
}

impl Kernel for AlongV<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { inverse, grid, lanes, panel, scratch, lines } = self;
        let floats = grid.group.floats();
        let cells = panel_cells(lanes.count);
        for first in (0..cells).step_by(TOGETHER) {
            let source = GridColumns {
                shape: grid.shape,
                panel: &grid.panel(panel)[first * lanes.together() * floats..],
                floats,
                columns: lanes.together(),
                offsets: std::array::from_fn(|lane| {
                    (lane / lanes.count) * floats + lanes.first + lane % lanes.count
                }),
            };
            let mut sink = Pixels {
                size: inverse.size,
                len: inverse.fft.len(),
                cells: &mut lines[first..],
                pitch: cells,
            };
            inverse.fft.run::<V>(TOGETHER.min(cells - first), &mut scratch.fft, &source, &mut sink);
        }
    }
}

/// Columns of a grid, with real and imaginary parts exchanged.
struct GridColumns<'a> {
    shape: GridShape,
    /// A panel from the first column on.
    panel: &'a [f32],
    floats: usize,
    /// Columns that fill a vector.
    columns: usize,
    /// Where the real parts of the lanes are.
    offsets: [usize; WIDTH],
}

impl GridColumns<'_> {
    #[inline(always)]
    fn row<V: Lanes>(&self, sequence: usize, row: usize) -> Complex<V> {
        let points = &self.panel[(row * PANEL + sequence * self.columns) * self.floats..];
        // Where a column fills a vector it is loaded as it lies.
        if self.floats == 2 * WIDTH
            && self.columns == 1
            && let [re, im, ..] = points.as_chunks::<WIDTH>().0
        {
            if let Some(next) = points.get(PANEL * self.floats..) {
                V::prefetch(next);
            }
            return Complex { re: V::load(im), im: V::load(re) };
        }
        let mut cell = Cell::default();
        for lane in 0..WIDTH {
            cell.im[lane] = points[self.offsets[lane]];
            cell.re[lane] = points[self.offsets[lane] + self.floats / 2];
        }
        Complex::load(&cell)
    }
}

impl Source for GridColumns<'_> {
    #[inline(always)]
    fn load<V: Lanes>(&self, sequence: usize, index: usize) -> Complex<V> {
        match self.shape.places(index) {
            (first, None) => self.row(sequence, first),
            (first, Some(second)) => self.row::<V>(sequence, first).add(self.row(sequence, second)),
        }
    }
}

/// The part of an inverse transform that lies within the slice; exchanges real and imaginary parts back.
struct Pixels<'a> {
    size: usize,
    len: usize,
    cells: &'a mut [Cell],
    /// Cells from one pixel to the next; those of the sequences lie side by side.
    pitch: usize,
}

impl Sink for Pixels<'_> {
    #[inline(always)]
    fn store<V: Lanes>(&mut self, sequence: usize, index: usize, value: Complex<V>) {
        let pixel = index + self.size / 2;
        let pixel = if pixel >= self.len { pixel - self.len } else { pixel };
        if pixel < self.size {
            value.swap().store(&mut self.cells[pixel * self.pitch + sequence]);
        }
    }
}

/// The transform along u of as many rows as fill a vector.
struct AlongU<'a> {
    inverse: &'a Inverse,
    shape: GridShape,
    lanes: LaneChoice,
    first_row: usize,
    /// `(panel, y, cell of the panel's columns)`.
    middle: &'a [Cell],
    scratch: &'a mut RowScratch,
    lines: Vec<Option<&'a mut [f32]>>,
}

impl Kernel for AlongU<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { inverse, shape, lanes, first_row, middle, scratch, lines } = self;
        let RowScratch { row, fft, .. } = scratch;
        let source = MiddleRows { shape, size: inverse.size, lanes, first_row, middle };
        let mut sink = Pixels { size: inverse.size, len: inverse.fft.len(), cells: row, pitch: 1 };
        inverse.fft.run::<V>(1, fft, &source, &mut sink);
        write_lines::<V>(inverse, lanes.count, first_row, &row[..inverse.size], lines);
    }
}

/// Rows of what the transform along v left, with real and imaginary parts exchanged.
struct MiddleRows<'a> {
    shape: GridShape,
    size: usize,
    lanes: LaneChoice,
    first_row: usize,
    middle: &'a [Cell],
}

impl MiddleRows<'_> {
    #[inline(always)]
    fn column<V: Lanes>(&self, column: usize) -> Complex<V> {
        let (count, together, cells) =
            (self.lanes.count, self.lanes.together(), panel_cells(self.lanes.count));
        let (panel, within) = (column / PANEL, column % PANEL);
        let first = (panel * self.size + self.first_row) * cells + within / together;
        if together == 1 {
            if let Some(next) = self.middle.get(first + 1) {
                V::prefetch(&next.re);
            }
            return Complex::load(&self.middle[first]).swap();
        }
        let slot = within % together * count;
        let mut cell = Cell::default();
        for row in 0..together.min(self.size - self.first_row) {
            let from = &self.middle[first + row * cells];
            for lane in 0..count {
                cell.im[row * count + lane] = from.re[slot + lane];
                cell.re[row * count + lane] = from.im[slot + lane];
            }
        }
        Complex::load(&cell)
    }
}

impl Source for MiddleRows<'_> {
    #[inline(always)]
    fn load<V: Lanes>(&self, _: usize, index: usize) -> Complex<V> {
        match self.shape.places(index) {
            (first, None) => self.column(first),
            (first, Some(second)) => self.column::<V>(first).add(self.column(second)),
        }
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
        let mut correction = [0.0; WIDTH];
        correction[..cells.len()].copy_from_slice(&inverse.correction[start..start + cells.len()]);
        let correction = V::load(&correction);
        for part in 0..2 {
            let mut octets = [[0.0; WIDTH]; WIDTH];
            for (octet, cell) in octets.iter_mut().zip(cells) {
                *octet = if part == 0 { cell.re } else { cell.im };
            }
            let columns = load_transposed::<V>(&octets);
            for lane in 0..WIDTH {
                let values = columns[lane];
                let row = lane / count;
                let Some(Some(line)) = lines.get_mut(part * count + lane % count) else {
                    continue;
                };
                let Some(to) = line.get_mut(row * size + start..row * size + start + cells.len()) else {
                    continue;
                };
                let mut octet = [0.0; WIDTH];
                values.mul(correction).mul(V::splat(inverse.correction[first_row + row])).store(&mut octet);
                to.copy_from_slice(&octet[..to.len()]);
            }
        }
    }
}
