//! What filters and transforms are made of, the same on every device.

use std::f64::consts::{PI, TAU};

use crate::{Filter, Method, ReconSpec};

/// The smallest even number of at least `least` that has no prime factor above 5.
pub fn good_length(least: usize) -> usize {
    let is_good = |n: usize| [2, 3, 5].iter().fold(n, |rest, prime| without(rest, *prime)) == 1;
    // There is a power of two at most twice as far.
    let least = least.max(2);
    (least..=2 * least).find(|n| n % 2 == 0 && is_good(*n)).unwrap_or(least)
}

fn without(mut n: usize, prime: usize) -> usize {
    while n > 1 && n.is_multiple_of(prime) {
        n /= prime;
    }
    n
}

/// Response of a filter at the frequencies `k / padded`, for k from 0 to `padded / 2`.
///
/// The ramp is the transform of the band-limited one in space, `h[0] = 1/4`, `h[n] = -1 / (pi n)^2` for odd n,
/// so that a row of `padded / 2` columns is filtered without wrap-round and with its grey level.
///
/// # Source
/// G. N. Ramachandran, A. V. Lakshminarayanan, PNAS 68 (1971) 2236; A. C. Kak, M. Slaney, "Principles of
/// Computerized Tomographic Imaging" (1988), equation 61.
fn filter_response(filter: Filter, padded: usize) -> Vec<f64> {
    let cosines: Vec<f64> = (0..padded).map(|at| (TAU * at as f64 / padded as f64).cos()).collect();
    let half = padded / 2;
    let ramp = |k: usize| {
        let mut sum = 0.25;
        for n in (1..=half).step_by(2) {
            // The value in the middle, where n and -n meet, is there once.
            let count = if 2 * n == padded { 1.0 } else { 2.0 };
            sum -= count * cosines[k * n % padded] / (PI * n as f64).powi(2);
        }
        sum
    };
    (0..=half)
        .map(|k| window(filter, k as f64 / padded as f64).map_or(1.0, |window| window * ramp(k)))
        .collect()
}

/// Parzen's window over the part 0..=1 of the highest frequency: flat at 0, so that grey levels stay.
///
/// # Source
/// E. Parzen, Technometrics 3 (1961) 167, doi:10.1080/00401706.1961.10489939.
fn parzen(part: f64) -> f64 {
    if part <= 0.5 { 1.0 - 6.0 * part * part * (1.0 - part) } else { 2.0 * (1.0 - part).powi(3) }
}

/// Window on the ramp at a frequency in cycles per pixel; `None` stands for no filter at all.
fn window(filter: Filter, frequency: f64) -> Option<f64> {
    let turn = PI * frequency;
    Some(match filter {
        Filter::Ramp => 1.0,
        Filter::SheppLogan if turn == 0.0 => 1.0,
        Filter::SheppLogan => turn.sin() / turn,
        Filter::Cosine => turn.cos(),
        Filter::Hann => 0.5 + 0.5 * (2.0 * turn).cos(),
        Filter::Hamming => 0.54 + 0.46 * (2.0 * turn).cos(),
        Filter::Parzen => parzen(2.0 * frequency),
        Filter::None => return None,
    })
}

/// What linear interpolation between columns leaves of a frequency in cycles per pixel, on the mean over all places
/// between two columns. Backprojection undoes it beforehand, so that it is as sharp as gridding.
fn interpolation_response(frequency: f64) -> f64 {
    let turn = PI * frequency;
    if turn == 0.0 { 1.0 } else { (turn.sin() / turn).powi(2) }
}

impl ReconSpec {
    /// What the frequencies `k / padded` of a projection are multiplied with, for k from 0 to `padded / 2`: the filter,
    /// and what direct backprojection's interpolation will take.
    pub fn response(&self, padded: usize) -> Vec<f64> {
        let mut response = filter_response(self.filter, padded);
        if self.method == Method::Fbp && self.filter != Filter::None {
            for (k, value) in response.iter_mut().enumerate() {
                *value /= interpolation_response(k as f64 / padded as f64);
            }
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ramp_is_that_of_the_frequency() {
        let len = 256;
        for (k, value) in filter_response(Filter::Ramp, len).into_iter().enumerate() {
            // At frequency 0 it is the mean of the ramp around it.
            assert!((value - k as f64 / len as f64).abs() < 0.21 / len as f64, "{k}: {value}");
        }
    }

    #[test]
    fn windows_start_at_one_and_only_lower() {
        let ramp = filter_response(Filter::Ramp, 128);
        for filter in Filter::ALL.iter().filter(|f| **f != Filter::None) {
            let windowed = filter_response(*filter, 128);
            assert!((windowed[0] / ramp[0] - 1.0).abs() < 1e-12, "{filter}");
            assert!(windowed.iter().zip(&ramp).all(|(w, r)| *w <= *r && *w >= 0.0), "{filter}");
        }
        assert!(filter_response(Filter::None, 128).iter().all(|v| *v == 1.0));
    }

    #[test]
    fn good_lengths_are_even_and_have_small_factors() {
        assert_eq!([1, 2, 7, 2560, 2561, 4096, 1361].map(good_length), [2, 2, 8, 2560, 2592, 4096, 1440]);
    }
}
