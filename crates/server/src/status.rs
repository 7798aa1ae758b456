//! The state of a run as the page and other programs read it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use beamstream_core::Content;
use beamstream_engine::{NodeStatus, RunState, Status};
use beamstream_node::{SeriesRecord, View};
use serde::Serialize;

use crate::gallery;

/// Series that are told one by one, the newest ones.
const RECENT_SERIES: usize = 8;
/// Span over which rates are taken. Unit: seconds.
const RATE_SPAN_SECS: f64 = 2.0;

/// A look at a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LiveStatus {
    /// Whether it works.
    pub(crate) state: RunState,
    /// Seconds since its start.
    pub(crate) elapsed_secs: f64,
    /// How fast frames come now.
    pub(crate) rate: Rate,
    /// The frames of all series so far.
    pub(crate) totals: Totals,
    /// Number of series so far.
    pub(crate) series_count: usize,
    /// The newest series, the newest last.
    pub(crate) series: Vec<SeriesStatus>,
    /// All nodes.
    pub(crate) nodes: Vec<NodeStatus>,
    /// What the `view` nodes show, in the order of their numbers in image messages.
    pub(crate) views: Vec<ViewStatus>,
    /// How many watch.
    pub(crate) viewers: usize,
}

/// What the sources of a run hand on, over the last two seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Rate {
    /// Frames a second.
    pub(crate) frames_per_sec: f64,
    /// Bytes a second, decompressed.
    pub(crate) bytes_per_sec: f64,
}

/// Frames of all series of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    /// Arrived.
    pub(crate) received: u64,
    /// Accepted and handed on.
    pub(crate) processed: u64,
    /// Missing, as far as that is known by now.
    pub(crate) lost: u64,
}

/// One series.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SeriesStatus {
    /// The detector's number, or the count on arrival.
    pub(crate) id: u64,
    /// Count of the series in this run, from 0.
    pub(crate) ordinal: u64,
    /// The account of its frames.
    pub(crate) frames: FrameFigures,
    /// Number of different projections used.
    pub(crate) projections: Option<u64>,
    /// Rotation axis used, in detector columns.
    pub(crate) rotation_axis_px: Option<f64>,
    /// From the first to the newest frame. Unit: seconds.
    pub(crate) acquisition_secs: Option<f64>,
    /// From the last frame to the last slice of the volume. Unit: seconds.
    pub(crate) last_frame_to_volume_secs: Option<f64>,
    /// Whether it was cut short.
    pub(crate) aborted: bool,
}

/// The frames of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct FrameFigures {
    /// Announced; `None` if unknown.
    pub(crate) expected: Option<u64>,
    /// Arrived, whatever became of them.
    pub(crate) received: u64,
    /// Accepted and handed on.
    pub(crate) processed: u64,
    /// Arrived again.
    pub(crate) duplicate: u64,
    /// Arrived after the series was closed.
    pub(crate) late: u64,
    /// Arrived, but could not be used.
    pub(crate) rejected: u64,
    /// Missing; while frames still come, those that later frames have overtaken.
    pub(crate) lost: u64,
}

/// What one `view` node shows.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ViewStatus {
    /// The node.
    pub(crate) node: String,
    /// Frames or slices; `None` before the first series.
    pub(crate) content: Option<Content>,
    /// Number of the series on show.
    pub(crate) series: Option<u64>,
    /// The images, from the lowest row to the highest.
    pub(crate) images: Vec<ImageStatus>,
}

/// Where one image belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ImageStatus {
    /// The slice's z, or 0 for frames.
    pub(crate) place: u64,
    /// The detector row that a slice shows; `None` for frames.
    pub(crate) detector_row: Option<u64>,
}

/// Makes one [`LiveStatus`] after the other; remembers what rates are taken from.
#[derive(Default)]
pub(crate) struct StatusMaker {
    samples: VecDeque<Sample>,
}

/// What the sources had handed on at a time.
#[derive(Clone, Copy)]
struct Sample {
    at_secs: f64,
    frames: u64,
    bytes: u64,
}

impl StatusMaker {
    /// The state of a run in the form that is sent.
    pub(crate) fn make(
        &mut self,
        run: &Status,
        views: &BTreeMap<String, View>,
        viewers: usize,
    ) -> LiveStatus {
        let newest = run.series.len().saturating_sub(1);
        let open = |at: usize| at == newest && run.state != RunState::Ended;
        let series = || run.series.iter().enumerate().map(|(at, record)| series_status(record, open(at)));
        let mut totals = Totals::default();
        for frames in series().map(|series| series.frames) {
            totals.received += frames.received;
            totals.processed += frames.processed;
            totals.lost += frames.lost;
        }
        LiveStatus {
            state: run.state,
            elapsed_secs: run.elapsed.as_secs_f64(),
            rate: self.rate(run),
            totals,
            series_count: run.series.len(),
            series: series().skip(run.series.len().saturating_sub(RECENT_SERIES)).collect(),
            nodes: run.nodes.clone(),
            views: views.iter().map(|(node, view)| view_status(node, view)).collect(),
            viewers,
        }
    }

