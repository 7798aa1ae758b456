//! Detector rows that are computed side by side, in the lanes of vectors.
//!
//! Two rows make one complex number: everything that follows is linear with real weights, so the real part
//! of the result belongs to one of them and the imaginary part to the other.

use std::ops::Range;

use crate::simd::WIDTH;

/// Consecutive rows that share all positions and weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowGroup {
    /// The rows.
    pub(crate) rows: Range<usize>,
    /// Complex lanes, for two rows each: 8, 4, 2 or 1. Row `i` of the group is the real part of lane `i`,
    /// row `lanes + i` the imaginary part. The last group may have lanes without rows, which hold zeros.
    pub(crate) lanes: usize,
}

impl RowGroup {
    /// All rows in groups of 16, and the rest in the narrowest group that holds it.
    pub(crate) fn split(rows: usize) -> Vec<Self> {
        let full = 2 * WIDTH;
        let starts = (0..rows).step_by(full);
        starts
            .map(|first| {
                let count = full.min(rows - first);
                Self { rows: first..first + count, lanes: count.div_ceil(2).next_power_of_two() }
            })
            .collect()
    }

    /// Floats for one complex value of each lane.
    pub(crate) const fn floats(&self) -> usize {
        2 * self.lanes
    }

    /// The row that is the real (`part` 0) or imaginary (1) part of a lane.
    pub(crate) fn row(&self, lane: usize, part: usize) -> Option<usize> {
        let row = self.rows.start + part * self.lanes + lane;
        self.rows.contains(&row).then_some(row)
    }
}

/// Calls a function whose only constant parameter is the number of lanes of a group.
macro_rules! with_lanes {
    ($lanes:expr, $name:ident => $call:expr) => {
        match $lanes {
            8 => {
                const $name: usize = 8;
                $call
            }
            4 => {
                const $name: usize = 4;
                $call
            }
            2 => {
                const $name: usize = 2;
                $call
            }
            _ => {
                const $name: usize = 1;
                $call
            }
        }
    };
}

pub(crate) use with_lanes;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_place_and_few_lanes_are_empty() {
        for rows in 1..70 {
            let groups = RowGroup::split(rows);
            let mut seen = Vec::new();
            for group in &groups {
                let places = (0..2).flat_map(|part| (0..group.lanes).map(move |lane| (lane, part)));
                seen.extend(places.filter_map(|(lane, part)| group.row(lane, part)));
            }
            assert_eq!(seen, (0..rows).collect::<Vec<_>>());
            let room: usize = groups.iter().map(RowGroup::floats).sum();
            assert!(room < 2 * rows.max(2), "{room} for {rows}");
        }
    }
}
