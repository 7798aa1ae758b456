//! The queue of an edge that goes to disk when it is full.
//!
//! A few events wait in memory. Once it is full everything goes to disk, until the receiver has taken all of that: so
//! the order stays. The sender writes and the receiver reads, each in its own thread and without holding the other up.
//! Blocks come back into buffers of the pool that they came from: it has room for what the receiver holds.

mod disk;

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beamstream_buffer::Pool;
use beamstream_core::{Content, SeriesId};
use beamstream_node::{Event, Journal};
use beamstream_tape::{Content as Found, Entry, Record, TapeError, read_at, write_at};
use crossbeam_channel::{Sender, TryRecvError};

use super::{Capacity, EdgeStats, SendError, wake};
use disk::{Disk, Segment};

/// How often a sender that waits for a full disk looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Where an edge spills, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpillSettings {
    /// The folder; the files in it have no name and vanish with the run, however it ends.
    pub(crate) folder: PathBuf,
    /// Most bytes on disk, if the pipeline says.
    pub(crate) most_bytes: Option<u64>,
}

/// What sender and receiver share.
pub(super) struct Spill {
    inner: Mutex<Inner>,
    /// Told when the receiver has taken something, or is gone.
    room: Condvar,
    capacity: Capacity,
    filled: Sender<()>,
    journal: Journal,
    stats: Arc<EdgeStats>,
    folder: PathBuf,
}

#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
struct Inner {
    memory: VecDeque<Event>,
    memory_bytes: usize,
    /// Records that wait on disk, behind all that wait in memory.
    on_disk: u64,
    segments: VecDeque<Segment>,
    /// Where the receiver reads in the first segment.
    read_offset: u64,
    /// Whether the sender is writing into the last segment.
    writing: bool,
    /// The buffers of each series from the one that the receiver works on.
    pools: VecDeque<Option<Pool>>,
    /// Whether the first of `pools` belongs to a series that the receiver has begun.
    begun: bool,
    sender_gone: bool,
    receiver_gone: bool,
}

/// The sender's own side.
pub(super) struct SpillSender {
    shared: Arc<Spill>,
    disk: Disk,
    scratch: Vec<u8>,
    series: Option<(SeriesId, u64)>,
    /// Whether the blocks of the series are frames.
    is_frames: bool,
    full_told: bool,
}

/// An event that found no room on disk.
struct Full(Event, String);

impl Spill {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events that wait.
    pub(super) fn len(&self) -> usize {
        let inner = self.lock();
        inner.memory.len() + usize::try_from(inner.on_disk).unwrap_or(usize::MAX)
    }

    pub(super) fn pop(&self) -> Result<Event, TryRecvError> {
        loop {
            let mut inner = self.lock();
            if let Some(event) = inner.memory.pop_front() {
                inner.memory_bytes -= event.bytes();
                inner.taken(&event);
                drop(inner);
                self.stats.received.fetch_add(event.bytes() as u64, Ordering::Release);
                self.room.notify_all();
                return Ok(event);
            }
            if inner.on_disk == 0 {
                return Err(if inner.sender_gone { TryRecvError::Disconnected } else { TryRecvError::Empty });
            }
            let Some(segment) = inner.segments.front() else { return Err(TryRecvError::Disconnected) };
            let (file, written, offset) = (segment.file.clone(), segment.written, inner.read_offset);
            drop(inner);
            let entry = match read_at(&file, &self.folder, offset, written) {
                Ok(entry) => entry,
                Err(error) => {
                    // Nothing behind it can be found any more.
                    self.tell_damage(&error);
                    let lost = self.lock().forget_disk();
                    self.stats.damaged.fetch_add(lost, Ordering::Relaxed);
                    continue;
                }
            };
            let event = self.event(&file, &entry);
            let mut inner = self.lock();
            inner.advance(entry.next);
            match event {
                Ok(event) => {
                    inner.taken(&event);
                    drop(inner);
                    self.room.notify_all();
                    return Ok(event);
                }
                Err(Some(error)) => {
                    drop(inner);
                    self.tell_damage(&error);
                    self.stats.damaged.fetch_add(1, Ordering::Relaxed);
                }
                // The run is halted: no buffers any more.
                Err(None) => return Err(TryRecvError::Disconnected),
            }
        }
    }

