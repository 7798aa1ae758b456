//! Outputs of one file: blocks one after the other behind a header of fixed length.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use beamstream_core::FrameId;
use serde_json::Value;

use super::temporary::Temporary;
use super::{Output, OutputError, OutputSpec};

/// What stands around the blocks.
pub(super) trait Container: Send {
    /// Where the first block begins.
    fn data_offset(&self) -> u64;

    /// Writes header and trailer of a file with `count` blocks. The header ends before [`Self::data_offset`].
    fn seal(&self, file: &File, count: u64, provenance: &Value) -> io::Result<()>;
}

/// Which place each block has.
pub(super) enum Places {
    /// The slices of a volume: the place follows from the number.
    Fixed { first: u64, count: u64 },
    /// Frames, of which some may be lost: in order of arrival, sorted at the end.
    Arriving(Vec<FrameId>),
}

impl Places {
    pub(super) fn new(spec: &OutputSpec) -> Self {
        match spec.count {
            Some(count) => Self::Fixed { first: spec.first_number, count },
            None => Self::Arriving(Vec::new()),
        }
    }

    /// The place of a block that arrives.
    pub(super) fn take(&mut self, id: FrameId) -> Option<u64> {
        match self {
            Self::Fixed { first, count } => id.number.checked_sub(*first).filter(|place| place < count),
            Self::Arriving(ids) => {
                ids.push(id);
                Some(ids.len() as u64 - 1)
            }
        }
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Fixed { count, .. } => *count,
            Self::Arriving(ids) => ids.len() as u64,
        }
    }

    /// For each place in the final order, the place where its block is now; `None` if nothing moves.
    pub(super) fn moves(&self) -> Option<Vec<usize>> {
        let Self::Arriving(ids) = self else { return None };
        if ids.is_sorted() {
            return None;
        }
        let mut from: Vec<usize> = (0..ids.len()).collect();
        from.sort_by_key(|&at| ids[at]);
        Some(from)
    }

    pub(super) fn out_of_range(&self, target: &std::path::Path, id: FrameId) -> OutputError {
        let first = if let Self::Fixed { first, .. } = self { *first } else { 0 };
        OutputError::OutOfRange { path: target.to_owned(), first, count: self.count(), id }
    }
}

/// One file of equal blocks.
pub(super) struct Stacked<C> {
    temporary: Temporary,
    file: File,
    container: C,
    places: Places,
    block_bytes: usize,
}

impl<C: Container> Stacked<C> {
    pub(super) fn create(spec: &OutputSpec, container: C) -> Result<Self, OutputError> {
        let temporary = Temporary::new(&spec.path, spec.overwrite, |_| false)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(temporary.path());
        let file = file.map_err(OutputError::io(&spec.path))?;
        Ok(Self { temporary, file, container, places: Places::new(spec), block_bytes: spec.format.bytes() })
    }

    fn offset(&self, place: u64) -> u64 {
        self.container.data_offset() + place * self.block_bytes as u64
    }

    /// Puts blocks that came out of order into their places, one cycle of the permutation after the other.
    fn sort(&self, from: &[usize]) -> io::Result<()> {
        let mut kept = vec![0; self.block_bytes];
        let mut moved = vec![0; self.block_bytes];
        let mut is_done = vec![false; from.len()];
        for start in 0..from.len() {
            if is_done[start] || from[start] == start {
                continue;
            }
            self.file.read_exact_at(&mut kept, self.offset(start as u64))?;
            let mut to = start;
            while from[to] != start {
                self.file.read_exact_at(&mut moved, self.offset(from[to] as u64))?;
                self.file.write_all_at(&moved, self.offset(to as u64))?;
                is_done[to] = true;
                to = from[to];
            }
            self.file.write_all_at(&kept, self.offset(to as u64))?;
            is_done[to] = true;
        }
        Ok(())
    }
}

impl<C: Container> Output for Stacked<C> {
    fn write(&mut self, id: FrameId, bytes: &[u8]) -> Result<(), OutputError> {
        let target = self.temporary.target();
        if bytes.len() != self.block_bytes {
            let (path, expected) = (target.to_owned(), self.block_bytes);
            return Err(OutputError::BlockSize { path, expected, found: bytes.len() });
        }
        let place = self.places.take(id).ok_or_else(|| self.places.out_of_range(target, id))?;
        self.file.write_all_at(bytes, self.offset(place)).map_err(OutputError::io(target))
    }

    fn finish(self: Box<Self>, provenance: &Value) -> Result<(), OutputError> {
        let count = self.places.count();
        let write = || {
            if let Some(from) = self.places.moves() {
                self.sort(&from)?;
            }
            // Slices that never came are zeros.
            self.file.set_len(self.offset(count))?;
            self.container.seal(&self.file, count, provenance)
        };
        write().map_err(OutputError::io(self.temporary.target()))?;
        self.temporary.commit()
    }
}

/// No header at all: the blocks and nothing else.
pub(super) struct Raw;

impl Container for Raw {
    fn data_offset(&self) -> u64 {
        0
    }

    fn seal(&self, _file: &File, _count: u64, _provenance: &Value) -> io::Result<()> {
        Ok(())
    }
}
