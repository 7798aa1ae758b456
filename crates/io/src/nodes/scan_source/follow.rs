//! A scan that is still being written: frames are sent as they appear.

use std::time::{Duration, Instant};

use beamstream_core::{Ledger, Timestamps};
use beamstream_node::prelude::*;

use super::{OpenScan, ScanSource, Sent, unreadable};
use crate::scan::ScanError;

/// How often the file or folder is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How far a scan was sent.
struct Progress {
    started: Instant,
    /// Darks, flats and projections that were sent: more of each may appear, in whatever order the file lists them.
    sent: [usize; 3],
    ledger: Ledger,
}

impl ScanSource {
    /// Sends what is there, then what appears, until nothing has appeared for as long as `patience`.
    pub(super) fn follow(&mut self, patience: Duration, out: &mut Outlet) -> Result<(), NodeError> {
        let started = Instant::now();
        let Some(mut open) = self.first_look(started + patience, out)? else { return Ok(()) };
        let rows = 0..open.total_rows();
        let mut header = open.header(0, 1, &rows);
        // What is there now tells nothing of what will be.
        (header.expected_frames, header.roles, header.angles_rad) = (None, None, None);
        let (id, format) = (header.id, header.format);
        for warning in &open.scan.info().warnings {
            out.journal().warn(format!("{}: {warning}", open.scan.info().path.display()));
        }
        out.begin(header, 1)?;

        let mut progress = Progress { started, sent: [0; 3], ledger: Ledger::new(None) };
        let mut last_growth = Instant::now();
        loop {
            let before = progress.sent;
            // A frame that is half-written now is read again after the next look.
            let unread = progress.send_new(&mut open, format, out)?;
            if progress.sent != before {
                last_growth = Instant::now();
                let (counts, now) = (progress.ledger.counts(), last_growth);
                out.journal().series(id, |record| {
                    record.counts = counts.clone();
                    record.first_frame.get_or_insert(started);
                    record.last_frame = Some(now);
                });
            }
            if out.is_draining() {
                break;
            }
            let is_over = last_growth.elapsed() >= patience;
            match unread {
                Some(error) if is_over => return Err(unreadable(NodeErrorKind::Io, error)),
                None if is_over => break,
                _ => out.sleep_until(Instant::now() + LOOK_EVERY)?,
            }
            // A file that cannot be opened at this moment may be opened at the next.
            if let Ok(next) = OpenScan::new(&self.config) {
                let (was, is) = (open.scan.info().format, next.scan.info().format);
                if was != is {
                    let path = self.config.path.display();
                    let text = format!(
                        "{path} holds frames of {} {} now, after {} {}",
                        is.shape, is.element, was.shape, was.element
                    );
                    return Err(NodeError::new(NodeErrorKind::Io, text));
                }
                open = next;
            }
        }
        let (counts, aborted) = (progress.ledger.counts(), out.is_draining());
        out.journal().series(id, |record| record.aborted |= aborted);
        out.end(SeriesSummary { counts, aborted })
    }

    /// Opens the scan as soon as it has a frame; `None` if the run is to end before.
    fn first_look(&self, deadline: Instant, out: &Outlet) -> Result<Option<OpenScan>, NodeError> {
        loop {
            match OpenScan::new(&self.config) {
                Ok(open) if !open.order.is_empty() => return Ok(Some(open)),
                Err(error) if Instant::now() >= deadline => return Err(error),
                Ok(_) if Instant::now() >= deadline => {
                    let path = self.config.path.display();
                    return Err(NodeError::config(format!("{path}: expected frames, none appeared")));
                }
                _ if out.is_draining() => return Ok(None),
                _ => out.sleep_until(Instant::now() + LOOK_EVERY)?,
            }
        }
    }
}

impl Progress {
    /// Sends the frames that were not sent yet, up to one that cannot be read; gives the reason for that one.
    fn send_new(
        &mut self,
        open: &mut OpenScan,
        format: Format,
        out: &mut Outlet,
    ) -> Result<Option<ScanError>, NodeError> {
        let rows = 0..open.total_rows();
        let mut seen = [0; 3];
        for position in 0..open.order.len() {
            let Sent { frame, role, projection, angle_rad, .. } = open.order[position];
            let of_role = place_of(role);
            seen[of_role] += 1;
            if seen[of_role] <= self.sent[of_role] {
                continue;
            }
            if out.is_draining() {
                break;
            }
            let mut lease = out.lease(format)?;
            if let Err(error) = open.read(frame, &rows, lease.bytes_mut()) {
                return Ok(Some(error));
            }
            let id = FrameId::new(self.sent.iter().sum::<usize>() as u64);
            let mut meta = BlockMeta::new(id, role);
            (meta.projection, meta.angle_rad) = (projection, angle_rad);
            meta.time =
                Timestamps { detector_secs: None, received_ns: self.started.elapsed().as_nanos() as u64 };
            self.ledger.receive(id);
            self.sent[of_role] += 1;
            out.push(lease.freeze(meta))?;
        }
        Ok(None)
    }
}

/// Where frames of a role are counted; invalid ones are never sent.
const fn place_of(role: Role) -> usize {
    match role {
        Role::Dark => 0,
        Role::Flat => 1,
        Role::Projection | Role::Invalid => 2,
    }
}
