//! EDF, the data format of the ESRF: a text in front of every frame.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use beamstream_core::Shape;

use super::plain::PlainStack;
use super::{MAX_FRAMES, ScanError};
use crate::hdf5::{Number, NumberClass};

/// Longest header.
const MAX_HEADER_BYTES: usize = 256 << 10;
/// Headers are padded to a multiple of this.
const HEADER_BLOCK: usize = 512;

/// Whether a file begins like an EDF header.
pub(super) fn is_edf(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    start.starts_with(b"{") && start.windows(5).any(|word| word == b"Dim_1")
}

/// The frames of a file; all must be of one shape and type.
pub(super) fn open(path: &Path) -> Result<PlainStack, ScanError> {
    let file = File::open(path).map_err(ScanError::io(path))?;
    let len = file.metadata().map_err(ScanError::io(path))?.len();
    let mut offsets = Vec::new();
    let mut first: Option<Header> = None;
    let mut at = 0;
    while at < len && offsets.len() < MAX_FRAMES {
        let Some(header) = Header::read(path, &file, at, len)? else {
            break;
        };
        let (expected, found) = (first.as_ref().unwrap_or(&header), &header);
        if (expected.shape, expected.number) != (found.shape, found.number) {
            let what = format!("frame {} as {}", offsets.len(), found.number.name());
            return Err(ScanError::Shape {
                path: path.to_owned(),
                what,
                expected: expected.shape,
                found: found.shape,
            });
        }
        offsets.push(at + header.length);
        at = at.saturating_add(header.length).saturating_add(header.data_bytes);
        first.get_or_insert(header);
    }
    let first = first.ok_or_else(|| ScanError::no_frames(path, "expected an EDF header, found none"))?;
    PlainStack::new(path, file, offsets, first.shape, first.number)
}

/// What a header says.
struct Header {
    length: u64,
    data_bytes: u64,
    shape: Shape,
    number: Number,
}

impl Header {
    /// The header at an offset; `None` if what is there is none, as the padding behind the last frame.
    fn read(path: &Path, file: &File, at: u64, len: u64) -> Result<Option<Self>, ScanError> {
        let mut text = Vec::new();
        // Most headers are one or two blocks; the longer ones are read again.
        let mut size = 4 * HEADER_BLOCK;
        let end = loop {
            text.resize(size.min(usize::try_from(len - at).unwrap_or(usize::MAX)), 0);
            file.read_exact_at(&mut text, at).map_err(ScanError::io(path))?;
            if !text.trim_ascii_start().starts_with(b"{") {
                return Ok(None);
            }
            if let Some(end) = text.windows(2).position(|pair| pair == b"}\n" || pair == b"}\r") {
                break end + if text[end + 1] == b'\n' { 2 } else { 3 };
            }
            if text.len() < size || size >= MAX_HEADER_BYTES {
                return Err(ScanError::no_frames(path, "the EDF header has no end"));
            }
            size *= 4;
        };
        let text = String::from_utf8_lossy(&text[..end.min(text.len())]).into_owned();
        Self::parse(path, &text, end as u64).map(Some)
    }

    fn parse(path: &Path, text: &str, length: u64) -> Result<Self, ScanError> {
        let keys: HashMap<String, &str> = text
            .trim_start_matches(['{', '\r', '\n', ' '])
            .split(';')
            .filter_map(|entry| entry.split_once('='))
            .map(|(key, value)| (key.trim().to_lowercase(), value.trim()))
            .collect();
        let wrong = |key: &str| {
            let found = keys.get(key).map_or("nothing".to_owned(), |value| format!("{value:?}"));
            ScanError::no_frames(path, format!("unusable {key} in the EDF header: {found}"))
        };
        let extent =
            |key: &str| keys.get(key).and_then(|value| value.parse::<usize>().ok()).ok_or_else(|| wrong(key));
        let shape = Shape::new(extent("dim_2")?, extent("dim_1")?);
        let (class, size) = match keys.get("datatype").map(|kind| kind.to_lowercase()).as_deref() {
            Some("unsignedbyte") => (NumberClass::Unsigned, 1),
            Some("signedbyte") => (NumberClass::Signed, 1),
            Some("unsignedshort") => (NumberClass::Unsigned, 2),
            Some("signedshort") => (NumberClass::Signed, 2),
            // A long had 32 bits when the format was made.
            Some("unsignedinteger" | "unsignedlong") => (NumberClass::Unsigned, 4),
            Some("signedinteger" | "signedlong") => (NumberClass::Signed, 4),
            Some("floatvalue" | "float" | "real") => (NumberClass::Float, 4),
            Some("doublevalue" | "double") => (NumberClass::Float, 8),
            _ => return Err(wrong("datatype")),
        };
        let big_endian = match keys.get("byteorder") {
            Some(&"HighByteFirst") => true,
            Some(&"LowByteFirst") | None => false,
            Some(_) => return Err(wrong("byteorder")),
        };
        let pixels =
            shape.checked_len().and_then(|len| len.checked_mul(size)).ok_or_else(|| wrong("dim_1"))?;
        let stated = keys.get("size").and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let number = Number { size, class, big_endian };
        Ok(Self { length, data_bytes: stated.max(pixels as u64), shape, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Scan, ScanOptions};

    fn frame(header: &str, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = format!("{{\n{header}").into_bytes();
        bytes.resize(HEADER_BLOCK - 2, b' ');
        bytes.extend(b"}\n");
        bytes.extend(pixels);
        bytes
    }

    #[test]
    fn frames_follow_each_other_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.edf");
        let header = "ByteOrder = HighByteFirst ;\nDataType = UnsignedShort ;\nDim_1 = 3 ;\nDim_2 = 1 ;\n";
        std::fs::write(
            &path,
            [frame(header, &[0, 1, 0, 2, 0, 3]), frame(header, &[1, 0, 0, 5, 0, 6])].concat(),
        )
        .unwrap();
        let mut scan = Scan::open(&path, &ScanOptions::default()).unwrap();
        assert_eq!(scan.info().frames.len(), 2);
        let mut out = [0; 6];
        scan.read(1, 0..1, &mut out).unwrap();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, u16>(&out), [256, 5, 6]);

        std::fs::write(&path, frame(header, &[0, 1, 0, 2])).unwrap();
        let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
        assert!(text.contains("cut off") && text.contains("scan.edf"), "{text}");
    }

    #[test]
    fn unusable_headers_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.edf");
        for (header, word) in [
            ("Dim_1 = 3 ;\nDim_2 = x ;", "dim_2"),
            ("Dim_1 = 3 ;\nDim_2 = 1 ;\nDataType = Packed ;", "Packed"),
        ] {
            std::fs::write(&path, frame(header, &[])).unwrap();
            let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
            assert!(text.contains(word), "{text}");
        }
        std::fs::write(&path, b"{\nDim_1 = 3 ;").unwrap();
        assert!(Scan::open(&path, &ScanOptions::default()).is_err());
    }
}
