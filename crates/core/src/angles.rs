//! Rotation angles and the weights that they give to projections.

use std::f64::consts::PI;

/// Evenly spaced angles: `start + number * step`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AngleRule {
    /// Angle of projection 0, in radians.
    pub start_rad: f64,
    /// Difference between neighbours, in radians.
    pub step_rad: f64,
}

impl AngleRule {
    /// The rule for angles given in degrees.
    pub fn from_degrees(start_deg: f64, step_deg: f64) -> Self {
        Self { start_rad: start_deg.to_radians(), step_rad: step_deg.to_radians() }
    }

    /// Angle of projection `number`, in radians.
    pub fn angle_rad(self, number: u64) -> f64 {
        self.start_rad + self.step_rad * number as f64
    }
}

/// Weights of projections in a filtered backprojection: half of the gaps to both neighbours, modulo pi.
///
/// They sum to pi, whatever the order, spacing or number of turns, so grey levels stay where
/// projections are missing. Projections at the same angle share its weight equally, also
/// where an end point repeats the start (0 and 180 degrees).
///
/// # Units
/// Radians in, radians out.
pub fn angular_weights(angles_rad: &[f64]) -> Vec<f64> {
    let count = angles_rad.len();
    if count == 0 {
        return Vec::new();
    }
    let folded: Vec<f64> = angles_rad.iter().map(|a| a.rem_euclid(PI)).collect();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| folded[a].total_cmp(&folded[b]));

    let groups = group_equal(&order, &folded);
    let mut weights = vec![0.0; count];
    for (at, group) in groups.iter().enumerate() {
        let before = &groups[(at + groups.len() - 1) % groups.len()];
        let after = &groups[(at + 1) % groups.len()];
        let gap = |from: f64, to: f64| if groups.len() == 1 { PI } else { (to - from).rem_euclid(PI) };
        let share = 0.5 * (gap(before.angle, group.angle) + gap(group.angle, after.angle));
        for &member in &order[group.first..group.end] {
            weights[member] = share / (group.end - group.first) as f64;
        }
    }
    weights
}

/// Angles nearer than this are the same angle: a thousandth of a degree over a thousand.
const SAME_ANGLE_RAD: f64 = 1e-8;

struct Group {
    angle: f64,
    first: usize,
    end: usize,
}

/// Groups of equal angles in the sorted order.
fn group_equal(order: &[usize], folded: &[f64]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::with_capacity(order.len());
    for (at, &member) in order.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if folded[member] - group.angle < SAME_ANGLE_RAD => group.end = at + 1,
            _ => groups.push(Group { angle: folded[member], first: at, end: at + 1 }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(weights: &[f64]) -> f64 {
        weights.iter().sum()
    }

    #[test]
    fn even_angles_weigh_the_same() {
        let angles: Vec<f64> = (0..90).map(|i| PI * f64::from(i) / 90.0).collect();
        for weight in angular_weights(&angles) {
            assert!((weight - PI / 90.0).abs() < 1e-12);
        }
    }

    #[test]
    fn doubled_angles_share_their_weight() {
        let once: Vec<f64> = (0..20).map(|i| PI * f64::from(i) / 20.0).collect();
        let twice: Vec<f64> = once.iter().chain(once.iter().rev()).copied().collect();
        for weight in angular_weights(&twice) {
            assert!((weight - PI / 40.0).abs() < 1e-12);
        }
    }

    #[test]
    fn one_projection_weighs_pi() {
        assert_eq!(angular_weights(&[0.3]), [PI]);
        assert!(angular_weights(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn weights_sum_to_pi_and_are_not_negative(angles in proptest::collection::vec(-20.0_f64..20.0, 1..60)) {
            let weights = angular_weights(&angles);
            prop_assert!((sum(&weights) - PI).abs() < 1e-9);
            prop_assert!(weights.iter().all(|w| *w >= 0.0));
        }
    }
}
