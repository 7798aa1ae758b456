//! The account of a series' frames: nothing is lost without being counted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::FrameId;

/// What became of a frame that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is new and belongs to the series: use it.
    Accepted,
    /// The same frame was accepted before.
    Duplicate,
    /// It arrived after its series was closed.
    Late,
    /// Its number lies outside the announced range.
    OutOfRange,
}

/// Counts of a series' frames: `received = processed + duplicate + late + rejected`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameCounts {
    /// Announced, or for streams without a header the span from the first to the last number; `None` if unknown.
    pub expected: Option<u64>,
    /// Arrived, whatever became of them.
    pub received: u64,
    /// Accepted and handed on.
    pub processed: u64,
    /// Arrived again.
    pub duplicate: u64,
    /// Arrived after the series was closed.
    pub late: u64,
    /// Arrived, but could not be used.
    pub rejected: u64,
    /// Of the processed, those that went over disk.
    pub spilled: u64,
    /// Expected, but neither processed nor rejected.
    pub lost: u64,
    /// Numbers of the lost frames as `[first, last]`, both included.
    pub lost_ranges: Vec<[u64; 2]>,
    /// Reasons of the rejections with their counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// Rejected frames of which no good copy came.
    #[serde(skip)]
    pub unreplaced: u64,
}

impl FrameCounts {
    /// Whether every frame that was announced or seen came through in a good copy.
    pub fn is_complete(&self) -> bool {
        self.lost == 0 && self.unreplaced == 0
    }
}

/// Most reasons that are told apart; further ones are counted together.
const MAX_REASONS: usize = 32;
/// Most rejected frames that are remembered by number.
const MAX_REJECTED_FRAMES: usize = 100_000;
/// Most lost ranges that are listed; the last one then covers the rest.
const MAX_LOST_RANGES: usize = 10_000;

/// Keeps account of the frames of one series, from its header to the end of the run.
///
/// Memory follows the number of gaps, not the number of frames: accepted numbers are kept as ranges.
#[derive(Debug, Clone)]
pub struct Ledger {
    announced: Option<u64>,
    received: u64,
    duplicate: u64,
    late: u64,
    rejected: u64,
    spilled: u64,
    reasons: BTreeMap<String, u64>,
    /// Accepted numbers per counter, as disjoint, non-adjacent ranges: first -> last.
    accepted: BTreeMap<u8, BTreeMap<u64, u64>>,
    accepted_count: u64,
    /// Numbers of rejected frames, where the number could be read.
    rejected_frames: BTreeSet<FrameId>,
    rejected_nameless: u64,
    closed: bool,
}

impl Ledger {
    /// Opens the account of a series; `announced` is the number of frames that its header promised.
    pub fn new(announced: Option<u64>) -> Self {
        Self {
            announced,
            received: 0,
            duplicate: 0,
            late: 0,
            rejected: 0,
            spilled: 0,
            reasons: BTreeMap::new(),
            accepted: BTreeMap::new(),
            accepted_count: 0,
            rejected_frames: BTreeSet::new(),
            rejected_nameless: 0,
            closed: false,
        }
    }

    /// Says what [`Self::receive`] would, without counting anything: for deciding before a costly decode.
    pub fn judge(&self, frame: FrameId) -> Verdict {
        if self.closed {
            Verdict::Late
        } else if self.announced.is_some_and(|n| frame.number >= n) {
            Verdict::OutOfRange
        } else if self.contains(frame) {
            Verdict::Duplicate
        } else {
            Verdict::Accepted
        }
    }

    /// Counts a frame that arrived in good shape and says what to do with it.
    pub fn receive(&mut self, frame: FrameId) -> Verdict {
        let verdict = self.judge(frame);
        self.received += 1;
        match verdict {
            Verdict::Accepted => self.accept(frame),
            Verdict::Duplicate => self.duplicate += 1,
            Verdict::Late => self.late += 1,
            Verdict::OutOfRange => {
                self.count_rejection("frame number outside the announced range");
            }
        }
        verdict
    }

    /// Counts a frame that arrived but cannot be used. `frame` is `None` where not even its number could be read.
    ///
    /// A damaged copy of a frame that is already here counts as rejected and leaves the good one alone.
    pub fn reject(&mut self, frame: Option<FrameId>, reason: &str) {
        self.received += 1;
        self.count_rejection(reason);
        match frame {
            Some(frame)
                if self.announced.is_none_or(|n| frame.number < n)
                    && self.rejected_frames.len() < MAX_REJECTED_FRAMES =>
            {
                self.rejected_frames.insert(frame);
            }
            Some(frame) if self.announced.is_some_and(|n| frame.number >= n) => {}
            Some(_) | None => self.rejected_nameless += 1,
        }
    }

