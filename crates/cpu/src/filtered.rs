//! Filtered projections in space, rows innermost.

use rayon::prelude::*;

use crate::fft::{Sink, Source};
use crate::filter::{RowFilter, RowScratch};
use crate::pool::Workers;
use crate::rows::{RowGroup, with_lanes};
use crate::simd::{Cell, Complex, Kernel, Lanes, WIDTH, run};

/// The places of a filtered projection that are kept; those off the detector hold zeros.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// Detector column at place 0.
    pub(crate) first_column: i64,
    pub(crate) places: usize,
}

impl Line {
    fn place(self, column: usize) -> Option<usize> {
        usize::try_from(column as i64 - self.first_column).ok().filter(|place| *place < self.places)
    }
}

pub(crate) fn cells_for(floats: usize) -> usize {
    floats.div_ceil(2 * WIDTH)
}

/// The first `len` floats of memory that grows as needed.
pub(crate) fn floats_of(cells: &mut Vec<Cell>, len: usize) -> &mut [f32] {
    if cells.len() < cells_for(len) {
        cells.resize(cells_for(len), Cell::default());
    }
    &mut bytemuck::cast_slice_mut(cells)[..len]
}

/// Transforms filtered spectra back: `(projection, place, row)`.
pub(crate) fn unfilter(
    filter: &RowFilter,
    spectra: &[f32],
    group: &RowGroup,
    workers: &Workers<RowScratch>,
    line: Line,
    filtered: &mut [f32],
) {
    let together = WIDTH / group.lanes;
    let spectrum_floats = filter.frequencies() * group.floats();
    let jobs = filtered.par_chunks_mut(together * line.places * group.floats());
    jobs.zip(spectra.par_chunks(together * spectrum_floats)).for_each(|(filtered, spectra)| {
        workers.with_scratch(|scratch| {
            // Places off the detector are not written below.
            filtered.fill(0.0);
            let job = InverseJob { filter, spectra, spectrum_floats, line, filtered, scratch };
            with_lanes!(group.lanes, L => run(InverseKernel::<L>(job)));
        });
    });
}

struct InverseJob<'a> {
    filter: &'a RowFilter,
    spectra: &'a [f32],
    spectrum_floats: usize,
    line: Line,
    filtered: &'a mut [f32],
    scratch: &'a mut RowScratch,
}

struct InverseKernel<'a, const L: usize>(InverseJob<'a>);

impl<const L: usize> Kernel for InverseKernel<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let InverseJob { filter, spectra, spectrum_floats, line, filtered, scratch } = self.0;
        let source = Spectra::<L> { values: spectra, spectrum_floats, len: filter.fft.len() };
        let mut sink = Lines::<L> { columns: filter.columns(), line, filtered };
        filter.fft.run::<V>(1, &mut scratch.fft, &source, &mut sink);
    }
}

/// Spectra by index of the transform, with real and imaginary parts exchanged.
struct Spectra<'a, const L: usize> {
    values: &'a [f32],
    spectrum_floats: usize,
    len: usize,
}

impl<const L: usize> Spectra<'_, L> {
    #[inline(always)]
    fn place<V: Lanes>(&self, place: usize) -> Complex<V> {
        let mut cell = Cell::default();
        for slot in 0..self.values.len() / self.spectrum_floats {
            let from = &self.values[slot * self.spectrum_floats + place * 2 * L..][..2 * L];
            for lane in 0..L {
                cell.im[slot * L + lane] = from[lane];
                cell.re[slot * L + lane] = from[L + lane];
            }
        }
        Complex::load(&cell)
    }
}

impl<const L: usize> Source for Spectra<'_, L> {
    #[inline(always)]
    fn load<V: Lanes>(&self, _: usize, index: usize) -> Complex<V> {
        let half = self.len / 2;
        match index {
            _ if index < half => self.place(half + index),
            // The highest frequency is in two halves, at both ends.
            _ if index == half => self.place::<V>(0).add(self.place(self.len)),
            _ => self.place(index - half),
        }
    }
}

/// Filtered projections, with real and imaginary parts exchanged back.
struct Lines<'a, const L: usize> {
    columns: usize,
    line: Line,
    filtered: &'a mut [f32],
}

impl<const L: usize> Sink for Lines<'_, L> {
    #[inline(always)]
    fn store<V: Lanes>(&mut self, _: usize, index: usize, value: Complex<V>) {
        if index >= self.columns {
            return;
        }
        let Some(place) = self.line.place(index) else {
            return;
        };
        let mut cell = Cell::default();
        value.swap().store(&mut cell);
        let line_floats = self.line.places * 2 * L;
        for slot in 0..self.filtered.len() / line_floats {
            let to = &mut self.filtered[slot * line_floats + place * 2 * L..][..2 * L];
            for lane in 0..L {
                to[lane] = cell.re[slot * L + lane];
                to[L + lane] = cell.im[slot * L + lane];
            }
        }
    }
}