    /// The event that a record on disk stands for; `None` as error where there are no buffers any more.
    fn event(&self, file: &File, entry: &Entry) -> Result<Event, Option<TapeError>> {
        match &entry.content {
            Found::Series(header) => Ok(Event::Begin(Arc::new((**header).clone()))),
            Found::End(summary) => Ok(Event::End(Arc::new((**summary).clone()))),
            Found::Block { meta, format } => {
                let pool = self.lock().pools.front().cloned().flatten().ok_or(None)?;
                let mut lease = pool.lease(*format).map_err(|_closed| None)?;
                entry.read_pixels(file, &self.folder, lease.bytes_mut()).map_err(Some)?;
                Ok(Event::Block(lease.freeze(*meta)))
            }
            Found::Account { .. } | Found::Index => Err(None),
        }
    }

    fn tell_damage(&self, error: &TapeError) {
        self.journal.warn(format!("what was spilled cannot be read back and is missing: {error}"));
    }

    pub(super) fn close_receiver(&self) {
        let mut inner = self.lock();
        inner.receiver_gone = true;
        inner.memory.clear();
        inner.segments.clear();
        inner.on_disk = 0;
        drop(inner);
        self.room.notify_all();
    }

    /// Lets the receiver look again at once if there is more for it.
    pub(super) fn wake_if_more(&self) {
        let inner = self.lock();
        let more = !inner.memory.is_empty() || inner.on_disk > 0 || inner.sender_gone;
        drop(inner);
        if more {
            wake(&self.filled);
        }
    }
}

impl Inner {
    /// Notes what the receiver has got.
    fn taken(&mut self, event: &Event) {
        if matches!(event, Event::Begin(_)) {
            if self.begun {
                self.pools.pop_front();
            }
            self.begun = true;
        }
    }

    /// The receiver has read up to `next` in the first segment, which goes when it is done with.
    fn advance(&mut self, next: u64) {
        self.read_offset = next;
        self.on_disk = self.on_disk.saturating_sub(1);
        let is_last = self.segments.len() == 1;
        let is_read = self.segments.front().is_some_and(|segment| next >= segment.written);
        if is_read && !(is_last && self.writing) && (!is_last || self.on_disk == 0) {
            self.segments.pop_front();
            self.read_offset = 0;
        }
    }

    /// Gives up all that is on disk; says how many records that were.
    fn forget_disk(&mut self) -> u64 {
        let keep = usize::from(self.writing);
        while self.segments.len() > keep {
            self.segments.pop_front();
        }
        self.read_offset = self.segments.front().map_or(0, |segment| segment.written);
        std::mem::take(&mut self.on_disk)
    }

    fn bytes_on_disk(&self) -> u64 {
        self.segments.iter().map(|segment| segment.written).sum()
    }
}

impl SpillSender {
    /// The two ends of an edge that spills.
    pub(super) fn new(
        settings: &SpillSettings,
        capacity: Capacity,
        filled: Sender<()>,
        journal: Journal,
        stats: Arc<EdgeStats>,
    ) -> (Self, Arc<Spill>) {
        let shared = Arc::new(Spill {
            inner: Mutex::default(),
            room: Condvar::new(),
            capacity,
            filled,
            journal,
            stats,
            folder: settings.folder.clone(),
        });
        let disk = Disk::new(settings);
        let sender = Self {
            shared: shared.clone(),
            disk,
            scratch: Vec::new(),
            series: None,
            is_frames: false,
            full_told: false,
        };
        (sender, shared)
    }

    /// Events that wait.
    pub(super) fn len(&self) -> usize {
        self.shared.len()
    }

    /// The buffers of the series that was begun last.
    pub(super) fn set_pool(&self, pool: &Pool) {
        if let Some(last) = self.shared.lock().pools.back_mut() {
            *last = Some(pool.clone());
        }
    }

