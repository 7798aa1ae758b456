//! The weights that spread a sample over the grid, from a table.

use beamstream_ops::Gridding;

/// Grid points along each axis that a sample is spread over.
pub(super) const TAPS: usize = Gridding::TAPS;
/// Places between two grid points for which the weights are tabulated; between them they are interpolated.
const STEPS_LOG2: u32 = 8;

/// Weights of the four grid points around a sample, and how they change over a step of the table.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Entry {
    weights: [f32; TAPS],
    change: [f32; TAPS],
}

/// The window of a grid, tabulated.
pub(super) struct Window {
    table: Vec<Entry>,
}

impl Window {
    pub(super) fn new(gridding: &Gridding) -> Self {
        let steps = 1_u32 << STEPS_LOG2;
        let weights_at = |step: u32| gridding.weights(f64::from(step) / f64::from(steps));
        let entry = |step| {
            let (here, next) = (weights_at(step), weights_at(step + 1));
            Entry {
                weights: here.map(|weight| weight as f32),
                change: std::array::from_fn(|tap| (next[tap] - here[tap]) as f32),
            }
        };
        Self { table: (0..steps).map(entry).collect() }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_equals_the_function() {
        let gridding = Gridding::new(2048);
        let window = Window::new(&gridding);
        for fraction in [0, 1, 12_345_678, 1 << 31, 3_000_000_000, u32::MAX] {
            let exact = gridding.weights(f64::from(fraction) / 2.0_f64.powi(32));
            for (weight, exact) in window.weights(fraction).into_iter().zip(exact) {
                assert!((f64::from(weight) - exact).abs() < 1e-5, "{fraction}: {weight} {exact}");
            }
        }
    }
}
