//! Zarr arrays, alone or in a group as of OME-Zarr: their first level as a stack of frames.
//!
//! # Source
//! Zarr core specification, versions 2 and 3, with the codecs bytes, zstd, gzip, blosc, crc32c and sharding; OME-NGFF
//! 0.4 and 0.5.

mod metadata;

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use beamstream_core::{ElementType, Role, Shape};

use self::metadata::{Array, Codec, Shard};
use super::pixels::{convert, element_type};
use super::{Extent, MAX_FRAME_BYTES, MAX_FRAMES, Parts, ScanError, ScanKind, Stack};
use crate::hdf5::{decode_blosc, gunzip, inflate, unzstd};

/// Largest decoded chunk.
const MAX_CHUNK_BYTES: usize = 1 << 30;
/// Bytes of an entry in the index of a shard: offset and length.
const INDEX_ENTRY_BYTES: usize = 16;

/// Whether a folder is a Zarr group or array.
pub(super) fn is_zarr(folder: &Path) -> bool {
    metadata::NAMES.iter().any(|name| folder.join(name).is_file())
}

/// The array of a folder, or the first level of its group.
pub(super) fn open(folder: &Path) -> Result<Parts, ScanError> {
    let (place, array) = metadata::find_array(folder)?;
    let mut parts = Parts::new(ScanKind::Zarr);
    let name = place.strip_prefix(folder).unwrap_or(&place).display().to_string();
    parts.add_listed(&format!("/{name}"), Box::new(ZarrStack::new(place, array)?), Role::Projection);
    Ok(parts)
}

/// The frames of an array, chunk by chunk.
struct ZarrStack {
    folder: PathBuf,
    array: Array,
    shape: Shape,
    /// Decoded chunks of the frames that are being read, by row and column of the grid; `None` was never written.
    decoded: HashMap<[usize; 2], Option<Vec<u8>>>,
    /// Position of these frames in the grid.
    decoded_frames: usize,
    stored: Vec<u8>,
}

impl ZarrStack {
    fn new(folder: PathBuf, array: Array) -> Result<Self, ScanError> {
        let [frames, rows, columns] = array.extents;
        let shape = Shape::new(rows, columns);
        let frame_bytes = shape.checked_len().and_then(|len| len.checked_mul(array.number.size));
        let is_readable = frame_bytes.is_some_and(|bytes| bytes > 0 && bytes <= MAX_FRAME_BYTES);
        if !is_readable || frames == 0 || frames > MAX_FRAMES {
            let what = format!("{frames} frames of {shape} cannot be read");
            return Err(ScanError::no_frames(&folder, what));
        }
        let chunk = array.chunk.iter().try_fold(array.number.size, |bytes, &edge| bytes.checked_mul(edge));
        if chunk.is_none_or(|bytes| bytes == 0 || bytes > MAX_CHUNK_BYTES) {
            let what = format!("expected chunks of up to {MAX_CHUNK_BYTES} bytes, found {:?}", array.chunk);
            return Err(ScanError::no_frames(&folder, what));
        }
        let decoded = HashMap::new();
        Ok(Self { folder, array, shape, decoded, decoded_frames: 0, stored: Vec::new() })
    }

    fn chunk_bytes(&self) -> usize {
        self.array.chunk.iter().product::<usize>() * self.array.number.size
    }

    /// The decoded chunk at a position of the grid.
    fn chunk(&mut self, at: [usize; 3]) -> Result<Option<&[u8]>, ScanError> {
        if self.decoded_frames != at[0] {
            self.decoded.clear();
            self.decoded_frames = at[0];
        }
        let key = [at[1], at[2]];
        if !self.decoded.contains_key(&key) {
            let decoded = self.read_chunk(at)?;
            self.decoded.insert(key, decoded);
        }
        Ok(self.decoded.get(&key).and_then(Option::as_deref))
    }

    fn read_chunk(&self, at: [usize; 3]) -> Result<Option<Vec<u8>>, ScanError> {
        let inner = self.array.shard.as_ref().map_or([1; 3], |shard| shard.chunks);
        let outer = [0, 1, 2].map(|dim| at[dim] / inner[dim]);
        let path = self.folder.join(self.array.key(outer));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ScanError::io(&path)(error)),
        };
        let len = file.metadata().map_err(ScanError::io(&path))?.len();
        let place = match &self.array.shard {
            None => Some((0, len)),
            Some(shard) => {
                let within = [0, 1, 2].map(|dim| at[dim] % inner[dim]);
                place_in_shard(&file, &path, len, shard, within)?
            }
        };
        let Some((offset, size)) = place else {
            return Ok(None);
        };
        let bytes = self.chunk_bytes();
        // A chunk that does not compress grows by little; more is nonsense.
        let size = usize::try_from(size).ok().filter(|size| *size <= 2 * bytes + 4096);
        let is_inside = |size: usize| offset.checked_add(size as u64).is_some_and(|end| end <= len);
        let size = size.filter(|size| is_inside(*size));
        let size = size.ok_or_else(|| ScanError::no_frames(&path, "this chunk is damaged"))?;
        let mut stored = vec![0; size];
        file.read_exact_at(&mut stored, offset).map_err(ScanError::io(&path))?;
        decode(&self.array.codecs, stored, bytes)
            .ok_or_else(|| {
                ScanError::no_frames(&path, format!("this chunk does not decode to {bytes} bytes"))
            })
            .map(Some)
    }
}

