//! MRC, the files of electron microscopes: one header, then all frames.
//!
//! # Source
//! A. Cheng et al., "MRC2014: Extensions to the MRC format header", J. Struct. Biol. 192 (2015),
//! doi:10.1016/j.jsb.2015.04.002.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use beamstream_core::{Role, Shape};

use super::angles::AngleTable;
use super::plain::PlainStack;
use super::{MAX_FRAMES, Parts, ScanError, ScanKind};
use crate::hdf5::{Number, NumberClass};

const HEADER_BYTES: usize = 1024;
/// Where the mark of newer files is.
const MARK_AT: usize = 208;
/// Where the mark of the byte order is.
const STAMP_AT: usize = 212;
const ANGSTROM_M: f64 = 1e-10;
/// Endings of the texts with tilt angles that may lie beside a file.
const ANGLE_ENDINGS: [&str; 2] = ["rawtlt", "tlt"];

/// Whether a file is of this kind: by its mark, or by its name where an old file has none.
pub(super) fn is_mrc(path: &Path, start: &[u8]) -> bool {
    let has_name = path.extension().is_some_and(|ending| {
        ["mrc", "mrcs", "st", "ali", "rec"].iter().any(|known| ending.eq_ignore_ascii_case(known))
    });
    start.len() >= HEADER_BYTES && (start[MARK_AT..].starts_with(b"MAP") || has_name)
}

/// The header, in the byte order of the file.
struct Header {
    bytes: [u8; HEADER_BYTES],
    big_endian: bool,
}

impl Header {
    fn field(&self, at: usize) -> [u8; 4] {
        let mut field = [0; 4];
        field.copy_from_slice(&self.bytes[at..at + 4]);
        if self.big_endian {
            field.reverse();
        }
        field
    }

    fn int(&self, at: usize) -> i32 {
        i32::from_le_bytes(self.field(at))
    }

    fn float(&self, at: usize) -> f64 {
        f64::from(f32::from_le_bytes(self.field(at)))
    }
}

/// The frames of a file, and the angles of a text of its name beside it.
pub(super) fn open(path: &Path) -> Result<Parts, ScanError> {
    let file = File::open(path).map_err(ScanError::io(path))?;
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, 0).map_err(ScanError::io(path))?;
    let header = Header { bytes, big_endian: bytes[STAMP_AT] == 0x11 };
    let extent = |at, what: &str| {
        let found = header.int(at);
        let extent = usize::try_from(found).ok().filter(|&extent| extent > 0 && extent <= MAX_FRAMES);
        extent.ok_or_else(|| {
            ScanError::no_frames(
                path,
                format!("expected a number of {what} in the MRC header, found {found}"),
            )
        })
    };
    let (columns, rows, count) = (extent(0, "columns")?, extent(4, "rows")?, extent(8, "frames")?);
    let (class, size) = match header.int(12) {
        0 => (NumberClass::Signed, 1),
        1 => (NumberClass::Signed, 2),
        2 => (NumberClass::Float, 4),
        6 => (NumberClass::Unsigned, 2),
        12 => (NumberClass::Float, 2),
        mode => {
            let what = format!("expected the MRC mode 0, 1, 2, 6 or 12, found {mode}");
            return Err(ScanError::no_frames(path, what));
        }
    };
    let extended = header.int(92);
    let extended = u64::try_from(extended).ok().ok_or_else(|| {
        ScanError::no_frames(path, format!("expected the length of an extended header, found {extended}"))
    })?;
    let number = Number { size, class, big_endian: header.big_endian };
    let shape = Shape::new(rows, columns);
    let frame_bytes = shape.checked_len().and_then(|len| len.checked_mul(size)).unwrap_or(usize::MAX) as u64;
    let first = HEADER_BYTES as u64 + extended;
    // Checked before the list of frames is made: a header of nonsense may announce millions.
    let len = file.metadata().map_err(ScanError::io(path))?.len();
    let there = len.saturating_sub(first) / frame_bytes;
    if there < count as u64 {
        let what = format!("the file is cut off: expected {count} frames of {shape}, found {there}");
        return Err(ScanError::no_frames(path, what));
    }
    let offsets = (0..count as u64).map(|frame| first + frame * frame_bytes).collect();
    let stack = PlainStack::new(path, file, offsets, shape, number)?;
    let mut parts = Parts::of_stack(ScanKind::Mrc, Box::new(stack), Role::Projection);
    let (cell, samples) = (header.float(40), header.int(28));
    if cell.is_finite() && cell > 0.0 && samples > 0 {
        parts.pixel_size_m = Some(cell / f64::from(samples) * ANGSTROM_M);
    }
    let beside = ANGLE_ENDINGS.map(|ending| path.with_extension(ending));
    if let Some(text) = beside.iter().find(|text| text.is_file()) {
        parts.warnings.push(format!("the angles are taken from {}", text.display()));
        parts.angles = Some(AngleTable::from_text(text)?);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Scan, ScanOptions};

    /// A header with its extents, mode and the length of what follows it.
    fn header(extents: [i32; 3], mode: i32, extended: i32, big_endian: bool) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let fields = [(0, extents[0]), (4, extents[1]), (8, extents[2]), (12, mode), (28, 2), (92, extended)];
        for (at, value) in fields {
            let field = if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            bytes[at..at + 4].copy_from_slice(&field);
        }
        let cell = if big_endian { 20_f32.to_be_bytes() } else { 20_f32.to_le_bytes() };
        bytes[40..44].copy_from_slice(&cell);
        bytes[STAMP_AT] = if big_endian { 0x11 } else { 0x44 };
        bytes
    }

    #[test]
    fn both_byte_orders_and_extended_headers_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tilt.mrc");
        for big_endian in [false, true] {
            let pixels: Vec<u8> = [1_i16, 2, -3, 4]
                .into_iter()
                .flat_map(|v| if big_endian { v.to_be_bytes() } else { v.to_le_bytes() })
                .collect();
            let bytes = [header([2, 1, 2], 1, 8, big_endian), vec![9; 8], pixels].concat();
            std::fs::write(&path, bytes).unwrap();
            std::fs::write(path.with_extension("rawtlt"), "-60.0\n60.0\n").unwrap();
            let mut scan = Scan::open(&path, &ScanOptions::default()).unwrap();
            assert_eq!(scan.info().projection_angles_deg(), [-60.0, 60.0]);
            assert!((scan.info().pixel_size_m.unwrap() - 1e-9).abs() < 1e-15);
            let mut out = [0; 4];
            scan.read(1, 0..1, &mut out).unwrap();
            assert_eq!(bytemuck::pod_collect_to_vec::<u8, i16>(&out), [-3, 4]);
        }
    }

    #[test]
    fn nonsense_in_the_header_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tilt.mrc");
        for (bytes, word) in [
            (header([-1, 1, 1], 1, 0, false), "columns"),
            (header([1 << 21, 1 << 21, 1 << 21], 2, 0, false), "cut off"),
            (header([2, 1, 1], 4, 0, false), "mode"),
            (header([2, 1, 1], 1, -4, false), "extended header"),
            (header([2, 1, 1], 1, i32::MAX, false), "cut off"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
            assert!(text.contains(word) && text.contains("tilt.mrc"), "{word}: {text}");
        }
    }
}
