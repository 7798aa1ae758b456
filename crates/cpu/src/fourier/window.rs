//! The Kaiser-Bessel window that spreads a sample over the grid, and its inverse on the slice.

use std::f64::consts::PI;

/// Grid points along each axis that a sample is spread over.
pub(super) const TAPS: usize = 4;
/// Places between two grid points for which the weights are tabulated; between them they are interpolated.
const STEPS_LOG2: u32 = 8;

/// Weights of the four grid points around a sample, and how they change over a step of the table.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Entry {
    weights: [f32; TAPS],
    change: [f32; TAPS],
}

/// A Kaiser-Bessel window four grid points wide.
///
/// # Source
/// J. I. Jackson et al., IEEE Trans. Med. Imaging 10 (1991) 473 (the window and its transform);
/// P. J. Beatty et al., IEEE Trans. Med. Imaging 24 (2005) 799, equation 5 (its shape for an oversampling).
pub(super) struct Window {
    beta: f64,
    table: Vec<Entry>,
}

impl Window {
    /// The window for a grid that is `oversampling` times as long as the slice.
    pub(super) fn new(oversampling: f64) -> Self {
        let width = TAPS as f64;
        let beta = PI * ((width / oversampling).powi(2) * (oversampling - 0.5).powi(2) - 0.8).sqrt();
        let steps = 1_u32 << STEPS_LOG2;
        let weights_at = |step: u32| -> [f64; TAPS] {
            let fraction = f64::from(step) / f64::from(steps);
            std::array::from_fn(|tap| value(beta, tap as f64 - 1.0 - fraction))
        };
        let entry = |step| {
            let (here, next) = (weights_at(step), weights_at(step + 1));
            Entry {
                weights: here.map(|weight| weight as f32),
                change: std::array::from_fn(|tap| (next[tap] - here[tap]) as f32),
            }
        };
        Self { beta, table: (0..steps).map(entry).collect() }
    }

    /// Weights of the grid points -1, 0, 1, 2 for a sample at `fraction` / 2^32 past grid point 0.
    #[inline(always)]
    pub(super) fn weights(&self, fraction: u32) -> [f32; TAPS] {
        const REST_BITS: u32 = 32 - STEPS_LOG2;
        let Some(entry) = self.table.get((fraction >> REST_BITS) as usize) else {
            return [0.0; TAPS];
        };
        let rest = (fraction & ((1 << REST_BITS) - 1)) as i32 as f32 / (1_u32 << REST_BITS) as f32;
        let mut weights = entry.weights;
        for tap in 0..TAPS {
            weights[tap] += rest * entry.change[tap];
        }
        weights
    }

    /// What a pixel at `x` from the middle of the slice is multiplied with, for a grid `len` points long.
    pub(super) fn correction(&self, x: f64, len: usize) -> f64 {
        let width = TAPS as f64;
        let square = self.beta.powi(2) - (PI * width * x / len as f64).powi(2);
        let root = square.abs().sqrt();
        let shape = match square {
            _ if root < 1e-6 => 1.0,
            _ if square > 0.0 => root.sinh() / root,
            _ => root.sin() / root,
        };
        bessel_i0(self.beta) / (width * shape)
    }
}

/// The window at `distance` grid points from its middle, where it is 1.
fn value(beta: f64, distance: f64) -> f64 {
    let square = 1.0 - (2.0 * distance / TAPS as f64).powi(2);
    if square < 0.0 { 0.0 } else { bessel_i0(beta * square.sqrt()) / bessel_i0(beta) }
}

/// The modified Bessel function of the first kind and order 0, by its power series.
fn bessel_i0(x: f64) -> f64 {
    let quarter_square = x * x / 4.0;
    let (mut term, mut sum) = (1.0, 1.0);
    let mut n = 1.0;
    while term > sum * 1e-17 {
        term *= quarter_square / (n * n);
        sum += term;
        n += 1.0;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bessel_function_has_its_known_values() {
        assert!((bessel_i0(1.0) - 1.266_065_877_752_008).abs() < 1e-14);
        assert!((bessel_i0(7.0) / 168.593_908_510_289_7 - 1.0).abs() < 1e-13);
    }

    #[test]
    fn table_equals_the_function() {
        let window = Window::new(1.25);
        for fraction in [0, 1, 12_345_678, 1 << 31, 3_000_000_000, u32::MAX] {
            let place = f64::from(fraction) / 2.0_f64.powi(32);
            for (tap, weight) in window.weights(fraction).into_iter().enumerate() {
                let exact = value(window.beta, tap as f64 - 1.0 - place);
                assert!((f64::from(weight) - exact).abs() < 1e-5, "{fraction} {tap}: {weight} {exact}");
            }
        }
    }

    #[test]
    fn correction_undoes_the_window() {
        // A sample at frequency f, spread and transformed, is exp(2 pi i f x) again, up to aliasing.
        let (window, len, frequency) = (Window::new(1.25), 80, 3.3);
        for x in [0.0, 7.0, -20.0, 31.0] {
            let (mut re, mut im) = (0.0, 0.0);
            for point in -40..40 {
                let weight = value(window.beta, f64::from(point) - frequency);
                let (sin, cos) = (2.0 * PI * f64::from(point) * x / len as f64).sin_cos();
                re += weight * cos;
                im += weight * sin;
            }
            let (sin, cos) = (2.0 * PI * frequency * x / len as f64).sin_cos();
            let correction = window.correction(x, len);
            let error = (re * correction - cos).hypot(im * correction - sin);
            assert!(error < 2e-2, "at {x}: off by {error}");
        }
    }
}