/// Offset and length of an inner chunk by the index of its shard; `None` if it was never written.
fn place_in_shard(
    file: &File,
    path: &Path,
    len: u64,
    shard: &Shard,
    at: [usize; 3],
) -> Result<Option<(u64, u64)>, ScanError> {
    let [_, rows, columns] = shard.chunks;
    let number = (at[0] * rows + at[1]) * columns + at[2];
    let index_bytes =
        (shard.chunks.iter().product::<usize>() * INDEX_ENTRY_BYTES + shard.checksum_bytes) as u64;
    let start = if shard.index_at_end { len.checked_sub(index_bytes) } else { Some(0) };
    let start = start.ok_or_else(|| ScanError::no_frames(path, "this shard is shorter than its index"))?;
    let mut entry = [0; INDEX_ENTRY_BYTES];
    let entry_at = start + (number * INDEX_ENTRY_BYTES) as u64;
    file.read_exact_at(&mut entry, entry_at).map_err(ScanError::io(path))?;
    let (offset, size) = entry.split_at(INDEX_ENTRY_BYTES / 2);
    let value = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
    let place = (value(offset), value(size));
    Ok((place != (u64::MAX, u64::MAX)).then_some(place))
}

/// Undoes the codecs, the last one first; `None` for damaged data.
fn decode(codecs: &[Codec], mut stored: Vec<u8>, bytes: usize) -> Option<Vec<u8>> {
    for codec in codecs.iter().rev() {
        stored = match codec {
            Codec::Zstd => unzstd(&stored, bytes).ok()?,
            Codec::Gzip => gunzip(&stored, bytes)?,
            Codec::Zlib => inflate(&stored, bytes).ok()?,
            Codec::Blosc => decode_blosc(&stored, bytes).ok()?,
            Codec::Checksum => {
                stored.truncate(stored.len().checked_sub(4)?);
                stored
            }
        };
    }
    (stored.len() == bytes).then_some(stored)
}

impl Stack for ZarrStack {
    fn extent(&self) -> Extent {
        Extent { frames: self.array.extents[0], shape: self.shape }
    }

    fn element(&self) -> ElementType {
        element_type(self.array.number)
    }

    fn memory_bytes(&self) -> usize {
        let [_, rows, columns] = self.array.chunk;
        let together = self.shape.rows.div_ceil(rows) * self.shape.columns.div_ceil(columns);
        // Those that are kept, and one before and after it is decoded.
        self.chunk_bytes().saturating_mul(together + 2)
    }

    fn read(
        &mut self,
        frame: usize,
        rows: Range<usize>,
        element: ElementType,
        out: &mut [u8],
    ) -> Result<(), ScanError> {
        let size = self.array.number.size;
        let [frame_edge, row_edge, column_edge] = self.array.chunk;
        let (row_bytes, line_bytes) = (self.shape.columns * size, column_edge * size);
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(rows.len() * row_bytes, 0);
        for y in rows.start / row_edge..rows.end.div_ceil(row_edge) {
            let lines = rows.start.max(y * row_edge)..rows.end.min((y + 1) * row_edge);
            let first = (frame % frame_edge * row_edge + lines.start - y * row_edge) * line_bytes;
            let target = (lines.start - rows.start) * row_bytes..(lines.end - rows.start) * row_bytes;
            for x in 0..self.shape.columns.div_ceil(column_edge) {
                let start = x * line_bytes;
                let width = line_bytes.min(row_bytes - start);
                let fill = self.array.fill.clone();
                let chunk = self.chunk([frame / frame_edge, y, x])?;
                let targets = stored[target.clone()].chunks_exact_mut(row_bytes);
                for (number, to) in targets.enumerate() {
                    let to = &mut to[start..start + width];
                    match chunk {
                        Some(chunk) => to.copy_from_slice(&chunk[first + number * line_bytes..][..width]),
                        None => to.chunks_exact_mut(size).for_each(|pixel| pixel.copy_from_slice(&fill)),
                    }
                }
            }
        }
        convert(self.array.number, &stored, element, out);
        self.stored = stored;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Scan, ScanOptions};

