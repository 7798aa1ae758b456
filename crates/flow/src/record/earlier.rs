//! What a recording that was cut off holds for the run that goes on with it.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use beamstream_node::prelude::*;
use beamstream_node::{Earlier, EarlierStep};
use beamstream_tape::{Content, Entry, Stored, TapeError, TapeReader};

use super::failed;

/// Reads the darks and flats that are still valid, and the series in which the earlier run was killed.
pub(super) struct EarlierRecording {
    tape: TapeReader,
    projection_series: u64,
    /// Where the series begin that are still to be read.
    pending: VecDeque<u64>,
    /// Whether a series is being read.
    within: bool,
    block: Option<Entry>,
    /// Tells the recorder that it is read.
    taken: Arc<AtomicBool>,
}

impl EarlierRecording {
    /// `sent` of `all` series of the tape are given again.
    pub(super) fn new(path: &Path, all: &[Stored], sent: &VecDeque<Stored>) -> Result<Self, TapeError> {
        Ok(Self {
            tape: TapeReader::open(path)?,
            projection_series: all
                .iter()
                .filter(|series| series.ended && series.roles.contains(&Role::Projection))
                .count() as u64,
            pending: sent.iter().map(|series| series.offset).collect(),
            within: false,
            block: None,
            taken: Arc::default(),
        })
    }

    /// Becomes true as soon as somebody reads it.
    pub(super) fn taken(&self) -> Arc<AtomicBool> {
        self.taken.clone()
    }
}

impl Earlier for EarlierRecording {
    fn projection_series(&self) -> u64 {
        self.projection_series
    }

    fn step(&mut self) -> Result<Option<EarlierStep>, NodeError> {
        self.taken.store(true, Ordering::Release);
        if !self.within {
            let Some(offset) = self.pending.pop_front() else { return Ok(None) };
            self.tape.seek(offset);
        }
        let entry = self.tape.next_entry().map_err(failed)?;
        self.within = true;
        Ok(match entry {
            // The series that was cut off; the recorder writes on behind it from now on.
            None => None,
            Some(entry) => match entry.content.clone() {
                Content::Series(header) => Some(EarlierStep::Begin(header)),
                Content::Block { meta, format } => {
                    self.block = Some(entry);
                    Some(EarlierStep::Block { meta, format })
                }
                Content::End(summary) => {
                    self.within = false;
                    Some(EarlierStep::End(summary))
                }
                Content::Account { .. } | Content::Index => None,
            },
        })
    }

    fn read(&mut self, pixels: &mut [u8]) -> Result<(), NodeError> {
        let Some(entry) = &self.block else {
            return Err(NodeError::new(NodeErrorKind::Internal, "no block was read before its pixels"));
        };
        self.tape.read_pixels(entry, pixels).map_err(|error| match error {
            TapeError::Damaged { .. } => {
                NodeError::because(NodeErrorKind::Block, "a recorded frame is left out", error)
            }
            error => failed(error),
        })
    }
}

/// The series that a run that goes on with a recording needs again: the newest darks and flats, and the series that
/// was not ended.
pub(super) fn needed(all: &[Stored]) -> VecDeque<Stored> {
    let mut needed = VecDeque::new();
    let mut found = BTreeSet::from([Role::Projection, Role::Invalid]);
    for (back, series) in all.iter().rev().enumerate() {
        let is_open = back == 0 && !series.ended;
        let is_reference = series.ended && !series.roles.contains(&Role::Projection);
        if is_open || (is_reference && !series.roles.is_subset(&found)) {
            if is_reference {
                found.extend(&series.roles);
            }
            needed.push_front(series.clone());
        }
    }
    needed
}