    /// Puts an event in; waits only when the disk is full. Gives the nanoseconds waited.
    pub(super) fn push(&mut self, mut event: Event) -> Result<u64, SendError> {
        self.note(&event);
        let mut since = None;
        loop {
            match self.try_push(event)? {
                None => break,
                Some(Full(back, why)) => {
                    event = back;
                    since.get_or_insert_with(Instant::now);
                    self.tell_full(&why);
                    let inner = self.shared.lock();
                    // A spurious wake only means to look once more.
                    drop(self.shared.room.wait_timeout(inner, LOOK_AGAIN));
                }
            }
        }
        wake(&self.shared.filled);
        let waited = since.map_or(0, |since| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.shared.stats.waited_ns.fetch_add(waited, Ordering::Relaxed);
        Ok(waited)
    }

    fn try_push(&mut self, event: Event) -> Result<Option<Full>, SendError> {
        let mut inner = self.shared.lock();
        if inner.receiver_gone {
            return Err(SendError::Closed);
        }
        let bytes = event.bytes();
        let Capacity { blocks, bytes: most_bytes } = self.shared.capacity;
        let fits = inner.memory.is_empty()
            || (inner.memory.len() < blocks.max(1) && inner.memory_bytes + bytes <= most_bytes);
        if inner.on_disk == 0 && fits {
            inner.memory.push_back(event);
            inner.memory_bytes += bytes;
            drop(inner);
            let stats = &self.shared.stats;
            let sent = stats.sent.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
            let queued = sent.saturating_sub(stats.received.load(Ordering::Relaxed));
            stats.peak_bytes.fetch_max(queued, Ordering::Relaxed);
            return Ok(None);
        }
        let taken = inner.bytes_on_disk();
        let (file, offset) = match inner.segments.back().filter(|segment| !segment.is_long()) {
            Some(segment) => (segment.file.clone(), segment.written),
            None => match self.disk.segment() {
                Ok(segment) => {
                    let file = segment.file.clone();
                    inner.segments.push_back(segment);
                    (file, 0)
                }
                Err(error) => return Err(SendError::Spill(error)),
            },
        };
        inner.writing = true;
        drop(inner);
        let outcome = self.write(&event, &file, offset, taken);
        let mut inner = self.shared.lock();
        inner.writing = false;
        match outcome {
            Ok(written) => {
                if let Some(segment) = inner.segments.back_mut() {
                    segment.written += written;
                }
                inner.on_disk += 1;
                let taken = inner.bytes_on_disk();
                drop(inner);
                if let Event::Block(_) = event {
                    self.shared.stats.spilled.fetch_add(1, Ordering::Relaxed);
                    if let Some((_, spilled)) = self.series.as_mut().filter(|_| self.is_frames) {
                        *spilled += 1;
                    }
                }
                if let Some(warning) = self.disk.outlook(&file, taken) {
                    self.shared.journal.warn(warning);
                }
                Ok(None)
            }
            Err(Refusal::Full(why)) => Ok(Some(Full(event, why))),
            Err(Refusal::Failed(error)) => Err(SendError::Spill(error)),
        }
    }

    /// Writes a record; gives its bytes.
    fn write(&mut self, event: &Event, file: &File, offset: u64, taken: u64) -> Result<u64, Refusal> {
        self.disk.has_room(file, taken, event.bytes() as u64).map_err(Refusal::Full)?;
        let record = match event {
            Event::Begin(header) => Record::Series(header),
            Event::Block(block) => {
                Record::Block { meta: &block.meta, format: block.format(), pixels: block.bytes() }
            }
            Event::End(summary) => Record::End(summary),
        };
        write_at(file, offset, &record, 0, &mut self.scratch).map_err(|error| self.disk.refusal(&error))
    }

    /// Keeps account of the series: how many of its frames went over disk.
    fn note(&mut self, event: &Event) {
        match event {
            Event::Begin(header) => {
                self.shared.lock().pools.push_back(None);
                self.is_frames = header.content == Content::Frames;
                if self.series.is_none_or(|(id, _)| id != header.id) {
                    self.series = Some((header.id, 0));
                }
            }
            Event::End(_) => {
                if let Some((id, spilled)) = self.series.filter(|(_, spilled)| *spilled > 0) {
                    self.shared.journal.series(id, |record| record.spilled = record.spilled.max(spilled));
                }
            }
            Event::Block(_) => {}
        }
    }

    fn tell_full(&mut self, why: &str) {
        if !self.full_told {
            self.full_told = true;
            self.shared.journal.warn(format!(
                "the spill is full: no space in {}, {why}: the sender waits now, and a detector that cannot wait loses \
                 frames",
                self.shared.folder.display()
            ));
        }
    }
}

/// Why nothing was written.
enum Refusal {
    /// There is no room for it now.
    Full(String),
    /// The disk failed.
    Failed(String),
}

impl Drop for SpillSender {
    fn drop(&mut self) {
        self.shared.lock().sender_gone = true;
        wake(&self.shared.filled);
    }
}

/// Where an edge spills unless the pipeline says: a place for large files that is no memory.
pub(crate) fn default_folder() -> PathBuf {
    let told = std::env::var_os("TMPDIR").map(PathBuf::from);
    told.unwrap_or_else(|| {
        let large = Path::new("/var/tmp");
        if large.is_dir() { large.to_owned() } else { std::env::temp_dir() }
    })
}
