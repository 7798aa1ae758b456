//! NumPy's array file as a stack of frames.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use beamstream_core::Shape;

use super::plain::PlainStack;
use super::{MAX_FRAMES, ScanError};
use crate::hdf5::{Number, NumberClass};

/// How such a file begins.
pub(super) const SIGNATURE: &[u8] = b"\x93NUMPY";

/// An array `(frame, row, column)`, or one frame `(row, column)`.
pub(super) fn open(path: &Path) -> Result<PlainStack, ScanError> {
    let mut file = File::open(path).map_err(ScanError::io(path))?;
    let damaged = || ScanError::no_frames(path, "the header of this NumPy file is damaged");
    let mut start = [0; 12];
    file.read_exact(&mut start).map_err(ScanError::io(path))?;
    // Version 1 has the length of the header in two bytes, later ones in four.
    let (length, begin) = match start[6] {
        1 => (u32::from(u16::from_le_bytes([start[8], start[9]])), 10_usize),
        2 | 3 => (u32::from_le_bytes([start[8], start[9], start[10], start[11]]), 12),
        _ => return Err(damaged()),
    };
    let mut header = start[begin..].to_vec();
    file.by_ref()
        .take(u64::from(length).min(1 << 16))
        .read_to_end(&mut header)
        .map_err(ScanError::io(path))?;
    let text = String::from_utf8_lossy(&header);
    let value = |key: &str| text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());

    let descr =
        value("descr").and_then(|rest| rest.strip_prefix('\'')?.split_once('\'')).ok_or_else(damaged)?.0;
    let number = number(descr)
        .ok_or_else(|| ScanError::no_frames(path, format!("expected numbers, found {descr}")))?;
    if value("fortran_order").ok_or_else(damaged)?.starts_with("True") {
        return Err(ScanError::no_frames(path, "expected an array in C order, found Fortran order"));
    }
    let shape =
        value("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')')).ok_or_else(damaged)?.0;
    let extents = shape.split(',').map(str::trim).filter(|extent| !extent.is_empty()).map(str::parse);
    let extents: Vec<usize> = extents.collect::<Result<_, _>>().ok().ok_or_else(damaged)?;
    let (count, shape) = match extents[..] {
        [rows, columns] => (1, Shape::new(rows, columns)),
        [count, rows, columns] if count <= MAX_FRAMES => (count, Shape::new(rows, columns)),
        _ => {
            return Err(ScanError::no_frames(
                path,
                format!("expected frames, found an array of extents ({shape})"),
            ));
        }
    };
    let frame_bytes =
        shape.checked_len().and_then(|len| len.checked_mul(number.size)).ok_or_else(damaged)? as u64;
    let first = begin as u64 + u64::from(length);
    let offsets = (0..count as u64).map(|frame| first.saturating_add(frame.saturating_mul(frame_bytes)));
    PlainStack::new(path, file, offsets.collect(), shape, number)
}

/// A number by its description, as `<u2`.
pub(super) fn number(descr: &str) -> Option<Number> {
    let mut letters = descr.chars();
    let order = letters.next()?;
    let class = match letters.next()? {
        'u' => NumberClass::Unsigned,
        'i' => NumberClass::Signed,
        'f' => NumberClass::Float,
        _ => return None,
    };
    let size = letters.as_str().parse().ok()?;
    let is_known = matches!(
        (class, size),
        (NumberClass::Float, 2 | 4 | 8) | (NumberClass::Unsigned | NumberClass::Signed, 1 | 2 | 4 | 8)
    );
    is_known.then_some(Number { size, class, big_endian: order == '>' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_understood() {
        let u16_big = Number { size: 2, class: NumberClass::Unsigned, big_endian: true };
        assert_eq!(number(">u2"), Some(u16_big));
        assert_eq!(number("|u1").map(|n| n.size), Some(1));
        assert!(number("<c8").is_none() && number("|O").is_none() && number("").is_none());
    }
}
