//! How a transform of some length is done by `kernels/fft.cuh`.

use std::f64::consts::TAU;

/// Radices that the kernels transform in registers, the largest first.
const RADICES: [usize; 11] = [16, 15, 12, 10, 9, 8, 6, 5, 4, 3, 2];
/// Sequences that a block transforms side by side, where they fit: with fewer, what it reads and writes at a time is
/// shorter than a sector of 32 bytes, and memory is several times slower.
const SEQUENCES: [usize; 3] = [4, 2, 1];
/// Threads of a block at most: two blocks then fill the registers of a multiprocessor.
const MAX_THREADS: usize = 512;
/// Threads that run together.
const WARP: usize = 32;
/// Bytes of a complex value.
const VALUE_BYTES: usize = 8;

/// A transform of one length by blocks of threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FftPlan {
    /// Factors of the length, the largest first.
    radices: Vec<usize>,
    /// Sequences of one block.
    pub(crate) sequences: usize,
    /// Threads of one block.
    pub(crate) threads: usize,
    /// Shared memory of one block. Unit: bytes.
    pub(crate) shared_bytes: usize,
}

impl FftPlan {
    /// A plan for `len` points, which has no prime factor above 5, with `shared_limit` bytes of shared memory.
    ///
    /// `copies` is how many more values of each point the kernel keeps there. `None` if not even one sequence fits.
    pub(crate) fn new(len: usize, copies: usize, shared_limit: usize) -> Option<Self> {
        let radices = radices(len);
        let (first, last) = (*radices.first()?, *radices.last()?);
        // As `Fft::SHARED`: gaps keep parts of even length apart in the banks.
        let values = first * ((len / first) | 1) + copies * len;
        let bytes = |sequences: usize| values * sequences * VALUE_BYTES;
        let sequences = SEQUENCES.into_iter().find(|sequences| bytes(*sequences) <= shared_limit)?;
        let butterflies = len / last * sequences;
        let threads = butterflies.next_multiple_of(WARP).min(MAX_THREADS);
        Some(Self { radices, sequences, threads, shared_bytes: bytes(sequences) })
    }

    /// The factors as the kernels take them: `16,16,10`.
    pub(crate) fn factors(&self) -> String {
        self.radices.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
    }
}

/// The fewest radices whose product is `len`, and of these the ones that are nearest to each other.
fn radices(len: usize) -> Vec<usize> {
    fn search(rest: usize, largest: usize, steps: usize) -> Option<Vec<usize>> {
        if steps == 0 {
            return (rest == 1).then(Vec::new);
        }
        // The largest one is as small as it can be.
        RADICES.iter().rev().filter(|radix| **radix <= largest && rest.is_multiple_of(**radix)).find_map(
            |radix| {
                let mut found = search(rest / radix, *radix, steps - 1)?;
                found.insert(0, *radix);
                Some(found)
            },
        )
    }
    if len == 1 {
        return vec![1];
    }
    (1..=usize::BITS as usize).find_map(|steps| search(len, RADICES[0], steps)).unwrap_or_default()
}

/// `exp(-2 pi i n / len)` for n from 0 to `len - 1`.
pub(crate) fn roots(len: usize) -> Vec<[f32; 2]> {
    let root = |n: usize| {
        let (sin, cos) = (TAU * n as f64 / len as f64).sin_cos();
        [cos as f32, -sin as f32]
    };
    (0..len).map(root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_few_steps() {
        assert_eq!(radices(2560), [16, 16, 10]);
        assert_eq!(radices(2048), [16, 16, 8]);
        assert_eq!(radices(540), [10, 9, 6]);
        assert_eq!(radices(16), [16]);
        assert_eq!(radices(2), [2]);
        assert_eq!(radices(1), [1]);
        for len in (2..4096).filter(|len| beamstream_ops::good_length(*len) == *len) {
            let radices = radices(len);
            assert_eq!(radices.iter().product::<usize>(), len);
            assert!(radices.len() <= 4, "{len}: {radices:?}");
        }
    }

    #[test]
    fn blocks_are_as_wide_as_shared_memory_allows() {
        let plan = FftPlan::new(2560, 0, 227 << 10).unwrap();
        assert_eq!((plan.factors().as_str(), plan.sequences, plan.threads), ("16,16,10", 4, 512));
        assert_eq!(plan.shared_bytes, 16 * 161 * 4 * 8);
        assert_eq!(FftPlan::new(2560, 0, 99 << 10).unwrap().sequences, 4);
        assert_eq!(FftPlan::new(2560, 0, 48 << 10).unwrap().sequences, 2);
        assert_eq!(FftPlan::new(64, 0, 48 << 10).unwrap().threads, 32);
        assert_eq!(FftPlan::new(1 << 16, 0, 227 << 10), None);
    }
}
