//! Fourier transforms of eight lanes at once.
//!
//! A transform of length `n = n1 * n2` is done in two passes over memory (the first two steps of Bailey's
//! four-step scheme): `n2` transforms of length `n1` with a stride, then `n1` transforms of length `n2`.
//! Each of these short ones fits the first-level cache and runs as a self-sorting radix 2, 3, 4, 5 transform.
//!
//! # Source
//! D. H. Bailey, "FFTs in external or hierarchical memory", J. Supercomputing 4 (1990) 23;
//! C. Van Loan, "Computational Frameworks for the Fast Fourier Transform" (1992), section 1.7 (Stockham).

use std::f64::consts::TAU;

pub(crate) use beamstream_ops::good_length;

use crate::simd::{Cell, Complex, Lanes};

/// `exp(-2 pi i part / whole)`.
fn root(part: usize, whole: usize) -> [f32; 2] {
    let (sin, cos) = (TAU * (part % whole) as f64 / whole as f64).sin_cos();
    [cos as f32, -sin as f32]
}

/// Most sequences that are transformed together.
pub(crate) const TOGETHER: usize = 4;

/// Room for intermediate results.
pub(crate) struct FftScratch {
    work: Vec<Cell>,
    here: Vec<Cell>,
    there: Vec<Cell>,
}

impl FftScratch {
    /// Enough for any of several transforms.
    pub(crate) fn new(transforms: &[&LaneFft]) -> Self {
        let room = |cells: fn(&LaneFft) -> usize| {
            vec![Cell::default(); TOGETHER * transforms.iter().map(|fft| cells(fft)).max().unwrap_or(0)]
        };
        let short = |fft: &LaneFft| fft.first.len.max(fft.second.len);
        Self { work: room(|fft| fft.first.len * fft.pitch()), here: room(short), there: room(short) }
    }
}

/// What a transform reads.
pub(crate) trait Source {
    /// The value at an index of one of the sequences.
    fn load<V: Lanes>(&self, sequence: usize, index: usize) -> Complex<V>;
}

/// Where a transform writes, in no particular order.
pub(crate) trait Sink {
    /// Takes the value at an index of one of the sequences.
    fn store<V: Lanes>(&mut self, sequence: usize, index: usize, value: Complex<V>);
}

/// A forward transform, `X[k] = sum of x[j] exp(-2 pi i j k / n)`.
///
/// For the inverse, exchange real and imaginary parts on loading and on storing.
pub(crate) struct LaneFft {
    first: ShortFft,
    second: ShortFft,
    /// `exp(-2 pi i j2 k1 / n)`, `(j2, k1)`.
    twiddles: Vec<[f32; 2]>,
}

impl LaneFft {
    /// A transform of a [`good_length`].
    pub(crate) fn new(len: usize) -> Self {
        let divides = |n: &usize| len.is_multiple_of(*n);
        let n1 = (1..=len.isqrt()).rev().find(divides).unwrap_or(1);
        let n2 = len / n1;
        let twiddles = (0..len).map(|at| root((at / n1) * (at % n1), len)).collect();
        Self { first: ShortFft::new(n1), second: ShortFft::new(n2), twiddles }
    }

    pub(crate) fn len(&self) -> usize {
        self.twiddles.len()
    }

    /// Cells from one line of the work space to the next: odd, so that lines do not compete for places in the cache.
    fn pitch(&self) -> usize {
        self.second.len | 1
    }

    /// Transforms one or more sequences of values from `source` into `sink`, index by index over all sequences, so that
    /// values which lie side by side in memory are used together.
    #[inline(always)]
    pub(crate) fn run<V: Lanes>(
        &self,
        sequences: usize,
        scratch: &mut FftScratch,
        source: &impl Source,
        sink: &mut impl Sink,
    ) {
        let (n1, n2, pitch) = (self.first.len, self.second.len, self.pitch());
        let FftScratch { work, here, there } = scratch;
        for j2 in 0..n2 {
            for j1 in 0..n1 {
                for sequence in 0..sequences {
                    source.load::<V>(sequence, j1 * n2 + j2).store(&mut here[sequence * n1 + j1]);
                }
            }
            let twiddles = &self.twiddles[j2 * n1..][..n1];
            for sequence in 0..sequences {
                let done = self.first.run::<V>(&mut here[sequence * n1..], there);
                let lines = &mut work[sequence * n1 * pitch..][..n1 * pitch];
                for k1 in 0..n1 {
                    let [re, im] = twiddles[k1];
                    let turned = Complex::<V>::load(&done[k1]).mul(V::splat(re), V::splat(im));
                    turned.store(&mut lines[k1 * pitch + j2]);
                }
            }
        }
        for k1 in 0..n1 {
            let line = |sequence: usize| (sequence * n1 + k1) * pitch;
            for sequence in 0..sequences {
                self.second.run::<V>(&mut work[line(sequence)..], &mut there[sequence * n2..]);
            }
            for k2 in 0..n2 {
                for sequence in 0..sequences {
                    let done = if self.second.ends_there() {
                        &there[sequence * n2 + k2]
                    } else {
                        &work[line(sequence) + k2]
                    };
                    sink.store::<V>(sequence, k1 + n1 * k2, Complex::load(done));
                }
            }
        }
    }
}

