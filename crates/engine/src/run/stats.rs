//! What is counted of a node while it works.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::trace::{Doing, Track};

/// What a worker does right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Waits for its input.
    WaitingInput,
    /// Computes, or in a source waits for the outside.
    Working,
    /// Waits for room behind it.
    WaitingOutput,
    /// Has ended.
    Done,
}

/// Counters of one node. The worker alone writes them; anybody reads.
pub(crate) struct NodeStats {
    started: Instant,
    /// Where it is remembered what the node does when, if the run is traced.
    track: Option<Track>,
    /// First and last block, since `started`; 0 before.
    began_ns: AtomicU64,
    last_ns: AtomicU64,
    /// Of the time spent waiting for input, that before the first block, and that until the end of the last series.
    waited_before_ns: AtomicU64,
    waited_until_last_ns: AtomicU64,
    blocks_in: AtomicU64,
    blocks_out: AtomicU64,
    bytes_out: AtomicU64,
    rejected: AtomicU64,
    waited_input_ns: AtomicU64,
    waited_output_ns: AtomicU64,
    waited_device_ns: AtomicU64,
    ended_ns: AtomicU64,
    state: AtomicU8,
}

impl NodeStats {
    pub(crate) fn new(started: Instant, track: Option<Track>) -> Self {
        Self {
            started,
            track,
            began_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            waited_before_ns: AtomicU64::new(0),
            waited_until_last_ns: AtomicU64::new(0),
            blocks_in: AtomicU64::new(0),
            blocks_out: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            waited_input_ns: AtomicU64::new(0),
            waited_output_ns: AtomicU64::new(0),
            waited_device_ns: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            state: AtomicU8::new(WorkerState::Working as u8),
        }
    }

    pub(crate) fn count_in(&self) {
        self.begin();
        bump(&self.blocks_in, 1);
    }

    pub(crate) fn count_out(&self, bytes: u64) {
        self.begin();
        bump(&self.blocks_out, 1);
        bump(&self.bytes_out, bytes);
    }

    /// Takes note of the first block.
    fn begin(&self) {
        if self.began_ns.load(Ordering::Relaxed) == 0 {
            self.began_ns.store(nanos(self.started.elapsed()).max(1), Ordering::Relaxed);
            self.waited_before_ns.store(self.waited_input_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// A series is over: nothing is at work until the next block.
    pub(crate) fn series_ended(&self) {
        self.last_ns.store(nanos(self.started.elapsed()).max(1), Ordering::Relaxed);
        self.waited_until_last_ns.store(self.waited_input_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// When the first block came or went, since the start of the run.
    pub(crate) fn began_secs(&self) -> Option<f64> {
        Some(self.began_ns.load(Ordering::Relaxed)).filter(|began| *began > 0).map(seconds)
    }

    /// When the last series ended, since the start of the run.
    pub(crate) fn last_secs(&self) -> Option<f64> {
        Some(self.last_ns.load(Ordering::Relaxed)).filter(|last| *last > 0).map(seconds)
    }

    /// Time spent waiting for input between the first block and the end of the last series.
    pub(crate) fn seconds_waiting_within(&self) -> f64 {
        let until = self.waited_until_last_ns.load(Ordering::Relaxed);
        seconds(until.saturating_sub(self.waited_before_ns.load(Ordering::Relaxed)))
    }

    /// When a span that is to be remembered begins; `None` if the run is not traced.
    pub(crate) fn span_begins(&self) -> Option<Instant> {
        self.track.is_some().then(Instant::now)
    }

    /// Remembers what the node did from then until now.
    pub(crate) fn span(&self, doing: Doing, since: Option<Instant>) {
        if let (Some(track), Some(since)) = (&self.track, since) {
            track.span(doing, since);
        }
    }

    pub(crate) fn count_rejected(&self) {
        bump(&self.rejected, 1);
    }

    pub(crate) fn count_input_wait(&self, waited: Duration) {
        bump(&self.waited_input_ns, nanos(waited));
    }

    pub(crate) fn count_output_wait(&self, waited_ns: u64) {
        bump(&self.waited_output_ns, waited_ns);
    }

    pub(crate) fn count_device_wait(&self, waited: Duration) {
        bump(&self.waited_device_ns, nanos(waited));
    }

    pub(crate) fn set_state(&self, state: WorkerState) {
        self.state.store(state as u8, Ordering::Relaxed);
        if state == WorkerState::Done {
            self.ended_ns.store(nanos(self.started.elapsed()), Ordering::Relaxed);
        }
    }

    pub(crate) fn state(&self) -> WorkerState {
        match self.state.load(Ordering::Relaxed) {
            0 => WorkerState::WaitingInput,
            1 => WorkerState::Working,
            2 => WorkerState::WaitingOutput,
            _ => WorkerState::Done,
        }
    }

    pub(crate) fn blocks_in(&self) -> u64 {
        self.blocks_in.load(Ordering::Relaxed)
    }

    pub(crate) fn blocks_out(&self) -> u64 {
        self.blocks_out.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn seconds_waiting_input(&self) -> f64 {
        seconds(self.waited_input_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn seconds_waiting_output(&self) -> f64 {
        seconds(self.waited_output_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn seconds_waiting_device(&self) -> f64 {
        seconds(self.waited_device_ns.load(Ordering::Relaxed))
    }

    /// From the start to the end of the node, or until now.
    pub(crate) fn seconds_alive(&self) -> f64 {
        match self.ended_ns.load(Ordering::Relaxed) {
            0 => self.started.elapsed().as_secs_f64(),
            ended => seconds(ended),
        }
    }

    /// Changes whenever the node takes or gives a block.
    pub(crate) fn progress(&self) -> u64 {
        self.blocks_in().wrapping_add(self.blocks_out())
    }
}

/// Adds to a counter that has one writer: a plain load and store, no locked instruction.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}
