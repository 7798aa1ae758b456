//! Flat-field correction.

use beamstream_core::{Element, ElementType};
use beamstream_ops::{BadPixels, FlatFieldSpec, MIN_TRANSMISSION};
use bytemuck::Pod;

use crate::pixels::{PixelError, check_size, elements, saturation, with_element};
use crate::simd::{Kernel, Lanes, run};

/// Corrects frames by a mean dark and one or two mean flats, as [`FlatFieldSpec`] says.
#[derive(Debug, Clone)]
pub struct FlatField {
    spec: FlatFieldSpec,
    element: ElementType,
    columns: usize,
    dark: Vec<f32>,
    /// Open beam of the first and, where there is one, the second flat: flat minus dark, NaN where there is none.
    beams: [Vec<f32>; 2],
    /// One over the beam that was used last, and which that was.
    inverse: Vec<f32>,
    inverse_later: f32,
}

impl FlatField {
    /// A correction of frames of `rows` x `columns`, without references: until they come, counts are transmissions.
    pub fn new(spec: FlatFieldSpec, element: ElementType, rows: usize, columns: usize) -> Self {
        let pixels = rows * columns;
        Self {
            spec,
            element,
            columns,
            dark: vec![0.0; pixels],
            beams: [vec![1.0; pixels], Vec::new()],
            inverse: vec![1.0; pixels],
            inverse_later: 0.0,
        }
    }

    /// Sets the mean dark and the mean flats, `(row, column)`, in counts. Of more than two flats the first two are used.
    ///
    /// # Errors
    /// If there is no flat or an image has another size; then nothing is changed.
    pub fn set_references(&mut self, dark: &[f32], flats: &[&[f32]]) -> Result<(), PixelError> {
        let pixels = self.dark.len();
        check_size(pixels, dark.len())?;
        check_size(pixels, flats.first().map_or(0, |flat| flat.len()))?;
        flats.iter().try_for_each(|flat| check_size(pixels, flat.len()))?;
        let beam = |flat: &&[f32]| -> Vec<f32> {
            let open = |(flat, dark): (&f32, &f32)| {
                if flat > dark && flat.is_finite() { flat - dark } else { f32::NAN }
            };
            flat.iter().zip(dark).map(open).collect()
        };
        self.dark = dark.to_vec();
        self.beams =
            [flats.first().map(beam).unwrap_or_default(), flats.get(1).map(beam).unwrap_or_default()];
        self.set_inverse(0.0);
        Ok(())
    }

    /// Corrects a frame, given as bytes in native order. `later` in 0..=1 is the part of the second flat.
    ///
    /// # Errors
    /// If the frame or `out` has another size, or if the bytes are not aligned.
    pub fn correct(&mut self, frame: &[u8], later: f32, out: &mut [f32]) -> Result<BadPixels, PixelError> {
        check_size(self.dark.len(), out.len())?;
        let later = if self.beams[1].is_empty() { 0.0 } else { later.clamp(0.0, 1.0) };
        if later.to_bits() != self.inverse_later.to_bits() {
            self.set_inverse(later);
        }
        let mut bad = BadPixels::default();
        with_element!(self.element, T => {
            let frame = elements::<T>(frame, self.element, self.dark.len())?;
            // An empty frame has no rows to speak of.
            let columns = self.columns.max(1);
            let references = self.dark.chunks(columns).zip(self.inverse.chunks(columns));
            let rows = frame.chunks(columns).zip(references).zip(out.chunks_mut(columns));
            for ((counts, (dark, inverse)), out) in rows {
                let minus_log = self.spec.minus_log;
                let row = Row { counts, dark, inverse, out, saturated: saturation(self.element), minus_log };
                if let Some(row) = run(row) {
                    bad += row.repair();
                }
            }
        });
        Ok(bad)
    }

    fn set_inverse(&mut self, later: f32) {
        let [first, second] = &self.beams;
        if second.is_empty() {
            self.inverse = first.iter().map(|beam| 1.0 / beam).collect();
        } else {
            let mix = |(first, second): (&f32, &f32)| 1.0 / ((1.0 - later) * first + later * second);
            self.inverse = first.iter().zip(second).map(mix).collect();
        }
        self.inverse_later = later;
    }
}

/// One row of a frame. As a kernel it corrects all pixels as if they were good, and gives itself back if some are not.
struct Row<'a, T> {
    counts: &'a [T],
    dark: &'a [f32],
    inverse: &'a [f32],
    out: &'a mut [f32],
    saturated: f32,
    minus_log: bool,
}

