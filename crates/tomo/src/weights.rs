//! What each projection weighs, while not all of them are known.

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::sync::Arc;

use beamstream_core::{SeriesHeader, angular_weights};

/// Weights that were used, and what they should have been.
///
/// A projection's weight is half of the gaps to its neighbours in angle, so it is known only when all
/// angles are. While they come, projections are added with the weight that the announced angles give;
/// at the end the sum is scaled, and projections whose share is off are corrected where they are still at hand.
pub(crate) struct Weights {
    /// By number of the projection, where the angles were announced.
    announced: Option<Arc<[f64]>>,
    angles: Option<Arc<[f64]>>,
    /// Angle and weight of each projection that was added, by number.
    used: BTreeMap<u64, Used>,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    angle_rad: f64,
    weight: f64,
}

/// What is to be done to the sum at the end of a scan.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Correction {
    /// The sum is multiplied by this.
    pub(crate) scale: f64,
    /// Projections that are added once more, before the scaling, with these weights (negative ones too).
    pub(crate) again: Vec<(u64, f64)>,
}

/// Shares that differ by less than this are the same.
const SAME_SHARE: f64 = 1e-6;

impl Weights {
    pub(crate) fn new(header: &SeriesHeader) -> Self {
        let angles = header.angles_rad.clone();
        let announced = angles.as_deref().map(|angles| angular_weights(angles).into());
        Self { announced, angles, used: BTreeMap::new() }
    }

    /// The angle of a projection: its own, or the announced one.
    pub(crate) fn angle_rad(&self, projection: u64, own: Option<f64>) -> Option<f64> {
        let announced =
            || self.angles.as_ref().and_then(|angles| angles.get(usize::try_from(projection).ok()?));
        own.or_else(|| announced().copied()).filter(|angle| angle.is_finite())
    }

    /// The weight with which a projection is added.
    pub(crate) fn take(&mut self, projection: u64, angle_rad: f64) -> f64 {
        let announced =
            self.announced.as_ref().and_then(|weights| weights.get(usize::try_from(projection).ok()?));
        // Without announced angles only the shares matter; the scale comes at the end.
        let weight = announced.copied().unwrap_or(PI / 1000.0);
        self.used.insert(projection, Used { angle_rad, weight });
        weight
    }

    /// Whether a projection was added.
    pub(crate) fn has(&self, projection: u64) -> bool {
        self.used.contains_key(&projection)
    }

    /// Number of projections that were added.
    pub(crate) fn count(&self) -> u64 {
        self.used.len() as u64
    }

    /// First and last angle that was added, in radians.
    pub(crate) fn range_rad(&self) -> Option<[f64; 2]> {
        let angles = || self.used.values().map(|used| used.angle_rad);
        Some([angles().min_by(f64::total_cmp)?, angles().max_by(f64::total_cmp)?])
    }

    /// The scale that the sum so far needs: its weights should sum to pi.
    pub(crate) fn scale_so_far(&self) -> f64 {
        let sum: f64 = self.used.values().map(|used| used.weight).sum();
        if sum > 0.0 { PI / sum } else { 1.0 }
    }

    /// What is left to do once all projections have come. `at_hand` says which can be added again.
    pub(crate) fn correction(&self, at_hand: impl Fn(u64) -> bool) -> Correction {
        let angles: Vec<f64> = self.used.values().map(|used| used.angle_rad).collect();
        let right = angular_weights(&angles);
        let scale = usual_share(&right, self.used.values().map(|used| used.weight));
        let mut again = Vec::new();
        let mut sum = 0.0;
        for ((&projection, used), right) in self.used.iter().zip(&right) {
            let off = right / scale - used.weight;
            if off.abs() > SAME_SHARE * used.weight.max(1e-12) && at_hand(projection) {
                again.push((projection, off));
                sum += right;
            } else {
                sum += used.weight * scale;
            }
        }
        let scale = if sum > 0.0 { scale * PI / sum } else { 1.0 };
        // A scale of one up to rounding stays out of the data.
        let scale = if (scale - 1.0).abs() < 1e-12 { 1.0 } else { scale };
        Correction { scale, again }
    }
}

/// The ratio of right to used weight that most projections share.
fn usual_share(right: &[f64], used: impl Iterator<Item = f64>) -> f64 {
    let mut ratios: Vec<f64> =
        right.iter().zip(used).filter(|(_, used)| *used > 0.0).map(|(right, used)| right / used).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().filter(|ratio| *ratio > 0.0).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_core::{ElementType, Format, SeriesId};

    fn header(angles: Option<Vec<f64>>) -> SeriesHeader {
        let mut header =
            SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::F32, 1, 1));
        header.angles_rad = angles.map(Into::into);
        header
    }

    fn even(count: u32) -> Vec<f64> {
        (0..count).map(|i| PI * f64::from(i) / f64::from(count)).collect()
    }

    #[test]
    fn a_complete_scan_with_announced_angles_needs_nothing() {
        let mut weights = Weights::new(&header(Some(even(50))));
        for (number, angle) in even(50).into_iter().enumerate() {
            assert!((weights.take(number as u64, angle) - PI / 50.0).abs() < 1e-12);
        }
        assert_eq!(weights.correction(|_| true), Correction { scale: 1.0, again: vec![] });
    }

    #[test]
    fn even_angles_that_were_not_announced_need_a_scale() {
        let mut weights = Weights::new(&header(None));
        for (number, angle) in even(60).into_iter().enumerate() {
            weights.take(number as u64, angle);
        }
        let correction = weights.correction(|_| true);
        assert!(correction.again.is_empty());
        assert!((correction.scale * PI / 1000.0 - PI / 60.0).abs() < 1e-12);
    }

    #[test]
    fn neighbours_of_lost_projections_are_added_again() {
        let mut weights = Weights::new(&header(Some(even(40))));
        for (number, angle) in
            even(40).into_iter().enumerate().filter(|(number, _)| !(10..12).contains(number))
        {
            weights.take(number as u64, angle);
        }
        let correction = weights.correction(|_| true);
        let numbers: Vec<u64> = correction.again.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [9, 12]);
        assert!((correction.scale - 1.0).abs() < 1e-9);
        assert!(correction.again.iter().all(|(_, off)| (off - PI / 40.0).abs() < 1e-9));
    }

    #[test]
    fn without_the_projections_at_hand_the_grey_level_is_kept() {
        let mut weights = Weights::new(&header(Some(even(40))));
        for (number, angle) in even(40).into_iter().enumerate().filter(|(number, _)| *number != 10) {
            weights.take(number as u64, angle);
        }
        let correction = weights.correction(|_| false);
        assert!(correction.again.is_empty());
        assert!((correction.scale - 40.0 / 39.0).abs() < 1e-9);
    }
}
