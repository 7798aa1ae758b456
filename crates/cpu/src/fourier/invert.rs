//! From the spectra of slices to the slices: an inverse transform along v, then along u.

use rayon::prelude::*;

use super::grid::{Grid, GridShape, PANEL};
use super::window::Window;
use crate::fft::{LaneFft, Sink, Source};
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
        let source = GridColumns {
            shape: grid.shape,
            panel: &grid.panel(first_column / PANEL)[(first_column % PANEL) * floats..],
            floats,
            whole: lanes.count == WIDTH,
            offsets: std::array::from_fn(|lane| (lane / lanes.count) * floats + lanes.first + lane % lanes.count),
        };
        let mut sink = Pixels { size: inverse.size, len: inverse.fft.len(), cells: lines };
        inverse.fft.run::<V>(&mut scratch.work, &mut scratch.fft, &source, &mut sink);
    }
}

/// Columns of a grid, with real and imaginary parts exchanged.
struct GridColumns<'a> {
    shape: GridShape,
    /// A panel from the first column on.
    panel: &'a [f32],
    floats: usize,
    /// Whether one column fills a vector, so that it is loaded as it lies.
    whole: bool,
    /// Where the real parts of the lanes are.
    offsets: [usize; WIDTH],
}

impl GridColumns<'_> {
    #[inline(always)]
    fn row<V: Lanes>(&self, row: usize) -> Complex<V> {
        let points = &self.panel[row * PANEL * self.floats..];
        if self.whole
            && let [re, im, ..] = points.as_chunks::<WIDTH>().0
        {
            // The next column is next in memory, and next to be transformed.
            V::prefetch(&points[2 * WIDTH..]);
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
    fn load<V: Lanes>(&self, index: usize) -> Complex<V> {
        match self.shape.places(index) {
            (first, None) => self.row(first),
            (first, Some(second)) => self.row::<V>(first).add(self.row(second)),
        }
    }
}

/// The part of an inverse transform that lies within the slice; exchanges real and imaginary parts back.
struct Pixels<'a> {
    size: usize,
    len: usize,
    cells: &'a mut [Cell],
}

impl Sink for Pixels<'_> {
    #[inline(always)]
    fn store<V: Lanes>(&mut self, index: usize, value: Complex<V>) {
        let pixel = index + self.size / 2;
        let pixel = if pixel >= self.len { pixel - self.len } else { pixel };
        if let Some(cell) = self.cells[..self.size].get_mut(pixel) {
            value.swap().store(cell);
        }
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
        let RowScratch { work, out, fft } = scratch;
        let source = MiddleRows { shape, size: inverse.size, lanes, first_row, middle };
        let mut sink = Pixels { size: inverse.size, len: inverse.fft.len(), cells: out };
        inverse.fft.run::<V>(work, fft, &source, &mut sink);
        write_lines::<V>(inverse, lanes.count, first_row, &out[..inverse.size], lines);
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
        let (count, together) = (self.lanes.count, self.lanes.together());
        let rows = &self.middle[column / together * self.size..][..self.size];
        if together == 1 {
            if let Some(next) = rows.get(self.first_row + 1) {
                V::prefetch(&next.re);
            }
            return Complex::load(&rows[self.first_row]).swap();
        }
        let slot = column % together * count;
        let mut cell = Cell::default();
        for (row, from) in rows[self.first_row..].iter().take(together).enumerate() {
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
    fn load<V: Lanes>(&self, index: usize) -> Complex<V> {
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
        let cell = |x: usize| cells.get(x).copied().unwrap_or_default();
        let correction: [f32; WIDTH] = std::array::from_fn(|x| inverse.correction.get(start + x).copied().unwrap_or(0.0));
        let correction = V::load(&correction);
        for part in 0..2 {
            let octets: [[f32; WIDTH]; WIDTH] =
                std::array::from_fn(|x| if part == 0 { cell(x).re } else { cell(x).im });
            let columns = load_transposed::<V>(&octets);
            for lane in 0..WIDTH {
                let values = columns[lane];
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