    /// Counts a frame that belongs to another series or came when none was open.
    pub fn refuse(&mut self, reason: &str) {
        self.received += 1;
        self.rejected_nameless += 1;
        self.count_rejection(reason);
    }

    /// Counts `frames` of the processed that went over disk.
    pub fn spill(&mut self, frames: u64) {
        self.spilled += frames;
    }

    /// Closes the series: frames that still come are late.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether the series was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether every announced frame was accepted; never true where none was announced.
    pub fn all_accepted(&self) -> bool {
        self.announced.is_some_and(|n| self.accepted_count >= n)
    }

    /// Frames accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted_count
    }

    /// Frames that were announced.
    pub fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Whether no frame has arrived, good or bad.
    pub fn is_untouched(&self) -> bool {
        self.received == 0
    }

    /// The account as it stands.
    pub fn counts(&self) -> FrameCounts {
        let gaps = self.gaps();
        let missing = gaps
            .iter()
            .fold(0_u64, |sum, [first, last]| sum.saturating_add((last - first).saturating_add(1)));
        let lost = missing.saturating_sub(self.rejected_within(&gaps));
        let lost_ranges = if lost == 0 { Vec::new() } else { self.lost_ranges(&gaps) };
        FrameCounts {
            expected: self.expected(),
            received: self.received,
            processed: self.accepted_count,
            duplicate: self.duplicate,
            late: self.late,
            rejected: self.rejected,
            spilled: self.spilled,
            lost,
            lost_ranges,
            rejected_by_reason: self.reasons.clone(),
            unreplaced: self.rejected_frames.iter().filter(|f| !self.contains(**f)).count() as u64
                + self.rejected_nameless,
        }
    }

    fn accept(&mut self, frame: FrameId) {
        self.accepted_count += 1;
        let ranges = self.accepted.entry(frame.counter).or_default();
        let number = frame.number;
        let below = ranges.range(..number).next_back().map(|(&first, &last)| (first, last));
        let (first, last) = match below {
            Some((first, last)) if last + 1 == number => (first, number),
            _ => (number, number),
        };
        let last = match last.checked_add(1).and_then(|next| ranges.remove(&next)) {
            Some(joined) => joined,
            None => last,
        };
        ranges.insert(first, last);
    }

    fn contains(&self, frame: FrameId) -> bool {
        self.accepted.get(&frame.counter).is_some_and(|ranges| {
            ranges.range(..=frame.number).next_back().is_some_and(|(_, &last)| last >= frame.number)
        })
    }

    fn count_rejection(&mut self, reason: &str) {
        self.rejected += 1;
        let known = self.reasons.contains_key(reason) || self.reasons.len() < MAX_REASONS;
        let key = if known { reason } else { "other reasons" };
        *self.reasons.entry(key.to_owned()).or_default() += 1;
    }

    /// Announced, or the span from the first to the last number of each counter.
    fn expected(&self) -> Option<u64> {
        self.announced.or_else(|| {
            (self.accepted_count > 0).then(|| {
                self.spans()
                    .fold(0_u64, |sum, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
            })
        })
    }

    fn spans(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.accepted.values().filter_map(|ranges| {
            let (&first, _) = ranges.first_key_value()?;
            let (_, &last) = ranges.last_key_value()?;
            Some((first, last))
        })
    }

    /// Ranges of numbers that were expected and not accepted.
    fn gaps(&self) -> Vec<[u64; 2]> {
        let mut gaps = Vec::new();
        if let Some(announced) = self.announced {
            let empty = BTreeMap::new();
            let ranges = self.accepted.values().next().unwrap_or(&empty);
            let mut next = 0;
            for (&first, &last) in ranges {
                if first > next {
                    gaps.push([next, first - 1]);
                }
                next = last.saturating_add(1);
            }
            if next < announced {
                gaps.push([next, announced - 1]);
            }
        } else {
            for ranges in self.accepted.values() {
                let pairs = ranges.iter().zip(ranges.iter().skip(1));
                gaps.extend(pairs.map(|((_, &last), (&first, _))| [last + 1, first - 1]));
            }
        }
        gaps
    }

    fn rejected_within(&self, gaps: &[[u64; 2]]) -> u64 {
        let inside = |f: &FrameId| {
            let at = gaps.partition_point(|[_, last]| *last < f.number);
            gaps.get(at).is_some_and(|[first, _]| *first <= f.number)
        };
        // Gaps of several counters overlap in number; such streams announce nothing and are rare: count each once.
        self.rejected_frames.iter().filter(|f| !self.contains(**f) && inside(f)).count() as u64
    }

    /// The gaps without the numbers of rejected frames.
    fn lost_ranges(&self, gaps: &[[u64; 2]]) -> Vec<[u64; 2]> {
        let mut lost = Vec::new();
        for &[first, last] in gaps {
            let mut next = first;
            for frame in self.rejected_frames.iter().filter(|f| (first..=last).contains(&f.number)) {
                if frame.number > next {
                    lost.push([next, frame.number - 1]);
                }
                next = next.max(frame.number + 1);
            }
            if next <= last {
                lost.push([next, last]);
            }
        }
        if lost.len() > MAX_LOST_RANGES {
            let end = lost.last().map_or(0, |r| r[1]);
            lost.truncate(MAX_LOST_RANGES);
            if let Some(tail) = lost.last_mut() {
                tail[1] = end;
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(ledger: &mut Ledger, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            ledger.receive(FrameId::new(number));
        }
    }

    #[test]
    fn gaps_doubles_and_swaps_are_told_apart() {
        let mut ledger = Ledger::new(Some(12));
        feed(&mut ledger, [0, 2, 1, 5, 6, 6, 7, 8, 10, 11]);
        let counts = ledger.counts();
        assert_eq!((counts.processed, counts.duplicate, counts.lost), (9, 1, 3));
        assert_eq!(counts.lost_ranges, [[3, 4], [9, 9]]);
        assert!(!counts.is_complete());
    }

    #[test]
    fn a_good_copy_redeems_a_rejected_frame() {
        let mut ledger = Ledger::new(Some(2));
        ledger.receive(FrameId::new(0));
        ledger.reject(Some(FrameId::new(1)), "truncated");
        assert_eq!((ledger.counts().lost, ledger.counts().unreplaced), (0, 1));
        ledger.receive(FrameId::new(1));
        let counts = ledger.counts();
        assert_eq!((counts.processed, counts.rejected, counts.lost), (2, 1, 0));
        assert!(counts.is_complete() && ledger.all_accepted());
    }

    #[test]
    fn a_stream_without_header_may_begin_anywhere() {
        let mut ledger = Ledger::new(None);
        feed(&mut ledger, 1000..1010);
        assert_eq!((ledger.counts().expected, ledger.counts().lost), (Some(10), 0));
    }

    #[test]
    fn an_absurd_number_is_rejected_not_believed() {
        let mut ledger = Ledger::new(Some(40));
        assert_eq!(ledger.receive(FrameId::new(4_000_000_000)), Verdict::OutOfRange);
        feed(&mut ledger, 0..40);
        let counts = ledger.counts();
        assert_eq!((counts.processed, counts.rejected, counts.lost), (40, 1, 0));
    }

    #[test]
    fn frames_after_the_end_are_late() {
        let mut ledger = Ledger::new(Some(3));
        feed(&mut ledger, 0..2);
        ledger.close();
        assert_eq!(ledger.receive(FrameId::new(2)), Verdict::Late);
        assert_eq!((ledger.counts().late, ledger.counts().lost), (1, 1));
    }

    proptest! {
        /// The sums of the report hold whatever arrives, and equal those of a naive account.
        #[test]
        fn the_account_adds_up(
            announced in proptest::option::of(1_u64..60),
            events in proptest::collection::vec((0_u64..70, 0_u8..8), 0..200),
        ) {
            let mut ledger = Ledger::new(announced);
            let mut good = BTreeSet::new();
            for (number, kind) in events {
                if kind == 0 {
                    ledger.reject(Some(FrameId::new(number)), "damaged");
                } else if ledger.receive(FrameId::new(number)) == Verdict::Accepted {
                    prop_assert!(good.insert(number));
                }
            }
            let counts = ledger.counts();
            prop_assert_eq!(counts.received, counts.processed + counts.duplicate + counts.late + counts.rejected);
            prop_assert_eq!(counts.processed, good.len() as u64);
            if let Some(expected) = counts.expected {
                let missing = expected - counts.processed;
                prop_assert!(counts.lost <= missing && missing <= counts.lost + counts.rejected);
            }
            let listed: u64 = counts.lost_ranges.iter().map(|[a, b]| b - a + 1).sum();
            prop_assert_eq!(listed, counts.lost);
            prop_assert!(counts.lost_ranges.iter().all(|[a, b]| (*a..=*b).all(|n| !good.contains(&n))));
        }
    }
}
