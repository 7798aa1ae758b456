//! Filters of projections: their frequency response, and rows of a batch to filtered spectra.

use std::f64::consts::TAU;

use beamstream_ops::{Padding, Projection, ReconSpec, RotationAxis};
use rayon::prelude::*;

use crate::fft::{FftScratch, LaneFft, Sink, Source, TOGETHER, good_length};
use crate::pool::Workers;
use crate::rows::{RowGroup, with_lanes};
use crate::simd::{Cell, Complex, Kernel, Lanes, WIDTH, load_transposed, run};

/// A thread's memory for transforms.
pub(crate) struct RowScratch {
    /// A sequence before its transform, or after it.
    pub(crate) row: Vec<Cell>,
    /// A sequence after its transform.
    spectrum: Vec<Cell>,
    pub(crate) fft: FftScratch,
}

impl RowScratch {
    /// Enough for any of several transforms.
    pub(crate) fn new(transforms: &[&LaneFft]) -> Self {
        let longest = transforms.iter().map(|fft| fft.len()).max().unwrap_or(0);
        let row = vec![Cell::default(); longest];
        Self { spectrum: row.clone(), row, fft: FftScratch::new(transforms) }
    }

    /// Bytes of it for a longest transform of `len`, roughly.
    pub(crate) const fn bytes(len: usize) -> usize {
        (TOGETHER + 3) * len * size_of::<Cell>()
    }
}

/// Turns rows of projections into filtered spectra.
pub(crate) struct RowFilter {
    columns: usize,
    padding: Padding,
    pub(crate) fft: LaneFft,
    /// Response over the length of the transform, up to the highest frequency.
    response: Vec<f64>,
    /// Axis that the spectra refer to, in columns.
    axis_px: f64,
    /// Distance of each row's axis from that, where they differ.
    tilt_px: Option<Vec<f64>>,
}

impl RowFilter {
    pub(crate) fn new(spec: &ReconSpec) -> Self {
        let fft = LaneFft::new(good_length(2 * spec.columns));
        let scale = 1.0 / fft.len() as f64;
        let response = spec.response(fft.len()).into_iter().map(|value| value * scale).collect();
        let (axis_px, tilt_px) = match &spec.rotation_axis {
            RotationAxis::Same(axis_px) => (*axis_px, None),
            RotationAxis::PerRow(axes) => {
                let middle = axes.iter().sum::<f64>() / axes.len().max(1) as f64;
                (middle, Some(axes.iter().map(|axis| axis - middle).collect()))
            }
        };
        Self { columns: spec.columns, padding: spec.padding, fft, response, axis_px, tilt_px }
    }

    /// Columns of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The axis that the spectra refer to, in columns.
    pub(crate) fn axis_px(&self) -> f64 {
        self.axis_px
    }

    /// Frequencies of a spectrum: from `-len / 2` to `len / 2`, both included, for half of the one at the ends.
    pub(crate) fn frequencies(&self) -> usize {
        self.fft.len() + 1
    }

    /// What the frequencies `k / len` of a projection are multiplied with, for k from 0: the filter, the weight, and
    /// the phase that moves the zero of its columns to `zero_px`.
    pub(crate) fn multipliers(&self, weight: f64, zero_px: f64, out: &mut [[f32; 2]]) {
        let step = TAU * zero_px / self.fft.len() as f64;
        let turn = Phasor::new(step * WIDTH as f64);
        let mut phases: [Phasor; WIDTH] = std::array::from_fn(|lane| Phasor::new(step * lane as f64));
        for (values, responses) in out.chunks_mut(WIDTH).zip(self.response.chunks(WIDTH)) {
            for ((value, response), phase) in values.iter_mut().zip(responses).zip(&mut phases) {
                let scale = weight * response;
                *value = [(scale * phase.cos) as f32, (scale * phase.sin) as f32];
                *phase = phase.turned(turn);
            }
        }
        // The highest frequency stands at both ends of a spectrum.
        if let Some([re, im]) = out.last_mut() {
            *re *= 0.5;
            *im *= 0.5;
        }
    }

