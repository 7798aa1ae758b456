//! Going on with a series in which an earlier run was killed.

use std::time::Instant;

use beamstream_core::{BlockMeta, SeriesHeader};
use serde_json::Value;

use super::{Assembler, Entry, Ledger, OpenSeries, Start};

impl Assembler {
    /// So many series of projections ended in earlier runs.
    pub fn resume_after(&mut self, projection_series: u64) {
        self.projection_series = projection_series;
    }

    /// Opens a series of an earlier run again, begun as its header says; the frames that are left of it follow.
    pub fn resume(&mut self, header: &SeriesHeader, now: Instant) {
        let id = header.id;
        self.close(false);
        self.next_ordinal = self.next_ordinal.max(id.ordinal + 1);
        let turn = id.ordinal;
        self.opened = self.opened.max(turn + 1);
        // Protocols with headers always tell something in them.
        let had_header = header.expected_frames.is_some() || *header.metadata != Value::Null;
        let start = had_header.then(|| Start {
            series: Some(id.number),
            expected_frames: header.expected_frames,
            element: Some(header.format.element),
            shape: Some(header.format.shape),
            pixel_size_m: header.pixel_size_m,
            metadata: (*header.metadata).clone(),
            ..Start::default()
        });
        let mut open = OpenSeries::new(id, Some(id.number), start, &self.rules, turn, 0, now);
        open.resume(header);
        let ledger = Ledger::new(open.announced());
        self.by_number.insert(id.number, id.ordinal);
        let entry = Entry { id, ledger, first_frame: None, last_frame: None, aborted: false };
        self.entries.insert(id.ordinal, entry);
        self.changed.insert(id.ordinal);
        self.open = Some(open);
    }

    /// Takes account of a frame that the earlier run had accepted.
    pub fn resumed(&mut self, meta: &BlockMeta, now: Instant) {
        let Some(open) = &mut self.open else { return };
        let Some(entry) = self.entries.get_mut(&open.id.ordinal) else { return };
        open.heard = now;
        open.resumed(meta, &self.rules);
        entry.seen(now);
        entry.ledger.receive(meta.frame);
        self.changed.insert(open.id.ordinal);
        self.close_if_complete();
    }

    /// The series had ended in the earlier run.
    pub fn resumed_end(&mut self) {
        self.close(false);
    }
}
