//! Random numbers that are the same on every machine.

/// A generator of random numbers.
///
/// # Source
/// G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014,
/// doi:10.1145/2660193.2660195.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

/// Means above this are drawn from a normal distribution: the difference is below the rounding to whole counts.
const NORMAL_FROM: f64 = 64.0;

impl Random {
    /// A generator for one purpose: streams of different seed, purpose or number are independent.
    pub(crate) fn new(seed: u64, purpose: u64, number: u64) -> Self {
        let mut random = Self(seed);
        for word in [purpose, number] {
            random.0 = random.next() ^ word;
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Evenly distributed in `0.0..1.0`.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed with mean 0 and variance 1.
    ///
    /// # Source
    /// G. Box and M. Muller, "A note on the generation of random normal deviates", 1958,
    /// doi:10.1214/aoms/1177706645.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A count of photons of which `mean` are expected.
    ///
    /// # Source
    /// D. Knuth, "The Art of Computer Programming", vol. 2, section 3.4.1, for small means.
    pub(crate) fn poisson(&mut self, mean: f64) -> f64 {
        if mean >= NORMAL_FROM {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0);
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.uniform(), 0.0);
        while product > limit {
            product *= self.uniform();
            count += 1.0;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and variance of many draws.
    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = (0..20_000).map(|_| draw()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance)
    }

    #[test]
    fn poisson_counts_have_their_mean_as_variance() {
        for expected in [0.5, 20.0, 900.0] {
            let mut random = Random::new(1, 2, 3);
            let (mean, variance) = moments(|| random.poisson(expected));
            assert!((mean / expected - 1.0).abs() < 0.05, "{mean} of {expected}");
            assert!((variance / expected - 1.0).abs() < 0.08, "{variance} of {expected}");
        }
        assert_eq!(Random::new(1, 1, 1).poisson(0.0), 0.0);
    }

    #[test]
    fn streams_depend_on_every_word_of_their_seed() {
        let first = |seed, purpose, number| Random::new(seed, purpose, number).next();
        let all = [first(0, 0, 0), first(1, 0, 0), first(0, 1, 0), first(0, 0, 1)];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one));
        }
    }
}
