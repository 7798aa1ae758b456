//! TIFF outputs: a folder of slices, or all of them as pages of one BigTIFF.
//!
//! # Source
//! Adobe, "TIFF Revision 6.0" (1992); the BigTIFF extension of AWare Systems (2007).

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use beamstream_core::{ElementType, Format, FrameId};
use serde_json::Value;

use super::stacked::Container;
use super::temporary::Temporary;
use super::{Output, OutputError, OutputSpec, PROGRAM};

/// Field types of directory entries.
const ASCII: u16 = 2;
const SHORT: u16 = 3;
const LONG: u16 = 4;
const LONG8: u16 = 16;

/// Files of up to this size have 32-bit offsets, which every reader understands.
const CLASSIC_MAX_BYTES: usize = (4 << 30) - (64 << 10);

/// One image file directory, with the texts that its entries point to behind it.
struct Directory<'a> {
    big: bool,
    format: Format,
    pixels_at: u64,
    description: &'a str,
    /// Where the directory itself will be.
    at: u64,
    has_next: bool,
}

impl Directory<'_> {
    fn bytes(&self) -> Vec<u8> {
        let Format { element, shape, .. } = self.format;
        let offset_type = if self.big { LONG8 } else { LONG };
        let sample_format = match element {
            ElementType::U8 | ElementType::U16 | ElementType::U32 => 1,
            ElementType::I16 | ElementType::I32 => 2,
            ElementType::F16 | ElementType::F32 => 3,
        };
        let number =
            |tag: u16, kind: u16, value: u64| (tag, kind, value.to_le_bytes()[..size_of_type(kind)].to_vec());
        let text = |tag: u16, text: &str| (tag, ASCII, [text.as_bytes(), &[0]].concat());
        let mut entries = vec![
            number(256, LONG, shape.columns as u64),
            number(257, LONG, shape.rows as u64),
            number(258, SHORT, 8 * element.size() as u64),
            number(259, SHORT, 1),
            number(262, SHORT, 1),
            text(270, self.description),
            number(273, offset_type, self.pixels_at),
            number(277, SHORT, 1),
            number(278, LONG, shape.rows as u64),
            number(279, offset_type, self.format.bytes() as u64),
            text(305, PROGRAM),
            number(339, SHORT, sample_format),
        ];
        entries.retain(|(tag, _, value)| *tag != 270 || value.len() > 1);
        self.lay_out(&entries)
    }

    /// Values longer than an offset go behind the directory.
    fn lay_out(&self, entries: &[(u16, u16, Vec<u8>)]) -> Vec<u8> {
        let offset_size = if self.big { 8 } else { 4 };
        let offset = |value: u64| value.to_le_bytes()[..offset_size].to_vec();
        let (count_size, entry_size) = if self.big { (8, 20) } else { (2, 12) };
        let length = count_size + entries.len() * entry_size + offset_size;
        let mut behind = Vec::new();
        let mut bytes = (entries.len() as u64).to_le_bytes()[..count_size].to_vec();
        for (tag, kind, value) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(offset((value.len() / size_of_type(*kind)) as u64));
            if value.len() <= offset_size {
                bytes.extend(value);
                bytes.extend(std::iter::repeat_n(0, offset_size - value.len()));
            } else {
                bytes.extend(offset(self.at + (length + behind.len()) as u64));
                behind.extend(value);
                behind.resize(behind.len().next_multiple_of(8), 0);
            }
        }
        let next = self.at + (length + behind.len()).next_multiple_of(8) as u64;
        bytes.extend(offset(if self.has_next { next } else { 0 }));
        bytes.extend(behind);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }
}

fn size_of_type(kind: u16) -> usize {
    match kind {
        SHORT => 2,
        LONG => 4,
        LONG8 => 8,
        _ => 1,
    }
}

/// The first bytes of a file whose first directory is at `directory_at`.
fn header(big: bool, directory_at: u64) -> Vec<u8> {
    if big {
        [&b"II+\0\x08\0\0\0"[..], &directory_at.to_le_bytes()].concat()
    } else {
        [&b"II*\0"[..], &(directory_at as u32).to_le_bytes()].concat()
    }
}

