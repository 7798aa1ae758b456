//! What happened in a run: the stuff that its report is made of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use beamstream_core::{FrameCounts, SeriesId};
use serde::Serialize;

/// Most different warnings that are kept; further ones are only counted.
const MAX_WARNINGS: usize = 200;
/// Most series that are kept one by one; the oldest complete ones are forgotten beyond.
const MAX_SERIES: usize = 20_000;

/// Something a user should know of, though the run went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The node that says it.
    pub node: String,
    /// What happened and what to do.
    pub message: String,
    /// How often.
    pub count: u64,
}

/// What is known of one series.
#[derive(Debug, Clone)]
pub struct SeriesRecord {
    /// Which series.
    pub id: SeriesId,
    /// The account of its frames.
    pub counts: FrameCounts,
    /// Rotation axis that was used, in detector columns.
    pub rotation_axis_px: Option<f64>,
    /// Number of different projections used.
    pub projections: Option<u64>,
    /// First and last angle used, in radians.
    pub angle_range_rad: Option<[f64; 2]>,
    /// When the first frame came.
    pub first_frame: Option<Instant>,
    /// When the last frame came.
    pub last_frame: Option<Instant>,
    /// When the last slice of its volume was made; where a device makes it, when it was in host memory.
    pub volume_done: Option<Instant>,
    /// When the last slice of its volume was made on a device.
    pub volume_on_device: Option<Instant>,
    /// Bytes of the blocks that its source sent, in all passes.
    pub bytes_in: u64,
    /// Bytes of the blocks that its sinks took.
    pub bytes_out: u64,
    /// Bytes that were copied from one memory to another on the way.
    pub bytes_copied: u64,
    /// Of its frames, those that went over disk on an edge that spills.
    pub spilled: u64,
    /// Whether it was cut short.
    pub aborted: bool,
}

impl SeriesRecord {
    /// A series of which nothing has come yet.
    pub fn new(id: SeriesId) -> Self {
        Self {
            id,
            counts: FrameCounts::default(),
            rotation_axis_px: None,
            projections: None,
            angle_range_rad: None,
            first_frame: None,
            last_frame: None,
            volume_done: None,
            volume_on_device: None,
            bytes_in: 0,
            bytes_out: 0,
            bytes_copied: 0,
            spilled: 0,
            aborted: false,
        }
    }
}

#[derive(Default)]
struct Entries {
    series: BTreeMap<u64, SeriesRecord>,
    forgotten: u64,
    warnings: Vec<Warning>,
    more_warnings: u64,
}

/// The shared diary of a run, as one node writes into it.
#[derive(Clone)]
pub struct Journal {
    node: Arc<str>,
    entries: Arc<Mutex<Entries>>,
}

impl Journal {
    /// An empty journal; `node` signs what is written through this handle.
    pub fn new(node: &str) -> Self {
        Self { node: node.into(), entries: Arc::default() }
    }

    /// The same journal for another node.
    #[must_use]
    pub fn signed(&self, node: &str) -> Self {
        Self { node: node.into(), entries: self.entries.clone() }
    }

    /// Warns the user: into the log and into the report. Repeated texts are counted, not repeated.
    pub fn warn(&self, message: impl Into<String>) {
        let message = message.into();
        let mut entries = self.lock();
        if let Some(known) =
            entries.warnings.iter_mut().find(|w| *w.node == *self.node && w.message == message)
        {
            known.count += 1;
            return;
        }
        tracing::warn!(node = &*self.node, "{message}");
        if entries.warnings.len() < MAX_WARNINGS {
            entries.warnings.push(Warning { node: self.node.to_string(), message, count: 1 });
        } else {
            entries.more_warnings += 1;
        }
    }

    /// Changes what is known of a series.
    pub fn series(&self, id: SeriesId, change: impl FnOnce(&mut SeriesRecord)) {
        let mut entries = self.lock();
        change(entries.series.entry(id.ordinal).or_insert_with(|| SeriesRecord::new(id)));
        if entries.series.len() > MAX_SERIES
            && let Some(oldest) = entries.series.iter().find(|(_, r)| r.counts.is_complete()).map(|(&k, _)| k)
        {
            entries.series.remove(&oldest);
            entries.forgotten += 1;
        }
    }

    /// All series, in the order in which they began.
    pub fn all_series(&self) -> Vec<SeriesRecord> {
        self.lock().series.values().cloned().collect()
    }

    /// Complete series that were forgotten because there were so many.
    pub fn forgotten_series(&self) -> u64 {
        self.lock().forgotten
    }

    /// All warnings, in the order in which they came first.
    pub fn warnings(&self) -> Vec<Warning> {
        let entries = self.lock();
        let mut warnings = entries.warnings.clone();
        if entries.more_warnings > 0 {
            let message = format!("{} further warnings are in the log only", entries.more_warnings);
            warnings.push(Warning { node: String::new(), message, count: 1 });
        }
        warnings
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("node", &self.node).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_said_twice_is_counted() {
        let journal = Journal::new("a");
        journal.warn("dim");
        journal.warn("dim");
        journal.signed("b").warn("dim");
        let counts: Vec<u64> = journal.warnings().iter().map(|w| w.count).collect();
        assert_eq!(counts, [2, 1]);
    }

    #[test]
    fn warnings_are_bounded() {
        let journal = Journal::new("a");
        for i in 0..1000 {
            journal.warn(format!("warning {i}"));
        }
        let warnings = journal.warnings();
        assert_eq!(warnings.len(), MAX_WARNINGS + 1);
        assert!(warnings.last().unwrap().message.contains("800"));
    }
}
