//! NumPy's files of arrays, as oracles are stored.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// An array as NumPy stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// NumPy's description of the element type, for example `<u2`.
    pub descr: String,
    /// Extents, slowest axis first.
    pub shape: Vec<usize>,
    /// The elements, row-major.
    pub bytes: Vec<u8>,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn number(bytes: &[u8], at: usize, size: usize) -> io::Result<usize> {
    let field = bytes.get(at..at + size).ok_or_else(|| malformed("the archive ends early"))?;
    Ok(field.iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte)))
}

impl Array {
    /// Reads a `.npy` file.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else than a row-major array.
    pub fn read(path: &Path) -> io::Result<Self> {
        Self::parse(&fs::read(path)?)
    }

    /// Reads all arrays of a `.npz` file, by name.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else than row-major arrays.
    ///
    /// # Source
    /// PKWARE, .ZIP File Format Specification 6.3, sections 4.3.7, 4.3.12 and 4.3.16.
    pub fn read_archive(path: &Path) -> io::Result<BTreeMap<String, Self>> {
        let archive = fs::read(path)?;
        let end = archive.len().checked_sub(22).ok_or_else(|| malformed("expected an archive"))?;
        if !archive[end..].starts_with(b"PK\x05\x06") {
            return Err(malformed("expected an archive without a comment"));
        }
        let mut entry = number(&archive, end + 16, 4)?;
        let mut arrays = BTreeMap::new();
        for _ in 0..number(&archive, end + 10, 2)? {
            let name_length = number(&archive, entry + 28, 2)?;
            let name = archive.get(entry + 46..entry + 46 + name_length);
            let name = String::from_utf8_lossy(name.ok_or_else(|| malformed("a name is cut off"))?);
            let name = name.trim_end_matches(".npy").to_owned();
            arrays.insert(name, Self::parse(&unpack(&archive, entry)?)?);
            entry += 46 + name_length + number(&archive, entry + 30, 2)? + number(&archive, entry + 32, 2)?;
        }
        Ok(arrays)
    }

    /// Reads the bytes of a `.npy` file.
    ///
    /// # Source
    /// NumPy Enhancement Proposal 1, "A simple file format for NumPy arrays".
    fn parse(file: &[u8]) -> io::Result<Self> {
        if !file.starts_with(b"\x93NUMPY") {
            return Err(malformed("expected a .npy file"));
        }
        let length_bytes = if file.get(6) == Some(&1) { 2 } else { 4 };
        let start = 8 + length_bytes;
        let data = start + number(file, 8, length_bytes)?;
        let header = file.get(start..data).ok_or_else(|| malformed("the header is cut off"))?;
        let header = String::from_utf8_lossy(header);
        if header.contains("'fortran_order': True") {
            return Err(malformed("expected a row-major array"));
        }
        let between = |before: &str, after: char| {
            let rest = header.split_once(before).map(|(_, rest)| rest);
            rest.and_then(|rest| rest.split_once(after)).map(|(found, _)| found)
        };
        let descr = between("'descr': '", '\'').ok_or_else(|| malformed("expected a simple type"))?;
        let shape = between("'shape': (", ')').ok_or_else(|| malformed("expected a shape"))?;
        let shape = shape.split(',').map(str::trim).filter(|extent| !extent.is_empty());
        let shape =
            shape.map(|extent| extent.parse().map_err(|_not_a_number| malformed("expected an extent")));
        Ok(Self {
            descr: descr.to_owned(),
            shape: shape.collect::<io::Result<_>>()?,
            bytes: file[data..].to_vec(),
        })
    }
}

/// The content of the file whose entry in the central directory begins at `entry`.
fn unpack(archive: &[u8], entry: usize) -> io::Result<Vec<u8>> {
    let packed_bytes = number(archive, entry + 20, 4)?;
    let header = number(archive, entry + 42, 4)?;
    let start = header + 30 + number(archive, header + 26, 2)? + number(archive, header + 28, 2)?;
    let packed = archive.get(start..start + packed_bytes).ok_or_else(|| malformed("a file is cut off"))?;
    match number(archive, entry + 10, 2)? {
        0 => Ok(packed.to_vec()),
        8 => miniz_oxide::inflate::decompress_to_vec(packed).map_err(|error| malformed(&error.to_string())),
        _ => Err(malformed("expected a file that is stored or deflated")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    #[test]
    fn an_array_equals_its_raw_bytes() {
        let Some(folder) = data("compression") else { return };
        let array = Array::read(&folder.join("i13_crop_37x41_u2.npy")).unwrap();
        assert_eq!((array.descr.as_str(), array.shape.as_slice()), ("<u2", &[37, 41][..]));
        assert_eq!(array.bytes, fs::read(folder.join("i13_crop_37x41_u2.raw")).unwrap());
    }

    #[test]
    fn archives_hold_arrays_by_name() {
        let Some(path) = data("stream_generated/v1/t_tomo_i13_rows60_93/oracle_frames.npz") else {
            return;
        };
        let arrays = Array::read_archive(&path).unwrap();
        let dark = &arrays["s100_00000"];
        assert_eq!(dark.shape, [33, 160]);
        let sum: u64 = dark.bytes.chunks_exact(2).map(|b| u64::from(u16::from_le_bytes([b[0], b[1]]))).sum();
        assert_eq!(sum, 510_896);
    }
}