    /// An array of 2 x 2 x 3 pixels in chunks of 1 x 2 x 2.
    fn write(folder: &Path, metadata: &str, name: impl Fn([usize; 3]) -> String) {
        for frame in 0..2_usize {
            for column in 0..2_usize {
                let path = folder.join(name([frame, 0, column]));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                let values = [0, 1, 10, 11].map(|value| (100 * frame + 2 * column + value) as u8);
                std::fs::write(path, values).unwrap();
            }
        }
        let name = if metadata.contains("\"chunks\"") { ".zarray" } else { "zarr.json" };
        std::fs::write(folder.join(name), metadata).unwrap();
    }

    const V2: &str = r#"{"zarr_format": 2, "shape": [2, 2, 3], "chunks": [1, 2, 2], "dtype": "|u1", "order": "C",
        "fill_value": 7, "compressor": null, "filters": null, "dimension_separator": "."}"#;
    const V3: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [2, 2, 3], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 2, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 7, "codecs": [{"name": "bytes"}]}"#;

    fn frame_1(folder: &Path) -> [u8; 6] {
        let mut scan = Scan::open(folder, &ScanOptions::default()).unwrap();
        let mut out = [0; 6];
        scan.read(1, 0..2, &mut out).unwrap();
        out
    }

    #[test]
    fn chunks_of_both_versions_are_put_together() {
        let folder = tempfile::tempdir().unwrap();
        let (two, three) = (folder.path().join("2.zarr"), folder.path().join("3.zarr"));
        write(&two, V2, |at| at.map(|at| at.to_string()).join("."));
        write(&three, V3, |at| format!("c/{}", at.map(|at| at.to_string()).join("/")));
        for array in [&two, &three] {
            assert_eq!(frame_1(array), [100, 101, 102, 110, 111, 112]);
        }
        std::fs::remove_file(two.join("1.0.0")).unwrap();
        assert_eq!(frame_1(&two), [7, 7, 102, 7, 7, 112]);
        std::fs::write(two.join("1.0.0"), [1, 2, 3]).unwrap();
        let mut scan = Scan::open(&two, &ScanOptions::default()).unwrap();
        let text = scan.read(1, 0..2, &mut [0; 6]).unwrap_err().to_string();
        assert!(text.contains("1.0.0") && text.contains("4 bytes"), "{text}");
    }

    #[test]
    fn shards_hold_chunks_behind_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let codecs = r#"[{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 2, 2],
            "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]}}]"#;
        let metadata = V3
            .replace(r#""chunk_shape": [1, 2, 2]"#, r#""chunk_shape": [2, 2, 4]"#)
            .replace(r#"[{"name": "bytes"}]"#, codecs);
        std::fs::write(folder.path().join("zarr.json"), metadata).unwrap();
        // Chunks (1, 0, 0) and (1, 0, 1) are there, those of frame 0 are not.
        let mut shard = vec![100, 101, 110, 111, 102, 103, 112, 113];
        shard.extend([0xff; 32]);
        for number in [0_u64, 4, 4, 4] {
            shard.extend(number.to_le_bytes());
        }
        shard.extend([0; 4]);
        let path = folder.path().join("c/0/0/0");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &shard).unwrap();
        assert_eq!(frame_1(folder.path()), [100, 101, 102, 110, 111, 112]);
        std::fs::write(&path, &shard[..20]).unwrap();
        let mut scan = Scan::open(folder.path(), &ScanOptions::default()).unwrap();
        assert!(scan.read(1, 0..2, &mut [0; 6]).unwrap_err().to_string().contains("shorter than its index"));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let huge = "[9007199254740993, 9007199254740993, 3]";
        for (from, to, word) in [
            ("[2, 2, 3]", huge, "cannot be read"),
            ("[1, 2, 2]", "[1, 0, 2]", "expected chunks"),
            ("[1, 2, 2]", "[900719925474, 900719925474, 2]", "expected chunks"),
            ("uint8", "complex64", "complex64"),
            (r#"[{"name": "bytes"}]"#, r#"[{"name": "bytes"}, {"name": "numcodecs.pcodec"}]"#, "pcodec"),
            ("\"array\"", "\"group\"", "expected an array"),
            ("{", "", "zarr.json"),
        ] {
            std::fs::write(folder.path().join("zarr.json"), V3.replacen(from, to, 1)).unwrap();
            let text = Scan::open(folder.path(), &ScanOptions::default()).unwrap_err().to_string();
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
