//! The window that spreads samples over a regular grid in Fourier space, the same on every device.

use std::f64::consts::PI;

use crate::good_length;

/// Length of the grid over the edge of the slice, at least.
const OVERSAMPLING: f64 = 1.25;
/// Slices of at most this edge get [`SMALL_OVERSAMPLING`].
const SMALL_SIZE: usize = 320;
/// Small slices cost little, so their grid is longer: their corners, where the correction of the window magnifies
/// rounding 34 times with 1.25, then have it magnified 3 times.
const SMALL_OVERSAMPLING: f64 = 2.0;
/// The shortest grid, in points.
const MIN_GRID: usize = 16;

/// The grid for slices of one size, and a Kaiser-Bessel window four grid points wide.
///
/// # Source
/// J. I. Jackson et al., IEEE Trans. Med. Imaging 10 (1991) 473 (the window and its transform);
/// P. J. Beatty et al., IEEE Trans. Med. Imaging 24 (2005) 799, equation 5 (its shape for an oversampling).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gridding {
    len: usize,
    beta: f64,
}

impl Gridding {
    /// Grid points along each axis that a sample is spread over.
    pub const TAPS: usize = 4;

    /// The grid for slices with an edge of `size` pixels.
    pub fn new(size: usize) -> Self {
        let oversampling = if size <= SMALL_SIZE { SMALL_OVERSAMPLING } else { OVERSAMPLING };
        let least = (oversampling * size as f64).ceil() as usize;
        Self::of_length(size, good_length(least.max(MIN_GRID)))
    }

    fn of_length(size: usize, len: usize) -> Self {
        let oversampling = len as f64 / size as f64;
        let width = Self::TAPS as f64;
        let beta = PI * ((width / oversampling).powi(2) * (oversampling - 0.5).powi(2) - 0.8).sqrt();
        Self { len, beta }
    }

    /// Grid points along each axis: an even number without prime factors above 5.
    pub fn points(&self) -> usize {
        self.len
    }

    /// Weights of the grid points -1, 0, 1, 2 for a sample at `fraction`, from 0 to 1, past grid point 0.
    pub fn weights(&self, fraction: f64) -> [f64; Self::TAPS] {
        std::array::from_fn(|tap| self.window(tap as f64 - 1.0 - fraction))
    }

    /// The window at `distance` grid points from its middle, where it is 1.
    fn window(&self, distance: f64) -> f64 {
        let square = 1.0 - (2.0 * distance / Self::TAPS as f64).powi(2);
        if square < 0.0 { 0.0 } else { bessel_i0(self.beta * square.sqrt()) / bessel_i0(self.beta) }
    }

    /// What a pixel at `x` from the middle of the slice is multiplied with, to undo the window.
    pub fn correction(&self, x: f64) -> f64 {
        let width = Self::TAPS as f64;
        let square = self.beta.powi(2) - (PI * width * x / self.len as f64).powi(2);
        let root = square.abs().sqrt();
        let shape = match square {
            _ if root < 1e-6 => 1.0,
            _ if square > 0.0 => root.sinh() / root,
            _ => root.sin() / root,
        };
        bessel_i0(self.beta) / (width * shape)
    }
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
    fn small_slices_have_a_longer_grid() {
        assert_eq!([1, 320, 321, 2048].map(|size| Gridding::new(size).points()), [16, 640, 432, 2560]);
    }

    #[test]
    fn correction_undoes_the_window() {
        // A sample at frequency f, spread and transformed, is exp(2 pi i f x) again, up to aliasing.
        let (gridding, frequency) = (Gridding::of_length(64, 80), 3.3);
        for x in [0.0, 7.0, -20.0, 31.0] {
            let (mut re, mut im) = (0.0, 0.0);
            for (tap, weight) in gridding.weights(0.3).into_iter().enumerate() {
                let point = tap as f64 + 2.0;
                let (sin, cos) = (2.0 * PI * point * x / gridding.points() as f64).sin_cos();
                re += weight * cos;
                im += weight * sin;
            }
            let (sin, cos) = (2.0 * PI * frequency * x / gridding.points() as f64).sin_cos();
            let correction = gridding.correction(x);
            let error = (re * correction - cos).hypot(im * correction - sin);
            assert!(error < 2e-2, "at {x}: off by {error}");
        }
    }
}