    fn rate(&mut self, run: &Status) -> Rate {
        let sources = || run.nodes.iter().filter(|node| node.kind.ends_with("_source"));
        let now = Sample {
            at_secs: run.elapsed.as_secs_f64(),
            frames: sources().map(|node| node.blocks_out).sum(),
            bytes: sources().map(|node| node.bytes_out).sum(),
        };
        // One sample older than the span is kept, so that the rate is always taken over the whole of it.
        while self.samples.get(1).is_some_and(|second| now.at_secs - second.at_secs >= RATE_SPAN_SECS) {
            self.samples.pop_front();
        }
        self.samples.push_back(now);
        let Some(then) = self.samples.front() else {
            return Rate::default();
        };
        let span = now.at_secs - then.at_secs;
        if span <= 0.0 {
            return Rate::default();
        }
        Rate {
            frames_per_sec: now.frames.saturating_sub(then.frames) as f64 / span,
            bytes_per_sec: now.bytes.saturating_sub(then.bytes) as f64 / span,
        }
    }
}

fn series_status(record: &SeriesRecord, newest: bool) -> SeriesStatus {
    let between =
        |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?).as_secs_f64());
    let counts = &record.counts;
    let receiving = newest && record.volume_done.is_none() && !record.aborted;
    SeriesStatus {
        id: record.id.number,
        ordinal: record.id.ordinal,
        frames: FrameFigures {
            expected: counts.expected,
            received: counts.received,
            processed: counts.processed,
            duplicate: counts.duplicate,
            late: counts.late,
            rejected: counts.rejected,
            lost: if receiving { overtaken(record) } else { counts.lost },
        },
        projections: record.projections,
        rotation_axis_px: record.rotation_axis_px,
        acquisition_secs: between(record.first_frame, record.last_frame),
        last_frame_to_volume_secs: between(record.last_frame, record.volume_done),
        aborted: record.aborted,
    }
}

/// Missing frames of a series that still goes on: the open end of its numbers has not come yet, and is no loss.
fn overtaken(record: &SeriesRecord) -> u64 {
    let counts = &record.counts;
    let still_to_come = match (counts.lost_ranges.last(), counts.expected) {
        (Some([first, last]), Some(expected)) if last + 1 >= expected => last - first + 1,
        _ => 0,
    };
    counts.lost.saturating_sub(still_to_come)
}

fn view_status(node: &str, view: &View) -> ViewStatus {
    let header = view.header.as_ref();
    let detector_row = |place| {
        let header = header.filter(|header| header.content == Content::Volume)?;
        Some(header.detector_row(place))
    };
    ViewStatus {
        node: node.to_owned(),
        content: header.map(|header| header.content),
        series: header.map(|header| header.id.number),
        images: gallery::places(view)
            .into_iter()
            .map(|place| ImageStatus { place, detector_row: detector_row(place) })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use beamstream_core::{FrameId, Ledger};
    use beamstream_engine::WorkerState;

    use super::*;
    use crate::tests::{record, run_status};

    fn at(seconds: u64, frames: u64) -> Status {
        let mut status = run_status();
        status.elapsed = Duration::from_secs(seconds);
        status.nodes = vec![
            node("detector", "zmq_source", frames, frames * 100),
            node("correct", "flat_field", frames * 7, frames * 7000),
        ];
        status
    }

    fn node(id: &str, kind: &'static str, blocks_out: u64, bytes_out: u64) -> NodeStatus {
        NodeStatus {
            id: id.to_owned(),
            kind,
            state: WorkerState::Working,
            blocks_in: 0,
            blocks_out,
            bytes_out,
        }
    }

    #[test]
    fn rates_are_of_the_sources_over_two_seconds() {
        let mut maker = StatusMaker::default();
        let rates = [(0, 0), (1, 50), (2, 100), (3, 300), (4, 300), (5, 300)]
            .map(|(seconds, frames)| maker.make(&at(seconds, frames), &BTreeMap::new(), 0).rate);
        assert_eq!(rates.map(|rate| rate.frames_per_sec), [0.0, 50.0, 50.0, 125.0, 100.0, 0.0]);
        assert_eq!(rates[1].bytes_per_sec, 5000.0);
    }

    #[test]
    fn frames_that_are_still_to_come_are_not_lost() {
        let mut ledger = Ledger::new(Some(10));
        for number in [0, 1, 3, 4] {
            ledger.receive(FrameId::new(number));
        }
        let mut status = run_status();
        status.series = vec![record(7, ledger.counts())];
        let lost = |status: &Status| StatusMaker::default().make(status, &BTreeMap::new(), 0).totals.lost;
        assert_eq!(lost(&status), 1);
        status.state = RunState::Ended;
        assert_eq!(lost(&status), 6);
    }

    #[test]
    fn only_the_newest_series_are_told() {
        let mut status = run_status();
        status.series = (0..20).map(|id| record(id, Ledger::new(Some(1)).counts())).collect();
        let live = StatusMaker::default().make(&status, &BTreeMap::new(), 3);
        let ids: Vec<u64> = live.series.iter().map(|series| series.id).collect();
        assert_eq!(ids, [12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!((live.series_count, live.viewers), (20, 3));
    }
}