/// One BigTIFF of all blocks: pixels first, directories behind them.
pub(super) struct TiffStack {
    pub(super) format: Format,
}

impl TiffStack {
    const HEADER_BYTES: u64 = 16;
}

impl Container for TiffStack {
    fn data_offset(&self) -> u64 {
        Self::HEADER_BYTES
    }

    fn seal(&self, file: &File, count: u64, provenance: &Value) -> io::Result<()> {
        let provenance = provenance.to_string();
        let block_bytes = self.format.bytes() as u64;
        let first = (Self::HEADER_BYTES + count * block_bytes).next_multiple_of(8);
        let mut at = first;
        for page in 0..count {
            let description = if page == 0 { provenance.as_str() } else { "" };
            let pixels_at = Self::HEADER_BYTES + page * block_bytes;
            let has_next = page + 1 < count;
            let directory =
                Directory { big: true, format: self.format, pixels_at, description, at, has_next };
            let bytes = directory.bytes();
            file.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        file.write_all_at(&header(true, if count > 0 { first } else { 0 }), 0)
    }
}

/// A folder with one file a block, named by its number: for volumes the detector row.
pub(super) struct TiffFolder {
    temporary: Temporary,
    format: Format,
    stem: &'static str,
}

/// The file of the folder that says how the slices were made.
const PROVENANCE: &str = "provenance.json";

impl TiffFolder {
    pub(super) fn create(spec: &OutputSpec) -> Result<Self, OutputError> {
        let temporary = Temporary::new(&spec.path, spec.overwrite, is_own_name)?;
        std::fs::create_dir(temporary.path()).map_err(OutputError::io(&spec.path))?;
        let stem = if spec.is_volume() { "slice" } else { "frame" };
        Ok(Self { temporary, format: spec.format, stem })
    }
}

impl Output for TiffFolder {
    fn write(&mut self, id: FrameId, bytes: &[u8]) -> Result<(), OutputError> {
        let expected = self.format.bytes();
        let target = self.temporary.target();
        if bytes.len() != expected {
            return Err(OutputError::BlockSize { path: target.to_owned(), expected, found: bytes.len() });
        }
        let name = file_name(self.stem, id);
        let big = expected > CLASSIC_MAX_BYTES;
        let pixels_at = if big { 16 } else { 8 };
        let at = (pixels_at + expected as u64).next_multiple_of(8);
        let directory =
            Directory { big, format: self.format, pixels_at, description: "", at, has_next: false };
        let write = || {
            let mut file = File::create_new(self.temporary.path().join(&name))?;
            file.write_all(&header(big, at))?;
            file.write_all(bytes)?;
            file.write_all_at(&directory.bytes(), at)
        };
        write().map_err(OutputError::io(&target.join(&name)))
    }

    fn finish(self: Box<Self>, provenance: &Value) -> Result<(), OutputError> {
        let path = self.temporary.path().join(PROVENANCE);
        std::fs::write(path, format!("{provenance:#}\n"))
            .map_err(OutputError::io(self.temporary.target()))?;
        self.temporary.commit()
    }
}

/// `slice_00012.tif`; detectors that count each role from zero have the role in the name.
fn file_name(stem: &str, id: FrameId) -> String {
    let stem = match id.counter {
        0 => stem,
        1 => "dark",
        2 => "flat",
        3 => "projection",
        _ => "invalid",
    };
    format!("{stem}_{:05}.tif", id.number)
}

/// Whether a file could be of an earlier output: a word, a number, and `.tif`.
pub(super) fn is_own_name(name: &str) -> bool {
    if name == PROVENANCE {
        return true;
    }
    let number = name.strip_suffix(".tif").and_then(|stem| stem.rsplit_once('_'));
    number.is_some_and(|(word, number)| {
        word.bytes().all(|b| b.is_ascii_lowercase()) && number.bytes().all(|b| b.is_ascii_digit())
    })
}