    /// Filtered spectra `(projection, frequency, lane)` of a group's rows.
    ///
    /// `multipliers` holds [`multipliers`](Self::multipliers) of each projection.
    pub(crate) fn spectra(
        &self,
        batch: &[Projection<'_>],
        multipliers: &[[f32; 2]],
        group: &RowGroup,
        workers: &Workers<RowScratch>,
        spectra: &mut [f32],
    ) {
        let projections = WIDTH / group.lanes;
        let spectrum_len = self.frequencies() * group.floats();
        let jobs = spectra.par_chunks_mut(projections * spectrum_len).zip(batch.par_chunks(projections));
        jobs.zip(multipliers.par_chunks(projections * self.response.len())).for_each(
            |((spectra, projections), multipliers)| {
                workers.with_scratch(|scratch| {
                    let job = SpectrumJob { filter: self, group, projections, multipliers, scratch, spectra };
                    with_lanes!(group.lanes, L => run(SpectrumKernel::<L>(job)));
                    if let Some(tilt_px) = &self.tilt_px {
                        for spectrum in spectra.chunks_exact_mut(spectrum_len) {
                            self.move_rows(spectrum, group, tilt_px);
                        }
                    }
                });
            },
        );
    }

    /// Moves the rows of a group by their own distances, in Fourier space.
    ///
    /// With `A + iB` the spectrum of two rows, `conj((A + iB)(-k)) = (A - iB)(k)`, which tells the two apart.
    fn move_rows(&self, spectrum: &mut [f32], group: &RowGroup, tilt_px: &[f64]) {
        let (lanes, middle) = (group.lanes, self.fft.len() / 2);
        let tilt =
            |lane, part| group.row(lane, part).and_then(|row| tilt_px.get(row)).copied().unwrap_or(0.0);
        for lane in 0..lanes {
            let step = TAU / self.fft.len() as f64;
            let steps = [0, 1].map(|part| Phasor::new(step * tilt(lane, part)));
            let mut phases = [Phasor::new(0.0); 2];
            for k in 0..=middle {
                let (up, down) = ((middle + k) * 2 * lanes + lane, (middle - k) * 2 * lanes + lane);
                let value = |at: usize| [f64::from(spectrum[at]), f64::from(spectrum[at + lanes])];
                let ([ur, ui], [dr, di]) = (value(up), value(down));
                let real_row = phases[0].times([0.5 * (ur + dr), 0.5 * (ui - di)]);
                let imaginary_row = phases[1].times([0.5 * (ui + di), 0.5 * (dr - ur)]);
                spectrum[up] = (real_row[0] - imaginary_row[1]) as f32;
                spectrum[up + lanes] = (real_row[1] + imaginary_row[0]) as f32;
                spectrum[down] = (real_row[0] + imaginary_row[1]) as f32;
                spectrum[down + lanes] = (imaginary_row[0] - real_row[1]) as f32;
                phases = std::array::from_fn(|part| phases[part].turned(steps[part]));
            }
        }
    }
}

/// `cos + i sin` of an angle that grows by steps.
#[derive(Clone, Copy)]
struct Phasor {
    cos: f64,
    sin: f64,
}

impl Phasor {
    fn new(angle: f64) -> Self {
        let (sin, cos) = angle.sin_cos();
        Self { cos, sin }
    }

    fn turned(self, step: Self) -> Self {
        Self {
            cos: self.cos * step.cos - self.sin * step.sin,
            sin: self.cos * step.sin + self.sin * step.cos,
        }
    }

    fn times(self, [re, im]: [f64; 2]) -> [f64; 2] {
        [self.cos * re - self.sin * im, self.cos * im + self.sin * re]
    }
}

/// As many projections as fill the lanes with a group's rows.
struct SpectrumJob<'a> {
    filter: &'a RowFilter,
    group: &'a RowGroup,
    projections: &'a [Projection<'a>],
    multipliers: &'a [[f32; 2]],
    scratch: &'a mut RowScratch,
    spectra: &'a mut [f32],
}

struct SpectrumKernel<'a, const L: usize>(SpectrumJob<'a>);

impl<const L: usize> Kernel for SpectrumKernel<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let SpectrumJob { filter, group, projections, multipliers, scratch, spectra } = self.0;
        let (len, columns) = (filter.fft.len(), filter.columns);
        load_rows::<V, L>(group, projections, columns, &mut scratch.row);
        let pixels = &scratch.row[..columns];
        let (first, last) = match filter.padding {
            Padding::Zero => (Cell::default(), Cell::default()),
            Padding::Edge => (pixels[0], pixels[columns - 1]),
        };
        let RowScratch { row, spectrum, fft } = scratch;
        let padded =
            PaddedRows { pixels: &row[..columns], first, last, after_last: columns + (len - columns) / 2 };
        filter.fft.run::<V>(1, fft, &padded, &mut InOrder(spectrum));
        let mut out = FilteredSpectra::<L> { len, projections: projections.len(), multipliers, spectra };
        // From the lowest frequency to the highest, so that memory is written in order.
        for k in (1..=len / 2).rev() {
            out.put::<V>(k, -1.0, len / 2 - k, Complex::load(&spectrum[len - k]));
        }
        for k in 0..=len / 2 {
            out.put::<V>(k, 1.0, len / 2 + k, Complex::load(&spectrum[k]));
        }
    }
}

