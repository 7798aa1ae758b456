//! Flat-field correction: detector counts to transmission or line integrals.

use serde::{Deserialize, Serialize};

/// Transmissions below this count as this before the logarithm; 13.8 is the largest line integral.
///
/// # Source
/// The `log_min_clip` of nabu.
pub const MIN_TRANSMISSION: f32 = 1e-6;

/// How raw frames become transmissions or line integrals.
///
/// `T = (raw - dark) / (flat - dark)`, and with [`minus_log`](Self::minus_log) `p = -ln T`.
///
/// - A pixel with `flat - dark` of at most 0, or a dark or flat that is not finite, has no open beam and is bad.
/// - A raw value that is not finite, or is the largest integer of its type (detectors mark gaps, masked and
///   saturated pixels with it), is bad.
/// - A transmission of at most [`MIN_TRANSMISSION`] is raised to it before the logarithm and counted as clipped.
/// - A bad pixel takes the value of its nearest good neighbour in the row (of two at the same distance the mean),
///   and 0 attenuation where the row has none. Nothing that leaves is NaN or infinite.
///
/// # Tolerance
/// `2e-6 * max(1, |p|)` against the same in double precision; bad and clipped pixels agree exactly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FlatFieldSpec {
    /// Give line integrals `-ln T` rather than the transmission `T`.
    pub minus_log: bool,
}

impl Default for FlatFieldSpec {
    fn default() -> Self {
        Self { minus_log: true }
    }
}

/// Pixels that had no valid value, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadPixels {
    /// Pixels whose flat is not above their dark, or whose dark or flat is not finite.
    pub no_beam: u64,
    /// Raw values at the integer maximum of their type.
    pub saturated: u64,
    /// Raw values that are NaN or infinite.
    pub non_finite: u64,
    /// Transmissions of at most [`MIN_TRANSMISSION`] that were raised to it.
    pub clipped: u64,
}

impl BadPixels {
    /// Pixels whose value was taken from a neighbour.
    pub const fn repaired(self) -> u64 {
        self.no_beam + self.saturated + self.non_finite
    }

    /// All of them.
    pub const fn total(self) -> u64 {
        self.repaired() + self.clipped
    }
}

impl std::ops::AddAssign for BadPixels {
    fn add_assign(&mut self, other: Self) {
        self.no_beam += other.no_beam;
        self.saturated += other.saturated;
        self.non_finite += other.non_finite;
        self.clipped += other.clipped;
    }
}
