//! Benchmarks: what several of them need.

/// The median; the upper one of an even number of values, 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// How near a slice is to the truth.
#[derive(Debug, Clone, Copy)]
pub struct Accuracy {
    /// Root mean square error over the range of the truth, after a fit of gain and offset.
    pub nrmse: f64,
    /// The gain that was fitted: what the slice has to be multiplied with.
    pub gain: f64,
}

/// Holds a slice of `n` x `n` against the truth, within 0.9 of the disc that the columns inscribe.
pub fn accuracy(slice: &[f32], truth: &[f32], n: usize) -> Accuracy {
    let middle = (n - 1) as f64 / 2.0;
    let inside = |at: &usize| ((at % n) as f64 - middle).hypot((at / n) as f64 - middle) < 0.45 * n as f64;
    let pairs: Vec<[f64; 2]> =
        (0..n * n).filter(inside).map(|at| [f64::from(slice[at]), f64::from(truth[at])]).collect();
    let mean = |value: &dyn Fn(&[f64; 2]) -> f64| pairs.iter().map(value).sum::<f64>() / pairs.len() as f64;
    let (slice_mean, truth_mean) = (mean(&|p| p[0]), mean(&|p| p[1]));
    let covariance = mean(&|p| (p[0] - slice_mean) * (p[1] - truth_mean));
    let gain = covariance / mean(&|p| (p[0] - slice_mean).powi(2));
    let square = mean(&|p| ((p[0] - slice_mean) * gain - (p[1] - truth_mean)).powi(2));
    let low = pairs.iter().map(|p| p[1]).fold(f64::INFINITY, f64::min);
    let high = pairs.iter().map(|p| p[1]).fold(f64::NEG_INFINITY, f64::max);
    Accuracy { nrmse: square.sqrt() / (high - low), gain }
}

/// Root mean square of the difference of two images over the range of the second.
pub fn distance(image: &[f32], reference: &[f32]) -> f64 {
    let square: f64 = image.iter().zip(reference).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let low = reference.iter().copied().fold(f32::INFINITY, f32::min);
    let high = reference.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (square / reference.len() as f64).sqrt() / f64::from(high - low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaled_truth_has_no_error_but_a_gain() {
        let truth: Vec<f32> = (0..400).map(|at| (at % 7) as f32).collect();
        let slice: Vec<f32> = truth.iter().map(|value| 2.0 * value + 1.0).collect();
        let found = accuracy(&slice, &truth, 20);
        assert!(found.nrmse < 1e-6 && (found.gain - 0.5).abs() < 1e-6, "{found:?}");
        assert!((distance(&slice[..1], &[0.0, 2.0][..1])).is_infinite());
        assert_eq!(distance(&[1.0, 3.0], &[0.0, 2.0]), 0.5);
    }

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[])), (2.0, 0.0));
    }
}