/// One stage of a short transform.
struct Stage {
    radix: usize,
    /// Elements between those that one butterfly writes.
    stride: usize,
    /// `exp(-2 pi i p t / (radix * parts))` for t from 1, `(p, t)`.
    twiddles: Vec<[f32; 2]>,
}

/// A transform that fits the first-level cache.
struct ShortFft {
    len: usize,
    stages: Vec<Stage>,
}

impl ShortFft {
    fn new(len: usize) -> Self {
        let (mut rest, mut stride) = (len, 1);
        let mut stages = Vec::new();
        while rest > 1 {
            let radix = [4, 2, 3, 5].into_iter().find(|r| rest.is_multiple_of(*r)).unwrap_or(rest);
            let parts = rest / radix;
            let twiddles =
                (0..parts).flat_map(|p| (1..radix).map(move |t| root(p * t, radix * parts))).collect();
            stages.push(Stage { radix, stride, twiddles });
            rest = parts;
            stride *= radix;
        }
        Self { len, stages }
    }

    /// Whether the result of [`run`](Self::run) lies in the second of the two.
    fn ends_there(&self) -> bool {
        self.stages.len() % 2 == 1
    }

    /// Transforms the first `len` cells of `here`; the result lies in one of the two.
    #[inline(always)]
    fn run<'a, V: Lanes>(&self, here: &'a mut [Cell], there: &'a mut [Cell]) -> &'a [Cell] {
        let (mut from, mut to) = (&mut here[..self.len], &mut there[..self.len]);
        for stage in &self.stages {
            match stage.radix {
                2 => stage.run::<V, Radix2, 2>(from, to),
                3 => stage.run::<V, Radix3, 3>(from, to),
                4 => stage.run::<V, Radix4, 4>(from, to),
                _ => stage.run::<V, Radix5, 5>(from, to),
            }
            std::mem::swap(&mut from, &mut to);
        }
        from
    }
}

impl Stage {
    #[inline(always)]
    fn run<V: Lanes, B: Butterfly<R>, const R: usize>(&self, from: &[Cell], to: &mut [Cell]) {
        let part = from.len() / R;
        let groups = to.chunks_exact_mut(R * self.stride).zip(self.twiddles.chunks_exact(R - 1));
        for (p, (group, twiddles)) in groups.enumerate() {
            for q in 0..self.stride {
                let mut values = [Complex::<V>::zero(); R];
                for t in 0..R {
                    values[t] = Complex::load(&from[t * part + p * self.stride + q]);
                }
                let values = B::apply(values);
                values[0].store(&mut group[q]);
                for t in 1..R {
                    let [re, im] = twiddles[t - 1];
                    values[t].mul(V::splat(re), V::splat(im)).store(&mut group[t * self.stride + q]);
                }
            }
        }
    }
}

/// A transform of length `R` in registers.
trait Butterfly<const R: usize> {
    fn apply<V: Lanes>(values: [Complex<V>; R]) -> [Complex<V>; R];
}

struct Radix2;

impl Butterfly<2> for Radix2 {
    #[inline(always)]
    fn apply<V: Lanes>([a, b]: [Complex<V>; 2]) -> [Complex<V>; 2] {
        [a.add(b), a.sub(b)]
    }
}

struct Radix3;

impl Butterfly<3> for Radix3 {
    #[inline(always)]
    fn apply<V: Lanes>([a, b, c]: [Complex<V>; 3]) -> [Complex<V>; 3] {
        let sum = b.add(c);
        let middle = a.add(sum.scale(V::splat(-0.5)));
        let turned = b.sub(c).turn_back().scale(V::splat(0.866_025_4));
        [a.add(sum), middle.add(turned), middle.sub(turned)]
    }
}

struct Radix4;

