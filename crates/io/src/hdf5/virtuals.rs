//! Virtual datasets: frames that are put together from datasets of other files.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::bytes::{Cursor, text};
use super::dataset::{Dataset, Frames, three_dimensions};
use super::heap::global_heap_object;
use super::selection::{Pattern, Selection};
use super::{Error, File, Result};

/// Most parts of one dataset.
const MAX_PARTS: u64 = 1 << 16;
/// Deepest virtual dataset of virtual datasets.
const MAX_DEPTH: usize = 4;

/// The parts of a virtual dataset, each with its source open.
pub(super) struct Virtual {
    parts: Vec<Part>,
}

/// A box of the virtual dataset, and the box of a source that fills it.
struct Part {
    frames: Pattern,
    rows: Range<usize>,
    columns: Range<usize>,
    source: Frames,
    source_frames: Pattern,
    source_row: usize,
    source_columns: Range<usize>,
}

impl Virtual {
    /// Opens the sources that the mappings at `address` of the global heap name.
    ///
    /// # Errors
    /// [`Error::BrokenLink`] for a source that is not there, [`Error::Unsupported`] for mappings that are no boxes.
    pub(super) fn open(dataset: &Dataset, (address, index): (u64, u32), depth: usize) -> Result<Self> {
        let file = dataset.file();
        if depth >= MAX_DEPTH {
            return Err(Error::LinkCircle("a virtual dataset".to_owned()));
        }
        let stored = global_heap_object(file, address, index)?;
        let mut cursor = Cursor::new(&stored, "a virtual dataset");
        let version = cursor.u8()?;
        if version != 0 {
            return Err(Error::Unsupported(format!("a virtual dataset of version {version}")));
        }
        let count = cursor.uint(file.length_size)?;
        if count > MAX_PARTS {
            return Err(Error::Malformed("a virtual dataset"));
        }
        let mut parts = Vec::new();
        for _ in 0..count {
            let name = text(cursor.until_zero()?);
            let place = text(cursor.until_zero()?);
            let (source, target) = (Selection::parse(&mut cursor)?, Selection::parse(&mut cursor)?);
            if name.contains("%b") || place.contains("%b") {
                return Err(Error::Unsupported(format!(
                    "a virtual dataset of numbered sources, {name}:{place},"
                )));
            }
            if let (Some(source), Some(target)) = (source, target) {
                let found = open_source(file, &name, &place)?;
                parts.extend(Part::new(dataset, &target, &found, &source, depth)?);
            }
        }
        Ok(Self { parts })
    }

    /// Bytes of decoded chunks that are kept at most: of the sources of one frame.
    pub(super) fn cache_bytes(&self) -> usize {
        let first = self.parts.first().map_or(0, |part| part.frames.start);
        let together = self.parts.iter().filter(|part| part.frames.number_of(first).is_some()).count().max(1);
        let largest = self.parts.iter().map(|part| part.source.cache_bytes()).max().unwrap_or(0);
        largest.saturating_mul(together)
    }

    /// Fills those pixels of `rows` of a frame that have a source.
    pub(super) fn read(
        &mut self,
        frame: usize,
        rows: &Range<usize>,
        (columns, element_size): (usize, usize),
        out: &mut [u8],
    ) -> Result<()> {
        let row_bytes = columns * element_size;
        for part in &mut self.parts {
            let Some(number) = part.frames.number_of(frame as u64).filter(|n| *n < part.source_frames.len())
            else {
                part.source.forget();
                continue;
            };
            let lines = rows.start.max(part.rows.start)..rows.end.min(part.rows.end);
            if lines.is_empty() {
                continue;
            }
            let source_frame = part.source_frames.position_of(number) as usize;
            let first = part.source_row + lines.start - part.rows.start;
            let source_rows = first..first + lines.len();
            let target =
                &mut out[(lines.start - rows.start) * row_bytes..(lines.end - rows.start) * row_bytes];
            if part.columns == (0..columns) && part.source_columns == (0..part.source.columns) {
                part.source.read(source_frame, source_rows, target)?;
                continue;
            }
            let source_row_bytes = part.source.columns * element_size;
            let mut stored = vec![0; lines.len() * source_row_bytes];
            part.source.read(source_frame, source_rows, &mut stored)?;
            let from = part.source_columns.start * element_size..part.source_columns.end * element_size;
            let to = part.columns.start * element_size..part.columns.end * element_size;
            for (line, target) in
                stored.chunks_exact(source_row_bytes).zip(target.chunks_exact_mut(row_bytes))
            {
                target[to.clone()].copy_from_slice(&line[from.clone()]);
            }
        }
        Ok(())
    }
}

/// The dataset that a mapping names; `.` is the file itself.
fn open_source(file: &Arc<File>, name: &str, place: &str) -> Result<Dataset> {
    if name == "." {
        return Dataset::at(file, place);
    }
    let broken =
        || Error::BrokenLink { link: format!("a virtual dataset, part {place},"), target: name.into() };
    Dataset::at(&file.linked_file(Path::new(name)).ok_or_else(broken)?, place)
}

impl Part {
    /// `None` if the source has no elements yet.
    fn new(
        dataset: &Dataset,
        target: &Selection,
        source: &Dataset,
        selected: &Selection,
        depth: usize,
    ) -> Result<Option<Self>> {
        if source.datatype != dataset.datatype {
            let (found, expected) = (source.datatype.name(), dataset.datatype.name());
            return Err(Error::Unsupported(format!("a virtual dataset of {expected} from one of {found}")));
        }
        if source.checked_len() == Some(0) {
            return Ok(None);
        }
        let [frames, rows, columns] = patterns(target, dataset.shape())?;
        let [source_frames, source_rows, source_columns] = patterns(selected, source.shape())?;
        let (rows, columns) = (range(rows)?, range(columns)?);
        let (source_rows, source_columns) = (range(source_rows)?, range(source_columns)?);
        if rows.len() != source_rows.len() || columns.len() != source_columns.len() {
            return Err(Error::Unsupported(
                "a virtual dataset that gives its sources another shape".to_owned(),
            ));
        }
        let source = Frames::open_within(source, depth + 1)?;
        let source_row = source_rows.start;
        Ok(Some(Self { frames, rows, columns, source, source_frames, source_row, source_columns }))
    }
}

/// The patterns along frame, row and column; dimensions that are not there have one position.
fn patterns(selection: &Selection, dims: &[u64]) -> Result<[Pattern; 3]> {
    let beyond = || Error::Unsupported("a virtual dataset of more than its sources hold".to_owned());
    let places = three_dimensions(dims)?;
    let mut found = [Pattern::all(1); 3];
    for (pattern, place) in found.iter_mut().zip(places) {
        let Some(dim) = place else { continue };
        *pattern = match selection {
            Selection::All => Pattern::all(dims[dim]),
            Selection::Pattern(patterns) if patterns.len() == dims.len() => {
                patterns[dim].within(dims[dim]).filter(|pattern| pattern.block > 0).ok_or_else(beyond)?
            }
            Selection::Pattern(_) => return Err(Error::Malformed("a virtual dataset")),
        };
    }
    Ok(found)
}

fn range(pattern: Pattern) -> Result<Range<usize>> {
    let (start, len) = pattern.as_range().ok_or_else(|| {
        Error::Unsupported("a virtual dataset with gaps between rows or columns".to_owned())
    })?;
    // Within the extent of a dataset that is in memory as a number already.
    Ok(start as usize..(start + len) as usize)
}
