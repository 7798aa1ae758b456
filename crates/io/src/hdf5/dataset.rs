//! Datasets: what their elements are, where these are, and reading them frame by frame.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::bytes::Cursor;
use super::chunks::{ChunkMap, Grid, Index};
use super::filters::{Filter, undo_all};
use super::object::{Object, message};
use super::types::{Dataspace, Datatype, Number, first_text};
use super::virtuals::Virtual;
use super::{Error, File, Result};

/// Largest chunk that is decoded.
const MAX_CHUNK_BYTES: u64 = 1 << 30;
/// Decoded chunks that are kept because the next frame needs them too.
const CACHE_BYTES: usize = 512 << 20;
/// Most numbers of a table, as of angles or keys.
const MAX_TABLE: u64 = 16 << 20;

/// A dataset, without its data.
pub(crate) struct Dataset {
    file: Arc<File>,
    pub(crate) datatype: Datatype,
    space: Dataspace,
    layout: Layout,
    pub(crate) filters: Vec<Filter>,
    fill: Option<Vec<u8>>,
    pub(crate) units: Option<String>,
}

/// Where the elements are.
enum Layout {
    Compact(Vec<u8>),
    Contiguous {
        address: u64,
    },
    Chunked {
        chunk: Vec<u64>,
        index: Index,
        address: u64,
    },
    /// Put together from other datasets: where in the global heap it says from which.
    Virtual(u64, u32),
    /// Data that are elsewhere, in a way that is not read here.
    Elsewhere(&'static str),
}

impl Dataset {
    pub(super) fn is_dataset(object: &Object) -> bool {
        object.message(message::LAYOUT).is_some() && object.message(message::DATATYPE).is_some()
    }

    pub(super) fn open(file: &Arc<File>, object: &Object) -> Result<Self> {
        let part = |kind| object.message(kind).map(|m| m.body.as_slice());
        let absent = || Error::Malformed("a dataset");
        let datatype = Datatype::parse(part(message::DATATYPE).ok_or_else(absent)?)?;
        let space = Dataspace::parse(file, part(message::DATASPACE).ok_or_else(absent)?)?;
        let layout = match part(message::EXTERNAL_FILES) {
            Some(_) => Layout::Elsewhere("a dataset with external data files"),
            None => Layout::parse(file, part(message::LAYOUT).ok_or_else(absent)?)?,
        };
        let filters = part(message::FILTERS).map_or(Ok(Vec::new()), Filter::parse_all)?;
        let fill = part(message::FILL_VALUE).map_or(Ok(None), fill_value)?;
        let units = object.text_attribute(file, "units").unwrap_or(None);
        Ok(Self { file: file.clone(), datatype, space, layout, filters, fill, units })
    }

    /// The dataset at a path.
    pub(crate) fn at(file: &Arc<File>, path: &str) -> Result<Self> {
        let (file, object) = super::group::resolve(file, path)?;
        if !Self::is_dataset(&object) {
            return Err(Error::NotFound(format!("dataset {path}, but a group")));
        }
        Self::open(&file, &object)
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Extents, slowest dimension first.
    pub(crate) fn shape(&self) -> &[u64] {
        &self.space.dims
    }

    /// Number of elements, if it fits.
    pub(crate) fn checked_len(&self) -> Option<u64> {
        self.space.checked_len()
    }

    /// All numbers of a small dataset.
    pub(crate) fn numbers(&self) -> Result<Vec<f64>> {
        let Datatype::Number(number) = self.datatype else {
            return Err(Error::Unsupported(format!("{} as numbers", self.datatype.name())));
        };
        let raw = self.small()?;
        Ok(raw.chunks_exact(number.size).map(|bytes| number.value(bytes)).collect())
    }

    /// The first text of a dataset of texts; `None` if it holds something else.
    pub(crate) fn first_text(&self) -> Result<Option<String>> {
        match self.datatype {
            Datatype::FixedText(_) | Datatype::HeapText(_) => {
                first_text(&self.file, self.datatype, &self.small()?)
            }
            Datatype::Number(_) | Datatype::Other(..) => Ok(None),
        }
    }

    /// The bytes of a small dataset, as stored.
    fn small(&self) -> Result<Vec<u8>> {
        let len = self.checked_len().filter(|len| *len <= MAX_TABLE);
        let bytes = len.and_then(|len| (len as usize).checked_mul(self.datatype.size()));
        let bytes = bytes.filter(|bytes| *bytes as u64 <= MAX_CHUNK_BYTES);
        let mut raw = vec![0; bytes.ok_or(Error::Malformed("the extent of a table"))?];
        if raw.is_empty() {
            return Ok(raw);
        }
        let mut frames = Frames::open(self)?;
        let frame = raw.len() / frames.count.max(1);
        for (number, out) in raw.chunks_exact_mut(frame.max(1)).enumerate() {
            frames.read(number, 0..frames.rows, out)?;
        }
        Ok(raw)
    }
}

impl Layout {
    /// Message 0x08, in all its versions.
    fn parse(file: &File, body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(body, "a data layout");
        let version = cursor.u8()?;
        match version {
            1 | 2 => Self::parse_old(file, &mut cursor),
            3..=5 => Self::parse_new(file, &mut cursor, version),
            _ => Err(Error::Unsupported(format!("a data layout of version {version}"))),
        }
    }