impl<T: Element + Pod> Kernel for Row<'_, T> {
    type Output = Option<Self>;

    #[inline(always)]
    #[expect(
        clippy::needless_bitwise_bool,
        reason = "without branches the loop is made of vector instructions"
    )]
    fn run<V: Lanes>(self) -> Option<Self> {
        let Self { counts, dark, inverse, out, saturated, minus_log } = self;
        let pixels = counts.iter().zip(dark).zip(inverse).zip(&mut *out);
        let mut bad = 0_u32;
        if minus_log {
            for (((count, dark), inverse), out) in pixels {
                let count = count.to_f32();
                let transmission = (count - dark) * inverse;
                let good =
                    (transmission > MIN_TRANSMISSION) & (transmission < f32::INFINITY) & (count < saturated);
                bad |= u32::from(!good);
                *out = minus_ln(transmission);
            }
        } else {
            for (((count, dark), inverse), out) in pixels {
                let count = count.to_f32();
                let transmission = (count - dark) * inverse;
                bad |= u32::from(!((transmission.abs() < f32::INFINITY) & (count < saturated)));
                *out = transmission;
            }
        }
        (bad != 0).then_some(Self { counts, dark, inverse, out, saturated, minus_log })
    }
}

impl<T: Element> Row<'_, T> {
    /// Corrects the row pixel by pixel, and gives bad pixels the value of their neighbours.
    fn repair(self) -> BadPixels {
        let mut bad = BadPixels::default();
        let mut is_good = vec![true; self.out.len()];
        for (at, out) in self.out.iter_mut().enumerate() {
            let count = self.counts[at].to_f32();
            let transmission = (count - self.dark[at]) * self.inverse[at];
            let cause = if !count.is_finite() {
                &mut bad.non_finite
            } else if count >= self.saturated {
                &mut bad.saturated
            } else if !transmission.is_finite() {
                &mut bad.no_beam
            } else {
                if self.minus_log && transmission <= MIN_TRANSMISSION {
                    bad.clipped += 1;
                }
                *out =
                    if self.minus_log { minus_ln(transmission.max(MIN_TRANSMISSION)) } else { transmission };
                continue;
            };
            *cause += 1;
            is_good[at] = false;
        }
        let nothing = if self.minus_log { 0.0 } else { 1.0 };
        fill_from_neighbours(self.out, &is_good, nothing);
        bad
    }
}

/// Gives values that are not good the nearest good one, the mean of two at the same distance, or `nothing`.
fn fill_from_neighbours(values: &mut [f32], is_good: &[bool], nothing: f32) {
    let mut before: Option<usize> = None;
    let mut at = 0;
    while at < values.len() {
        if is_good[at] {
            before = Some(at);
            at += 1;
            continue;
        }
        let after = (at..values.len()).find(|next| is_good[*next]);
        let end = after.unwrap_or(values.len());
        for gap in at..end {
            values[gap] = match (before, after) {
                (Some(b), Some(a)) if gap - b == a - gap => 0.5 * (values[b] + values[a]),
                (Some(b), Some(a)) => values[if gap - b < a - gap { b } else { a }],
                (Some(one), None) | (None, Some(one)) => values[one],
                (None, None) => nothing,
            };
        }
        at = end;
    }
}