impl Butterfly<4> for Radix4 {
    #[inline(always)]
    fn apply<V: Lanes>([a, b, c, d]: [Complex<V>; 4]) -> [Complex<V>; 4] {
        let (even_sum, even_difference) = (a.add(c), a.sub(c));
        let (odd_sum, odd_turned) = (b.add(d), b.sub(d).turn_back());
        [
            even_sum.add(odd_sum),
            even_difference.add(odd_turned),
            even_sum.sub(odd_sum),
            even_difference.sub(odd_turned),
        ]
    }
}

struct Radix5;

impl Butterfly<5> for Radix5 {
    #[inline(always)]
    fn apply<V: Lanes>([a, b, c, d, e]: [Complex<V>; 5]) -> [Complex<V>; 5] {
        let (cos1, cos2) = (V::splat(0.309_017), V::splat(-0.809_017));
        let (sin1, sin2) = (V::splat(0.951_056_5), V::splat(0.587_785_25));
        let (outer, inner) = (b.add(e), c.add(d));
        let (outer_turned, inner_turned) = (b.sub(e).turn_back(), c.sub(d).turn_back());
        let first = a.add(outer.scale(cos1)).add(inner.scale(cos2));
        let second = a.add(outer.scale(cos2)).add(inner.scale(cos1));
        let first_turned = outer_turned.scale(sin1).add(inner_turned.scale(sin2));
        let second_turned = outer_turned.scale(sin2).sub(inner_turned.scale(sin1));
        [
            a.add(outer).add(inner),
            first.add(first_turned),
            second.add(second_turned),
            second.sub(second_turned),
            first.sub(first_turned),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Kernel, WIDTH, run};

    struct Forward<'a> {
        fft: &'a LaneFft,
        input: &'a [Cell],
    }

    impl Kernel for Forward<'_> {
        type Output = Vec<Cell>;

        #[inline(always)]
        fn run<V: Lanes>(self) -> Vec<Cell> {
            let mut out = Cells(vec![Cell::default(); TOGETHER * self.input.len()]);
            let mut scratch = FftScratch::new(&[self.fft]);
            let input = Cells(self.input.repeat(TOGETHER));
            self.fft.run::<V>(TOGETHER, &mut scratch, &input, &mut out);
            let first = out.0[..self.input.len()].to_vec();
            assert!(out.0.chunks(first.len()).all(|other| other == first));
            first
        }
    }

    struct Cells(Vec<Cell>);

    impl Source for Cells {
        #[inline(always)]
        fn load<V: Lanes>(&self, sequence: usize, index: usize) -> Complex<V> {
            Complex::load(&self.0[sequence * self.0.len() / TOGETHER + index])
        }
    }

    impl Sink for Cells {
        #[inline(always)]
        fn store<V: Lanes>(&mut self, sequence: usize, index: usize, value: Complex<V>) {
            let len = self.0.len() / TOGETHER;
            value.store(&mut self.0[sequence * len + index]);
        }
    }

    fn naive(input: &[Cell], lane: usize) -> Vec<[f64; 2]> {
        let n = input.len();
        let term = |j: usize, k: usize| {
            let (sin, cos) = (-TAU * ((j * k) % n) as f64 / n as f64).sin_cos();
            let (re, im) = (f64::from(input[j].re[lane]), f64::from(input[j].im[lane]));
            [re * cos - im * sin, re * sin + im * cos]
        };
        (0..n).map(|k| (0..n).map(|j| term(j, k)).fold([0.0; 2], |s, t| [s[0] + t[0], s[1] + t[1]])).collect()
    }

    #[test]
    fn transforms_equal_the_sum_that_defines_them() {
        for n in [2, 4, 6, 8, 10, 16, 30, 60, 64, 90, 120, 128, 250, 320, 486] {
            let value =
                |j: usize, lane: usize, seed: usize| ((j * 37 + lane * 11 + seed) % 23) as f32 / 11.0 - 1.0;
            let input: Vec<Cell> = (0..n)
                .map(|j| Cell {
                    re: std::array::from_fn(|lane| value(j, lane, 1)),
                    im: std::array::from_fn(|lane| value(j * j, lane, 5)),
                })
                .collect();
            let out = run(Forward { fft: &LaneFft::new(n), input: &input });
            for lane in [0, WIDTH - 1] {
                for (k, [re, im]) in naive(&input, lane).into_iter().enumerate() {
                    let error = (f64::from(out[k].re[lane]) - re).hypot(f64::from(out[k].im[lane]) - im);
                    assert!(error < 1e-5 * n as f64, "length {n}, frequency {k}: off by {error}");
                }
            }
        }
    }
}
