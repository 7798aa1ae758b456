//! Fewer bits for slices, and the range of values that deserves them.

use beamstream_core::ElementType;
use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::pixels::{PixelError, elements_mut};
use crate::simd::{Kernel, Lanes, run};

/// Writes `from` as `element` into `to`: for integers LO becomes 0 and HI the highest value, values are rounded,
/// what lies outside is cut, and NaN becomes 0. Floats are converted, the range does not touch them.
///
/// Gives the number of NaN.
///
/// # Errors
/// If `to` has another size or is not aligned, or if `element` is none of f32, f16, u16 and u8.
pub fn rescale(
    from: &[f32],
    range: [f32; 2],
    element: ElementType,
    to: &mut [u8],
) -> Result<u64, PixelError> {
    match element {
        ElementType::F32 => elements_mut::<f32>(to, element, from.len())?.copy_from_slice(from),
        ElementType::F16 => elements_mut::<f16>(to, element, from.len())?.convert_from_f32_slice(from),
        ElementType::U16 => {
            let to = elements_mut::<u16>(to, element, from.len())?;
            run(Stretch { from, range, to, highest: f32::from(u16::MAX), round: |value| value as u16 });
        }
        ElementType::U8 => {
            let to = elements_mut::<u8>(to, element, from.len())?;
            run(Stretch { from, range, to, highest: f32::from(u8::MAX), round: |value| value as u8 });
        }
        found => return Err(PixelError::OutputType { found }),
    }
    Ok(from.iter().map(|value| u64::from(value.is_nan())).sum())
}

struct Stretch<'a, T, F> {
    from: &'a [f32],
    range: [f32; 2],
    to: &'a mut [T],
    highest: f32,
    round: F,
}

impl<T, F: Fn(f32) -> T> Kernel for Stretch<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes>(self) {
        let Self { from, range: [low, high], to, highest, round } = self;
        // A range of no extent tells what is above it from what is not.
        let scale = if high > low { highest / (high - low) } else { f32::MAX };
        for (from, to) in from.iter().zip(to) {
            // `max` turns NaN into 0; the cast cuts off the fraction.
            *to = round(((from - low) * scale).max(0.0).min(highest) + 0.5);
        }
    }
}

/// The lowest and the highest finite value; `None` if there is none.
pub fn value_range(image: &[f32]) -> Option<[f32; 2]> {
    let wider = |range: Option<[f32; 2]>, value: f32| match range {
        Some([low, high]) => Some([low.min(value), high.max(value)]),
        None => Some([value; 2]),
    };
    image.iter().copied().filter(|value| value.is_finite()).fold(None, wider)
}

/// Most values that percentiles are taken from; of larger images every n-th value.
const PERCENTILE_SAMPLES: usize = 1 << 18;

/// The values below which the given parts (0..=100 %) of the finite values lie; empty if there is none.
///
/// Larger images are sampled, so that this is quick enough for a live view: the part is right to about 0.2 %.
pub fn percentiles(image: &[f32], percents: &[f64]) -> Vec<f32> {
    // An odd stride walks over the columns of images whose width is a power of two.
    let stride = (image.len() / PERCENTILE_SAMPLES) | 1;
    let mut values: Vec<f32> =
        image.iter().copied().step_by(stride).filter(|value| value.is_finite()).collect();
    if values.is_empty() {
        return Vec::new();
    }
    values.sort_unstable_by(f32::total_cmp);
    let last = values.len() - 1;
    let at = |percent: &f64| values[(percent.clamp(0.0, 100.0) / 100.0 * last as f64).round() as usize];
    percents.iter().map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_stretched_over_the_integers() {
        let from = [-2.0, -1.0, 0.0, 0.5, 1.0, 7.0, f32::NAN, f32::INFINITY];
        let mut bytes = [0; 8];
        assert_eq!(rescale(&from, [-1.0, 1.0], ElementType::U8, &mut bytes), Ok(1));
        assert_eq!(bytes, [0, 0, 128, 191, 255, 255, 0, 255]);
        let mut words = [0_u16; 8];
        rescale(&from, [-1.0, 1.0], ElementType::U16, bytemuck::cast_slice_mut(&mut words)).unwrap();
        assert_eq!(words, [0, 0, 32768, 49151, 65535, 65535, 0, 65535]);
    }

    #[test]
    fn floats_are_converted_as_they_are() {
        let mut halves = [f16::ZERO; 2];
        rescale(&[1.5, -7.0], [0.0, 1.0], ElementType::F16, bytemuck::cast_slice_mut(&mut halves)).unwrap();
        assert_eq!(halves, [f16::from_f32(1.5), f16::from_f32(-7.0)]);
        assert!(rescale(&[1.0], [0.0, 1.0], ElementType::I16, &mut [0; 2]).is_err());
        assert!(rescale(&[1.0], [0.0, 1.0], ElementType::U8, &mut [0; 2]).is_err());
    }

    #[test]
    fn window_comes_from_finite_values() {
        let image: Vec<f32> = (0..=100).map(|v| v as f32).chain([f32::NAN, f32::INFINITY]).collect();
        assert_eq!(percentiles(&image, &[0.0, 1.0, 50.0, 100.0]), [0.0, 1.0, 50.0, 100.0]);
        assert_eq!(value_range(&image), Some([0.0, 100.0]));
        assert_eq!((percentiles(&[f32::NAN], &[50.0]), value_range(&[])), (vec![], None));
    }
}