/// `-ln x` for normal, positive x; any value for others. Relative error below 2e-7, or 1e-7 near x = 1.
///
/// # Source
/// S. L. Moshier, Cephes library, `logf`: the coefficients of the polynomial.
#[inline(always)]
#[expect(clippy::excessive_precision, reason = "the coefficients as published")]
fn minus_ln(x: f32) -> f32 {
    const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
    let bits = x.to_bits() as i32;
    let exponent = bits.wrapping_sub(SQRT_HALF_BITS) >> 23;
    let f = f32::from_bits(bits.wrapping_sub(exponent << 23) as u32) - 1.0;
    let exponent = exponent as f32;
    let square = f * f;
    let mut polynomial = 7.037_683_629_2e-2_f32;
    polynomial = polynomial * f - 1.151_461_031_0e-1;
    polynomial = polynomial * f + 1.167_699_874_0e-1;
    polynomial = polynomial * f - 1.242_014_084_6e-1;
    polynomial = polynomial * f + 1.424_932_278_7e-1;
    polynomial = polynomial * f - 1.666_805_766_5e-1;
    polynomial = polynomial * f + 2.000_071_476_5e-1;
    polynomial = polynomial * f - 2.499_999_399_3e-1;
    polynomial = polynomial * f + 3.333_333_117_4e-1;
    // ln 2 in two parts, so that the larger times the exponent is exact.
    let low = polynomial * f * square - 2.121_944_400_6e-4 * exponent - 0.5 * square;
    -(f + low + 0.693_359_375 * exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn corrector(columns: usize, dark: &[f32], flats: &[&[f32]], minus_log: bool) -> FlatField {
        let rows = dark.len() / columns;
        let mut op = FlatField::new(FlatFieldSpec { minus_log }, ElementType::U16, rows, columns);
        op.set_references(dark, flats).unwrap();
        op
    }

    #[test]
    fn half_the_open_beam_is_half_transmission() {
        let mut op = corrector(3, &[100.0; 3], &[&[1100.0; 3]], false);
        let mut out = [0.0; 3];
        let bad = op.correct(bytemuck::cast_slice(&[600_u16, 1100, 100]), 0.0, &mut out).unwrap();
        assert_eq!((out, bad.total()), ([0.5, 1.0, 0.0], 0));
    }

    #[test]
    fn two_flats_are_mixed() {
        let mut op = corrector(1, &[0.0], &[&[1000.0], &[3000.0]], false);
        let mut out = [0.0];
        for (later, expected) in [(0.0, 0.6), (0.5, 0.3), (1.0, 0.2), (0.0, 0.6)] {
            op.correct(bytemuck::bytes_of(&600_u16), later, &mut out).unwrap();
            assert!((out[0] - expected).abs() < 1e-6, "{later}: {out:?}");
        }
    }

    #[test]
    fn bad_pixels_take_their_neighbours_value_and_are_counted() {
        let (dark, flat) = ([0.0; 6], [100.0, 0.0, 100.0, 100.0, f32::NAN, 100.0]);
        let mut op = corrector(6, &dark, &[&flat], false);
        let mut out = [0.0; 6];
        let bad = op.correct(bytemuck::cast_slice(&[10_u16, 50, 30, 65_535, 50, 90]), 0.0, &mut out).unwrap();
        assert_eq!(bad, BadPixels { no_beam: 2, saturated: 1, ..BadPixels::default() });
        for (found, expected) in out.iter().zip([0.1, 0.2, 0.3, 0.3, 0.9, 0.9]) {
            assert!((found - expected).abs() < 1e-6, "{out:?}");
        }
    }

    #[test]
    fn a_row_without_beam_attenuates_nothing() {
        let mut op = corrector(2, &[5.0; 4], &[&[5.0, 5.0, 105.0, 105.0]], true);
        let mut out = [f32::NAN; 4];
        let bad = op.correct(bytemuck::cast_slice(&[50_u16, 60, 55, 3]), 0.0, &mut out).unwrap();
        assert_eq!((bad.no_beam, bad.clipped), (2, 1));
        assert_eq!(out[..2], [0.0, 0.0]);
        assert!((out[2] - 2.0_f32.ln()).abs() < 1e-6 && (out[3] - 13.815_51).abs() < 1e-4, "{out:?}");
    }

    #[test]
    fn numbers_that_are_none_do_not_leave() {
        let mut op = FlatField::new(FlatFieldSpec::default(), ElementType::F32, 1, 4);
        let mut out = [0.0; 4];
        let frame = [f32::NAN, 1.0, f32::INFINITY, -7.0];
        let bad = op.correct(bytemuck::cast_slice(&frame), 0.0, &mut out).unwrap();
        assert_eq!((bad.non_finite, bad.clipped), (2, 1));
        assert!(out.iter().all(|value| value.is_finite()), "{out:?}");
    }

    #[test]
    fn other_sizes_are_refused() {
        let mut op = FlatField::new(FlatFieldSpec::default(), ElementType::U16, 2, 3);
        assert!(op.set_references(&[0.0; 6], &[]).is_err());
        assert!(op.set_references(&[0.0; 5], &[&[1.0; 6]]).is_err());
        assert!(op.correct(&[0; 11], 0.0, &mut [0.0; 6]).is_err());
        assert!(op.correct(&[0; 12], 0.0, &mut [0.0; 5]).is_err());
    }

    proptest! {
        #[test]
        fn logarithm_is_that_of_double_precision(x in 1e-6_f32..100.0) {
            let exact = -f64::from(x).ln();
            prop_assert!((f64::from(minus_ln(x)) - exact).abs() < 2e-7 * exact.abs().max(1.0));
        }

        #[test]
        fn a_line_integral_leaves_for_every_count(counts in proptest::collection::vec(any::<u16>(), 1..40)) {
            let mut op = corrector(counts.len(), &vec![100.0; counts.len()], &[&vec![40_000.0; counts.len()]], true);
            let mut out = vec![f32::NAN; counts.len()];
            let bad = op.correct(bytemuck::cast_slice(&counts), 0.0, &mut out).unwrap();
            prop_assert!(out.iter().all(|value| value.is_finite()));
            let saturated = counts.iter().filter(|count| **count == u16::MAX).count();
            let clipped = counts.iter().filter(|count| **count <= 100).count();
            prop_assert_eq!((bad.saturated, bad.clipped), (saturated as u64, clipped as u64));
        }
    }
}
