//! Writing a tape, and going on with one that was cut off.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use beamstream_core::{
    BlockMeta, Format, FrameId, Ledger, Role, SeriesHeader, SeriesId, SeriesSummary, Verdict,
};

use crate::reader::{MAGIC, START_BYTES, TRAILER_BYTES, TRAILER_MAGIC, VERSION};
use crate::{Content, Record, TapeError, TapeReader, write_at};

/// Writes a tape. What was written is with the system at once, so that a killed program loses nothing of it; the end of
/// each series is on the disk before [`TapeWriter::end`] returns.
#[derive(Debug)]
pub struct TapeWriter {
    file: File,
    path: PathBuf,
    offset: u64,
    began: Instant,
    /// Time on the tape when this writer began. Unit: nanoseconds.
    base_ns: u64,
    /// Offset, number and count of blocks of each series.
    index: Vec<[u64; 3]>,
    scratch: Vec<u8>,
}

/// A series on a tape that was cut off.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Which.
    pub id: SeriesId,
    /// Where it begins.
    pub offset: u64,
    /// Its frames.
    pub frames: Ledger,
    /// What its frames are for.
    pub roles: BTreeSet<Role>,
    /// Whether it was ended.
    pub ended: bool,
}

/// What a tape that was cut off holds.
#[derive(Debug, Default)]
pub struct Unfinished {
    /// Its series, in order.
    pub series: Vec<Stored>,
    /// What is wrong with the record that was cut off, if one was.
    pub cut: Option<String>,
}

impl Stored {
    fn new(id: SeriesId, offset: u64) -> Self {
        let frames = Ledger::new(None);
        Self { id, offset, frames, roles: BTreeSet::new(), ended: false }
    }

    fn add(&mut self, meta: &BlockMeta) {
        self.frames.receive(meta.frame);
        self.roles.insert(meta.role);
    }

    /// Whether a frame is on the tape.
    pub fn contains(&self, frame: FrameId) -> bool {
        self.frames.judge(frame) == Verdict::Duplicate
    }
}

impl Unfinished {
    /// The series that the tape ends in, if it was not ended.
    pub fn open(&self) -> Option<&Stored> {
        self.series.last().filter(|series| !series.ended)
    }
}

impl TapeWriter {
    /// Begins a tape; what is at `path` is replaced.
    ///
    /// # Errors
    /// [`TapeError`] if the system refuses or another program writes there.
    pub fn create(path: &Path) -> Result<Self, TapeError> {
        let failed = TapeError::io(path);
        // Emptied only under the lock: another program may be writing.
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(&failed)?;
        lock(&file, path)?;
        file.set_len(0).map_err(&failed)?;
        let mut start = [0; START_BYTES as usize];
        start[..8].copy_from_slice(&MAGIC);
        start[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all_at(&start, 0).map_err(&failed)?;
        Ok(Self::at(file, path, START_BYTES, 0, Vec::new()))
    }

    /// Goes on with a tape that was cut off, behind its last whole record; what stands behind that is cut away.
    ///
    /// # Errors
    /// [`TapeError`] if the tape cannot be read or another program writes it.
    pub fn go_on(path: &Path) -> Result<(Self, Unfinished), TapeError> {
        let failed = TapeError::io(path);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(&failed)?;
        lock(&file, path)?;
        let mut reader = TapeReader::over(file, path)?;
        let (mut index, mut time_ns) = (Vec::new(), 0);
        let mut found = Unfinished::default();
        loop {
            let entry = match reader.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error @ (TapeError::Cut { .. } | TapeError::Damaged { .. })) => {
                    found.cut = Some(error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            };
            time_ns = entry.time_ns;
            match entry.content {
                Content::Series(header) => {
                    index.push([entry.offset, header.id.number, 0]);
                    found.series.push(Stored::new(header.id, entry.offset));
                }
                Content::Block { meta, .. } => {
                    count_block(&mut index);
                    if let Some(series) = found.series.last_mut() {
                        series.add(&meta);
                    }
                }
                Content::End(_) => {
                    if let Some(series) = found.series.last_mut() {
                        series.ended = true;
                    }
                }
                Content::Account { .. } | Content::Index => {}
            }
        }
        let offset = reader.offset();
        let file = reader.into_file();
        file.set_len(offset).map_err(&failed)?;
        Ok((Self::at(file, path, offset, time_ns, index), found))
    }

    fn at(file: File, path: &Path, offset: u64, base_ns: u64, index: Vec<[u64; 3]>) -> Self {
        let path = path.to_owned();
        Self { file, path, offset, began: Instant::now(), base_ns, index, scratch: Vec::new() }
    }

    /// Writes that a series begins.
    ///
    /// # Errors
    /// [`TapeError::Io`]; what was written before stays readable.
    pub fn series(&mut self, header: &SeriesHeader) -> Result<(), TapeError> {
        let offset = self.offset;
        self.write(&Record::Series(header))?;
        self.index.push([offset, header.id.number, 0]);
        Ok(())
    }

    /// Writes a block of the series.
    ///
    /// # Errors
    /// As [`Self::series`].
    pub fn block(&mut self, meta: &BlockMeta, format: Format, pixels: &[u8]) -> Result<(), TapeError> {
        self.write(&Record::Block { meta, format, pixels })?;
        count_block(&mut self.index);
        Ok(())
    }

    /// Writes that the series ends, and waits until all of it is on the disk.
    ///
    /// # Errors
    /// As [`Self::series`].
    pub fn end(&mut self, summary: &SeriesSummary) -> Result<(), TapeError> {
        self.write(&Record::End(summary))?;
        self.file.sync_data().map_err(TapeError::io(&self.path))
    }

    /// Writes what the account of a series came to in the end.
    ///
    /// # Errors
    /// As [`Self::series`].
    pub fn account(&mut self, id: SeriesId, summary: &SeriesSummary) -> Result<(), TapeError> {
        self.write(&Record::Account { id, summary })
    }

    /// Closes the tape with its index.
    ///
    /// # Errors
    /// As [`Self::series`].
    pub fn finish(mut self) -> Result<(), TapeError> {
        let entries: Vec<u8> = self.index.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        let index_at = self.offset;
        self.write(&Record::Index(&entries))?;
        let mut trailer = [0; TRAILER_BYTES as usize];
        trailer[..8].copy_from_slice(&index_at.to_le_bytes());
        let crc = crc32c::crc32c(&trailer[..8]);
        trailer[8..12].copy_from_slice(&crc.to_le_bytes());
        trailer[12..].copy_from_slice(&TRAILER_MAGIC);
        let failed = TapeError::io(&self.path);
        self.file.write_all_at(&trailer, self.offset).map_err(&failed)?;
        self.file.sync_all().map_err(&failed)
    }

    fn write(&mut self, record: &Record<'_>) -> Result<(), TapeError> {
        let time_ns =
            self.base_ns.saturating_add(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        match write_at(&self.file, self.offset, record, time_ns, &mut self.scratch) {
            Ok(bytes) => {
                self.offset += bytes;
                Ok(())
            }
            Err(error) => {
                // Half a record is of no use to anybody; if it stays, readers stop before it.
                self.file.set_len(self.offset).ok();
                Err(TapeError::io(&self.path)(error))
            }
        }
    }
}

fn count_block(index: &mut [[u64; 3]]) {
    if let Some([_, _, blocks]) = index.last_mut() {
        *blocks += 1;
    }
}

fn lock(file: &File, path: &Path) -> Result<(), TapeError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(TapeError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(TapeError::io(path)(error)),
    }
}