/// Takes a transform in the order of its index.
struct InOrder<'a>(&'a mut [Cell]);

impl Sink for InOrder<'_> {
    #[inline(always)]
    fn store<V: Lanes>(&mut self, _: usize, index: usize, value: Complex<V>) {
        value.store(&mut self.0[index]);
    }
}

/// Rows of pixels and what stands beside them.
struct PaddedRows<'a> {
    pixels: &'a [Cell],
    first: Cell,
    last: Cell,
    /// Where the padding after the last column ends and that before the first begins, round the corner.
    after_last: usize,
}

impl Source for PaddedRows<'_> {
    #[inline(always)]
    fn load<V: Lanes>(&self, _: usize, index: usize) -> Complex<V> {
        Complex::load(match self.pixels.get(index) {
            Some(cell) => cell,
            None if index < self.after_last => &self.last,
            None => &self.first,
        })
    }
}

/// Spectra that are multiplied with the filter as they are written.
struct FilteredSpectra<'a, const L: usize> {
    len: usize,
    projections: usize,
    multipliers: &'a [[f32; 2]],
    spectra: &'a mut [f32],
}

impl<const L: usize> FilteredSpectra<'_, L> {
    /// Multiplies the value with the filter at frequency `k`, or at `-k` for a `sign` of -1, and writes it.
    #[inline(always)]
    fn put<V: Lanes>(&mut self, k: usize, sign: f32, place: usize, value: Complex<V>) {
        let of_one = self.len / 2 + 1;
        let by: Complex<V> = if L == WIDTH {
            let [re, im] = self.multipliers[k];
            Complex { re: V::splat(re), im: V::splat(sign * im) }
        } else {
            let mut cell = Cell::default();
            for lane in 0..WIDTH {
                let projection = (lane / L).min(self.projections - 1);
                let [re, im] = self.multipliers[projection * of_one + k];
                cell.re[lane] = re;
                cell.im[lane] = sign * im;
            }
            Complex::load(&cell)
        };
        put::<V, L>(self.spectra, (self.len + 1) * 2 * L, place, value.mul(by.re, by.im));
    }
}

/// Writes one frequency of as many projections as there are in `spectra`.
#[inline(always)]
fn put<V: Lanes, const L: usize>(spectra: &mut [f32], spectrum_len: usize, index: usize, value: Complex<V>) {
    let mut cell = Cell::default();
    value.store(&mut cell);
    if L == WIDTH {
        spectra[index * 2 * L..][..2 * L].copy_from_slice(bytemuck::cast_slice(&[cell]));
        return;
    }
    for slot in 0..spectra.len() / spectrum_len {
        let to = &mut spectra[slot * spectrum_len + index * 2 * L..][..2 * L];
        for lane in 0..L {
            to[lane] = cell.re[slot * L + lane];
            to[L + lane] = cell.im[slot * L + lane];
        }
    }
}

/// Brings the rows of a group, of one or more projections, side by side: `(column, lane)`.
#[inline(always)]
fn load_rows<V: Lanes, const L: usize>(
    group: &RowGroup,
    projections: &[Projection<'_>],
    columns: usize,
    out: &mut [Cell],
) {
    let row_of = |lane: usize, part: usize| -> &[f32] {
        let pixels = projections.get(lane / L).map(|projection| projection.pixels);
        let row = group.row(lane % L, part);
        pixels
            .zip(row)
            .and_then(|(pixels, row)| pixels.get(row * columns..(row + 1) * columns))
            .unwrap_or(&[])
    };
    for part in 0..2 {
        let rows: [&[f32]; WIDTH] = std::array::from_fn(|lane| row_of(lane, part));
        for start in (0..columns).step_by(WIDTH) {
            let count = WIDTH.min(columns - start);
            let mut octets = [[0.0; WIDTH]; WIDTH];
            for lane in 0..WIDTH {
                octets[lane] = octet(rows[lane], start);
            }
            let turned = load_transposed::<V>(&octets);
            for (at, cell) in out[start..start + count].iter_mut().enumerate() {
                turned[at].store(if part == 0 { &mut cell.re } else { &mut cell.im });
            }
        }
    }
}

/// Eight columns of a row from `start` on, zeros past its end and in place of values that are not finite.
#[inline(always)]
fn octet(row: &[f32], start: usize) -> [f32; WIDTH] {
    let mut values = [0.0; WIDTH];
    if let Some(all) = row.get(start..start + WIDTH) {
        values.copy_from_slice(all);
    } else if let Some(rest) = row.get(start..) {
        values[..rest.len()].copy_from_slice(rest);
    }
    for value in &mut values {
        // A comparison with infinity is false for NaN too.
        *value = if value.abs() < f32::INFINITY { *value } else { 0.0 };
    }
    values
}
