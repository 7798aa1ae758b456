//! The files that an edge spills to, and how much room there is for more.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Refusal, SpillSettings};
use crate::budget::show_bytes;

/// Bytes after which a new file is begun: what was read is given back to the disk file by file.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Free space that is left to others: this, or a twentieth of a smaller disk.
const KEPT_BYTES: u64 = 1 << 30;
/// How often the outlook is judged.
const JUDGE_EVERY: Duration = Duration::from_secs(1);
/// Tells when the disk will be full sooner than this.
const TELL_BEFORE: Duration = Duration::from_mins(1);

/// One file, without a name.
pub(super) struct Segment {
    pub(super) file: Arc<File>,
    /// Bytes of whole records.
    pub(super) written: u64,
}

impl Segment {
    /// Whether the next record goes into a new one.
    pub(super) fn is_long(&self) -> bool {
        self.written >= SEGMENT_BYTES
    }
}

/// The disk as the sender sees it.
pub(super) struct Disk {
    folder: PathBuf,
    most_bytes: Option<u64>,
    /// When and at how many bytes the outlook was judged last.
    judged: Option<(Instant, u64)>,
    told: bool,
}

impl Disk {
    pub(super) fn new(settings: &SpillSettings) -> Self {
        Self { folder: settings.folder.clone(), most_bytes: settings.most_bytes, judged: None, told: false }
    }

    /// A new file.
    pub(super) fn segment(&self) -> Result<Segment, String> {
        let failed = |error: io::Error| format!("cannot spill to {}: {error}", self.folder.display());
        std::fs::create_dir_all(&self.folder).map_err(failed)?;
        let file = tempfile::tempfile_in(&self.folder).map_err(failed)?;
        Ok(Segment { file: Arc::new(file), written: 0 })
    }

    /// Whether `bytes` more may be written where `taken` are; else says why not.
    pub(super) fn has_room(&self, file: &File, taken: u64, bytes: u64) -> Result<(), String> {
        let room = self.room(file, taken);
        if bytes <= room {
            return Ok(());
        }
        Err(match self.most_bytes {
            Some(most) if taken + bytes > most => {
                format!("{} are taken of spill_bytes {}", show_bytes(taken), show_bytes(most))
            }
            _ => format!("{} are taken and the rest of the disk is left free", show_bytes(taken)),
        })
    }

    /// Bytes that may still be written.
    fn room(&self, file: &File, taken: u64) -> u64 {
        let by_limit = self.most_bytes.map_or(u64::MAX, |most| most.saturating_sub(taken));
        let by_disk = rustix::fs::fstatvfs(file).map_or(u64::MAX, |disk| {
            let block = disk.f_frsize.max(1);
            let kept = KEPT_BYTES.min(disk.f_blocks.saturating_mul(block) / 20);
            disk.f_bavail.saturating_mul(block).saturating_sub(kept)
        });
        by_limit.min(by_disk)
    }

    /// What to tell when the disk will soon be full at the present rate; once.
    pub(super) fn outlook(&mut self, file: &File, taken: u64) -> Option<String> {
        let now = Instant::now();
        let (since, before) = *self.judged.get_or_insert((now, taken));
        let elapsed = now.duration_since(since);
        if self.told || elapsed < JUDGE_EVERY {
            return None;
        }
        self.judged = Some((now, taken));
        let rate = taken.saturating_sub(before) as f64 / elapsed.as_secs_f64();
        let left = self.room(file, taken) as f64 / rate;
        // Not a number where nothing came and nothing is left: then the sender waits, which is told.
        self.told = left < TELL_BEFORE.as_secs_f64();
        self.told.then(|| {
            format!(
                "the spill in {} grows by {}/s and is full in {left:.0} s: slow the detector down, or make room",
                self.folder.display(),
                show_bytes(rate as u64)
            )
        })
    }

    /// What an error of the system means.
    pub(super) fn refusal(&self, error: &io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refusal::Full(error.to_string()),
            _ => Refusal::Failed(format!("cannot spill to {}: {error}", self.folder.display())),
        }
    }
}
