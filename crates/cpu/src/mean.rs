//! The mean of frames: dark and flat images.

use beamstream_core::{Element, ElementType};
use bytemuck::Pod;

use crate::pixels::{PixelError, elements, with_element};
use crate::simd::{Kernel, Lanes, run};

/// A mean over frames, pixel by pixel. NaN and infinite values are left out and counted.
///
/// # Memory
/// 8 bytes a pixel, and 4 more once a value was left out.
#[derive(Debug, Clone)]
pub struct MeanImage {
    element: ElementType,
    sums: Vec<f64>,
    frames: u64,
    /// Values left out, pixel by pixel; empty as long as there were none.
    missing: Vec<u32>,
    non_finite: u64,
}

impl MeanImage {
    /// A mean of frames of `pixels` elements.
    pub fn new(element: ElementType, pixels: usize) -> Self {
        Self { element, sums: vec![0.0; pixels], frames: 0, missing: Vec::new(), non_finite: 0 }
    }

    /// Adds a frame, given as bytes in native order.
    ///
    /// # Errors
    /// If it has another size, or if the bytes are not aligned.
    pub fn add(&mut self, frame: &[u8]) -> Result<(), PixelError> {
        with_element!(self.element, T => {
            let pixels = elements::<T>(frame, self.element, self.sums.len())?;
            if !run(AddAll { pixels, sums: &mut self.sums }) {
                self.take_out_non_finite(pixels);
            }
        });
        self.frames += 1;
        Ok(())
    }

    /// Frames that were added.
    pub fn count(&self) -> u64 {
        self.frames
    }

    /// Values that were NaN or infinite.
    pub fn non_finite(&self) -> u64 {
        self.non_finite
    }

    /// The mean image; 0 where there was no value at all.
    pub fn mean(&self) -> Vec<f32> {
        let missing = self.missing.iter().copied().chain(std::iter::repeat(0));
        let mean = |(sum, missing): (&f64, u32)| {
            let count = self.frames - u64::from(missing);
            if count == 0 { 0.0 } else { (sum / count as f64) as f32 }
        };
        self.sums.iter().zip(missing).map(mean).collect()
    }

    /// Forgets all frames.
    pub fn reset(&mut self) {
        self.sums.fill(0.0);
        self.missing.clear();
        (self.frames, self.non_finite) = (0, 0);
    }

    /// Counts the values that [`AddAll`] has left out.
    fn take_out_non_finite<T: Element>(&mut self, pixels: &[T]) {
        self.missing.resize(self.sums.len(), 0);
        for (pixel, missing) in pixels.iter().zip(&mut self.missing) {
            if !pixel.to_f32().is_finite() {
                *missing += 1;
                self.non_finite += 1;
            }
        }
    }
}

/// Adds the finite values; the result tells whether all were.
struct AddAll<'a, T> {
    pixels: &'a [T],
    sums: &'a mut [f64],
}

impl<T: Element + Pod> Kernel for AddAll<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Lanes>(self) -> bool {
        let mut bad = 0_u32;
        for (sum, pixel) in self.sums.iter_mut().zip(self.pixels) {
            let value = pixel.to_f32();
            let finite = value.abs() < f32::INFINITY;
            *sum += f64::from(if finite { value } else { 0.0 });
            bad |= u32::from(!finite);
        }
        bad == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn mean_of_every_type_is_exact() {
        for element in ElementType::ALL {
            let mut mean = MeanImage::new(element, 2);
            for (a, b) in [(1_u8, 100_u8), (2, 100), (6, 127)] {
                let frame: Vec<u8> = match element {
                    ElementType::U8 => vec![a, b],
                    ElementType::U16 | ElementType::I16 => {
                        bytemuck::cast_slice(&[u16::from(a), u16::from(b)]).to_vec()
                    }
                    ElementType::U32 | ElementType::I32 => {
                        bytemuck::cast_slice(&[u32::from(a), u32::from(b)]).to_vec()
                    }
                    ElementType::F16 => bytemuck::cast_slice(&[f16::from(a), f16::from(b)]).to_vec(),
                    ElementType::F32 => bytemuck::cast_slice(&[f32::from(a), f32::from(b)]).to_vec(),
                };
                mean.add(&frame).unwrap();
            }
            assert_eq!(mean.mean(), [3.0, 109.0], "{element}");
        }
    }

    #[test]
    fn large_counts_keep_their_last_digit() {
        let mut mean = MeanImage::new(ElementType::U16, 1);
        for _ in 0..1000 {
            mean.add(bytemuck::bytes_of(&65_533_u16)).unwrap();
        }
        assert_eq!(mean.mean(), [65_533.0]);
    }

    #[test]
    fn values_that_are_no_numbers_are_left_out() {
        let mut mean = MeanImage::new(ElementType::F32, 3);
        for frame in [[1.0, f32::NAN, f32::INFINITY], [3.0, 5.0, f32::NAN]] {
            mean.add(bytemuck::cast_slice(&frame)).unwrap();
        }
        assert_eq!((mean.mean(), mean.non_finite()), (vec![2.0, 5.0, 0.0], 3));
        mean.reset();
        assert_eq!((mean.count(), mean.mean()), (0, vec![0.0; 3]));
    }

    #[test]
    fn a_frame_of_another_size_is_refused() {
        let error = MeanImage::new(ElementType::U16, 3).add(&[0; 5]).unwrap_err();
        assert_eq!(error.to_string(), "expected 3 u16 elements, found 5 bytes");
    }
}