    fn parse_old(file: &File, cursor: &mut Cursor<'_>) -> Result<Self> {
        let rank = usize::from(cursor.u8()?);
        let class = cursor.u8()?;
        cursor.skip(5)?;
        let address = if class == 0 { 0 } else { cursor.uint(file.offset_size)? };
        let dims = (0..rank).map(|_| cursor.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
        match class {
            0 => {
                let size = cursor.u32()? as usize;
                Ok(Self::Compact(cursor.take(size)?.to_vec()))
            }
            1 => Ok(Self::Contiguous { address }),
            2 => Self::chunked(dims, Index::BTreeV1, address),
            _ => Err(Error::Malformed("a data layout")),
        }
    }

    fn parse_new(file: &File, cursor: &mut Cursor<'_>, version: u8) -> Result<Self> {
        match cursor.u8()? {
            0 => {
                let size = usize::from(cursor.u16()?);
                Ok(Self::Compact(cursor.take(size)?.to_vec()))
            }
            1 => Ok(Self::Contiguous { address: cursor.uint(file.offset_size)? }),
            2 if version == 3 => {
                let rank = usize::from(cursor.u8()?);
                let address = cursor.uint(file.offset_size)?;
                let dims = (0..rank).map(|_| cursor.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
                Self::chunked(dims, Index::BTreeV1, address)
            }
            2 => {
                let flags = cursor.u8()?;
                let rank = usize::from(cursor.u8()?);
                let size = usize::from(cursor.u8()?);
                let dims = (0..rank).map(|_| cursor.uint(size)).collect::<Result<Vec<_>>>()?;
                let index = match cursor.u8()? {
                    1 if flags & 2 != 0 => {
                        Index::Single(Some((cursor.uint(file.length_size)?, cursor.u32()?)))
                    }
                    1 => Index::Single(None),
                    2 => Index::Implicit,
                    3 => cursor.skip(1).map(|()| Index::FixedArray)?,
                    4 => cursor.skip(5).map(|()| Index::ExtensibleArray)?,
                    5 => cursor.skip(6).map(|()| Index::BTreeV2)?,
                    _ => return Err(Error::Malformed("a data layout")),
                };
                Self::chunked(dims, index, cursor.uint(file.offset_size)?)
            }
            3 => Ok(Self::Virtual(cursor.uint(file.offset_size)?, cursor.u32()?)),
            _ => Err(Error::Malformed("a data layout")),
        }
    }

    /// The last of the stored extents is the size of an element.
    fn chunked(mut dims: Vec<u64>, index: Index, address: u64) -> Result<Self> {
        dims.pop();
        if dims.is_empty() || dims.contains(&0) {
            return Err(Error::Malformed("a data layout"));
        }
        Ok(Self::Chunked { chunk: dims, index, address })
    }
}

/// Message 0x05: the value of what was never written; `None` for zeros.
fn fill_value(body: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut cursor = Cursor::new(body, "a fill value");
    let is_there = match cursor.u8()? {
        1 | 2 => {
            cursor.skip(2)?;
            cursor.u8()? != 0
        }
        3 => cursor.u8()? & 0x20 != 0,
        _ => false,
    };
    if !is_there {
        return Ok(None);
    }
    let size = cursor.u32()? as usize;
    Ok((size > 0).then_some(cursor.take(size)?.to_vec()))
}

/// The frames `(row, column)` of a dataset, read one by one as they are stored.
///
/// A dataset of two dimensions is one frame, a table one row.
pub(crate) struct Frames {
    file: Arc<File>,
    pub(crate) count: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    element_size: usize,
    storage: Storage,
    fill: Option<Vec<u8>>,
}

enum Storage {
    Unwritten,
    Compact(Vec<u8>),
    Contiguous(u64),
    Chunked(Chunked),
    Virtual(Virtual),
}

struct Chunked {
    /// Edges of a chunk: frames, rows, columns.
    edges: [usize; 3],
    chunks: ChunkMap,
    filters: Vec<Filter>,
    /// Which dimension of the dataset is frame, row, column.
    dims: [Option<usize>; 3],
    rank: usize,
    cache: Cache,
}

impl Frames {
    pub(crate) fn open(dataset: &Dataset) -> Result<Self> {
        Self::open_within(dataset, 0)
    }

    /// Opens a dataset that is `depth` virtual datasets deep.
    pub(super) fn open_within(dataset: &Dataset, depth: usize) -> Result<Self> {
        let dims = &dataset.space.dims;
        let places = three_dimensions(dims)?;
        let extent = |place: Option<usize>| place.map_or(Ok(1), |dim| to_usize(dims[dim]));
        let (count, rows, columns) = (extent(places[0])?, extent(places[1])?, extent(places[2])?);
        let element_size = dataset.datatype.size();
        let bytes = dataset.checked_len().and_then(|len| len.checked_mul(element_size as u64));
        let bytes = bytes.ok_or(Error::Malformed("the extent of a dataset"))?;
        let file = dataset.file.clone();
        let storage = match &dataset.layout {
            Layout::Virtual(address, index) => {
                Storage::Virtual(Virtual::open(dataset, (*address, *index), depth)?)
            }
            Layout::Elsewhere(what) => return Err(Error::Unsupported((*what).to_owned())),
            Layout::Compact(stored) if stored.len() as u64 >= bytes => Storage::Compact(stored.clone()),
            Layout::Compact(_) => return Err(Error::Malformed("a compact dataset")),
            Layout::Contiguous { address } if file.is_undefined(*address) => Storage::Unwritten,
            Layout::Contiguous { address } => {
                file.locate(*address, bytes, "a dataset")?;
                Storage::Contiguous(*address)
            }
            Layout::Chunked { chunk, index, address } => {
                for filter in &dataset.filters {
                    filter.check()?;
                }
                if chunk.len() != dims.len() {
                    return Err(Error::Malformed("a data layout"));
                }
                let size =
                    chunk.iter().try_fold(element_size as u64, |product, &edge| product.checked_mul(edge));
                let chunk_bytes = size.filter(|size| *size <= MAX_CHUNK_BYTES).ok_or_else(|| {
                    Error::Unsupported(format!("a dataset with chunks of more than {MAX_CHUNK_BYTES} bytes"))
                })?;
                let grid = Grid { dims, max_dims: &dataset.space.max_dims, chunk, chunk_bytes };
                let chunks = grid.find(&file, *index, *address)?;
                let edge = |place: Option<usize>| place.map_or(Ok(1), |dim| to_usize(chunk[dim]));
                let edges = [edge(places[0])?, edge(places[1])?, edge(places[2])?];
                let filters = dataset.filters.clone();
                let rank = dims.len();
                Storage::Chunked(Chunked {
                    edges,
                    chunks,
                    filters,
                    dims: places,
                    rank,
                    cache: Cache::default(),
                })
            }
        };
        let fill = dataset.fill.clone().filter(|fill| fill.len() == element_size);
        Ok(Self { file, count, rows, columns, element_size, storage, fill })
    }

    /// Bytes of decoded chunks that are kept at most.
    pub(crate) fn cache_bytes(&self) -> usize {
        let chunked = match &self.storage {
            Storage::Chunked(chunked) => chunked,
            Storage::Virtual(parts) => return parts.cache_bytes(),
            _ => return 0,
        };
        let [frames, rows, columns] = chunked.edges;
        if chunked.filters.is_empty() && columns == self.columns {
            return 0;
        }
        // All chunks of a row of frames, and the one that is being decoded.
        let chunk = frames * rows * columns * self.element_size;
        let together = self.rows.div_ceil(rows) * self.columns.div_ceil(columns);
        chunk.saturating_mul(together).min(CACHE_BYTES) + chunk
    }

    /// Frames that were written so far: where chunks are missing, those up to the last chunk.
    pub(crate) fn written(&self) -> usize {
        match &self.storage {
            Storage::Unwritten => 0,
            Storage::Chunked(chunked) => {
                let frame_of = |position: &Vec<u64>| chunked.dims[0].map_or(0, |dim| position[dim]);
                let last = chunked.chunks.keys().map(frame_of).max();
                let end = last.map_or(0, |last| to_usize(last).unwrap_or(usize::MAX).saturating_add(1));
                end.saturating_mul(chunked.edges[0]).min(self.count)
            }
            _ => self.count,
        }
    }

    /// Drops what is kept of the frames that were read.
    pub(super) fn forget(&mut self) {
        if let Storage::Chunked(chunked) = &mut self.storage {
            chunked.cache = Cache::default();
        }
    }

    /// Reads rows of a frame into `out`, as they are stored.
    pub(crate) fn read(&mut self, frame: usize, rows: Range<usize>, out: &mut [u8]) -> Result<()> {
        let row_bytes = self.columns * self.element_size;
        if frame >= self.count
            || rows.end > self.rows
            || rows.start > rows.end
            || out.len() != rows.len() * row_bytes
        {
            return Err(Error::NotFound(format!("frame {frame} with rows {} to {}", rows.start, rows.end)));
        }
        let first = (frame * self.rows + rows.start) * row_bytes;
        match &mut self.storage {
            Storage::Unwritten => fill_with(out, self.fill.as_deref()),
            Storage::Compact(stored) => out.copy_from_slice(&stored[first..first + out.len()]),
            Storage::Contiguous(address) => self.file.read_into(*address + first as u64, out, "a frame")?,
            Storage::Chunked(chunked) => {
                let fill = self.fill.as_deref();
                chunked.read(&self.file, frame, rows, (self.columns, self.element_size, fill), out)?;
            }
            Storage::Virtual(parts) => {
                fill_with(out, self.fill.as_deref());
                parts.read(frame, &rows, (self.columns, self.element_size), out)?;
            }
        }
        Ok(())
    }
}

impl Chunked {
    fn read(
        &mut self,
        file: &File,
        frame: usize,
        rows: Range<usize>,
        (columns, element_size, fill): (usize, usize, Option<&[u8]>),
        out: &mut [u8],
    ) -> Result<()> {
        let [frame_edge, row_edge, column_edge] = self.edges;
        let row_bytes = columns * element_size;
        let line_bytes = column_edge * element_size;
        let plane = frame % frame_edge;
        for y in rows.start / row_edge..rows.end.div_ceil(row_edge) {
            let lines = rows.start.max(y * row_edge)..rows.end.min((y + 1) * row_edge);
            let within = plane * row_edge + lines.start - y * row_edge;
            let target =
                &mut out[(lines.start - rows.start) * row_bytes..(lines.end - rows.start) * row_bytes];
            for x in 0..columns.div_ceil(column_edge) {
                let start = x * line_bytes;
                let width = line_bytes.min(row_bytes - start);
                let position = self.position([frame / frame_edge, y, x]);
                let Some(chunk) = self.chunks.get(&position).copied() else {
                    for line in target.chunks_exact_mut(row_bytes) {
                        fill_with(&mut line[start..start + width], fill);
                    }
                    continue;
                };
                if self.filters.is_empty() && line_bytes == row_bytes {
                    file.read_into(chunk.address + (within * line_bytes) as u64, target, "a chunk")?;
                    continue;
                }
                let decoded_len = frame_edge * row_edge * line_bytes;
                let filters = &self.filters;
                let decoded = self.cache.get(&position, || {
                    let size = to_usize(chunk.size)?;
                    // A chunk that does not compress grows by little; more is nonsense.
                    if size > 2 * decoded_len + 4096 {
                        return Err(Error::Malformed("a chunk"));
                    }
                    file.locate(chunk.address, chunk.size, "a chunk")?;
                    let mut stored = vec![0; size];
                    file.read_into(chunk.address, &mut stored, "a chunk")?;
                    undo_all(filters, chunk.filter_mask, stored, decoded_len)
                })?;
                let lines = decoded[within * line_bytes..].chunks_exact(line_bytes);
                for (line, to) in lines.zip(target.chunks_exact_mut(row_bytes)) {
                    to[start..start + width].copy_from_slice(&line[..width]);
                }
            }
        }
        Ok(())
    }

    /// The place of a chunk in the dataset's own dimensions.
    fn position(&self, three: [usize; 3]) -> Vec<u64> {
        let mut position = vec![0; self.rank];
        for (dim, at) in self.dims.iter().zip(three) {
            if let Some(dim) = *dim {
                position[dim] = at as u64;
            }
        }
        position
    }
}

/// Decoded chunks, those that were not used for long dropped first.
#[derive(Default)]
struct Cache {
    chunks: HashMap<Vec<u64>, (Vec<u8>, u64)>,
    bytes: usize,
    clock: u64,
}

impl Cache {
    fn get(&mut self, position: &[u64], decode: impl FnOnce() -> Result<Vec<u8>>) -> Result<&[u8]> {
        self.clock += 1;
        if !self.chunks.contains_key(position) {
            let decoded = decode()?;
            self.bytes += decoded.len();
            if self.bytes > CACHE_BYTES {
                self.drop_older_half();
                self.bytes += decoded.len();
            }
            self.chunks.insert(position.to_vec(), (decoded, 0));
        }
        let (decoded, used) = self.chunks.get_mut(position).ok_or(Error::Malformed("a chunk"))?;
        *used = self.clock;
        Ok(decoded)
    }

    /// Half at once, so that looking for the oldest costs little per chunk.
    fn drop_older_half(&mut self) {
        let mut uses: Vec<u64> = self.chunks.values().map(|(_, used)| *used).collect();
        uses.sort_unstable();
        let newest_to_go = uses.get(uses.len() / 2).copied().unwrap_or(0);
        self.chunks.retain(|_, (_, used)| *used > newest_to_go);
        self.bytes = self.chunks.values().map(|(decoded, _)| decoded.len()).sum();
    }
}

/// Which dimensions are frame, row and column; leading dimensions of extent 1 are left out.
pub(super) fn three_dimensions(dims: &[u64]) -> Result<[Option<usize>; 3]> {
    let leading = dims.len().saturating_sub(3);
    if dims[..leading].iter().any(|&extent| extent != 1) {
        return Err(Error::Unsupported(format!("a dataset of {} dimensions", dims.len())));
    }
    let mut places = [None; 3];
    for (place, dim) in places.iter_mut().rev().zip((leading..dims.len()).rev()) {
        *place = Some(dim);
    }
    Ok(places)
}

fn fill_with(out: &mut [u8], fill: Option<&[u8]>) {
    match fill {
        Some(fill) => out.chunks_exact_mut(fill.len()).for_each(|element| element.copy_from_slice(fill)),
        None => out.fill(0),
    }
}

fn to_usize(value: u64) -> Result<usize> {
    usize::try_from(value).ok().ok_or(Error::Malformed("an extent"))
}

/// The kind of number that frames are made of, or why there are none.
pub(crate) fn pixel_type(dataset: &Dataset) -> Result<Number> {
    match dataset.datatype {
        Datatype::Number(number) => Ok(number),
        other => Err(Error::Unsupported(format!("frames of {}", other.name()))),
    }
}
