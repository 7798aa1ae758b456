//! When to look at unfinished work.

use std::time::{Duration, Instant};

use super::PreviewConfig;

/// Looks cost at most this part of the time.
const MOST_OF_TIME: u32 = 10;
/// Looks come no faster than eyes follow.
const FASTEST: Duration = Duration::from_millis(200);

/// Decides when the next look is due.
pub(super) struct PreviewClock {
    every_projections: Option<u64>,
    projections: u64,
    /// Projections and time of the last look.
    last: Option<(u64, Instant)>,
    pause: Duration,
}

impl PreviewClock {
    pub(super) fn new(config: &PreviewConfig) -> Self {
        Self { every_projections: config.every_projections, projections: 0, last: None, pause: FASTEST }
    }

    /// Notes that projections were added; says whether a look is due.
    pub(super) fn is_due(&mut self, added: u64) -> bool {
        self.projections += added;
        match (self.every_projections, self.last) {
            (Some(every), last) => {
                self.projections - last.map_or(0, |(projections, _)| projections) >= every.max(1)
            }
            (None, None) => true,
            (None, Some((_, when))) => when.elapsed() >= self.pause,
        }
    }

    /// Notes that a look was had and what it cost.
    pub(super) fn looked(&mut self, cost: Duration) {
        self.last = Some((self.projections, Instant::now()));
        self.pause = FASTEST.max(cost * MOST_OF_TIME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_due_after_so_many_projections() {
        let config = PreviewConfig { every_projections: Some(10), slices: vec![] };
        let mut clock = PreviewClock::new(&config);
        assert!(!clock.is_due(9));
        assert!(clock.is_due(1));
        clock.looked(Duration::ZERO);
        assert!(!clock.is_due(9));
    }

    #[test]
    fn the_first_look_is_due_at_once_and_the_next_after_a_pause() {
        let mut clock = PreviewClock::new(&PreviewConfig::default());
        assert!(clock.is_due(1));
        clock.looked(Duration::from_secs(100));
        assert!(!clock.is_due(1));
    }

    #[test]
    fn three_rows_are_spread_over_the_volume() {
        let config = PreviewConfig::default();
        assert_eq!(config.rows(6), [1, 3, 5]);
        assert_eq!(config.rows(1), [0]);
        assert_eq!(PreviewConfig { slices: vec![4, 99], ..config }.rows(6), [4]);
    }
}
