//! HIS, the files of Hamamatsu cameras: a header and a text in front of every frame.
//!
//! # Source
//! The layout as read by Bio-Formats (`HISReader`); Hamamatsu, the manual of `HiPic`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use beamstream_core::Shape;

use super::plain::PlainStack;
use super::{MAX_FRAMES, ScanError};
use crate::hdf5::{Number, NumberClass};

const HEADER_BYTES: u64 = 64;

/// Whether a file begins like the header of a frame.
pub(super) fn is_his(start: &[u8]) -> bool {
    let header = start.first_chunk::<{ HEADER_BYTES as usize }>();
    header.and_then(Header::parse).is_some_and(|header| header.bits_and_channels().is_some())
}

/// What is in front of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    text_bytes: u64,
    shape: Shape,
    kind: u16,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES as usize]) -> Option<Self> {
        let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let shape = Shape::new(usize::from(field(6)), usize::from(field(4)));
        let header = Self { text_bytes: u64::from(field(2)), shape, kind: field(12) };
        (bytes.starts_with(b"IM") && !shape.is_empty()).then_some(header)
    }

    /// Bits of a value and values of a pixel, for the types that there are.
    fn bits_and_channels(self) -> Option<(u16, u16)> {
        match self.kind {
            1 => Some((8, 1)),
            2 => Some((16, 1)),
            6 => Some((12, 1)),
            11 => Some((8, 3)),
            12 => Some((16, 3)),
            14 => Some((12, 3)),
            _ => None,
        }
    }
}

/// The frames of a file; all must be of one shape and type.
///
/// The texts may differ in length, so that the headers are walked.
pub(super) fn open(path: &Path) -> Result<PlainStack, ScanError> {
    let file = File::open(path).map_err(ScanError::io(path))?;
    let len = file.metadata().map_err(ScanError::io(path))?.len();
    let mut offsets = Vec::new();
    let mut first: Option<(Header, usize)> = None;
    let mut at = 0_u64;
    while at.saturating_add(HEADER_BYTES) <= len && offsets.len() < MAX_FRAMES {
        let mut bytes = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut bytes, at).map_err(ScanError::io(path))?;
        let Some(header) = Header::parse(&bytes) else {
            break;
        };
        let (known, size) = match first {
            Some(first) => first,
            None => *first.insert((header, element_size(path, header)?)),
        };
        if (known.shape, known.kind) != (header.shape, header.kind) {
            let what = format!("frame {} of type {}, after type {},", offsets.len(), header.kind, known.kind);
            let (expected, found) = (known.shape, header.shape);
            return Err(ScanError::Shape { path: path.to_owned(), what, expected, found });
        }
        offsets.push(at + HEADER_BYTES + header.text_bytes);
        // Extents have 16 bits each, so that this fits.
        at += HEADER_BYTES + header.text_bytes + (header.shape.len() * size) as u64;
    }
    let (header, size) =
        first.ok_or_else(|| ScanError::no_frames(path, "expected the header of a HIS frame, found none"))?;
    let number = Number { size, class: NumberClass::Unsigned, big_endian: false };
    PlainStack::new(path, file, offsets, header.shape, number)
}

/// Bytes of a pixel, refused for colours and packed pixels.
fn element_size(path: &Path, header: Header) -> Result<usize, ScanError> {
    match header.bits_and_channels() {
        Some((bits @ (8 | 16), 1)) => Ok(usize::from(bits / 8)),
        Some((bits, channels)) => Err(ScanError::no_frames(
            path,
            format!("expected HIS pixels of 8 or 16 bits, found {channels} values of {bits} bits a pixel"),
        )),
        None => Err(ScanError::no_frames(path, format!("HIS pixels of type {} are unknown", header.kind))),
    }
}

#[cfg(test)]
mod tests {
    use crate::scan::{Scan, ScanKind, ScanOptions};

    fn frame(text: &str, extents: [u16; 2], kind: u16, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = b"IM".to_vec();
        for field in [text.len() as u16, extents[0], extents[1], 0, 0, kind] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(64, 0);
        bytes.extend(text.as_bytes());
        bytes.extend(pixels);
        bytes
    }

    #[test]
    fn texts_of_different_length_are_walked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.his");
        let frames =
            [frame("vDate=1;", [3, 1], 2, &[1, 0, 2, 0, 3, 0]), frame("", [3, 1], 2, &[4, 1, 5, 0, 6, 0])];
        std::fs::write(&path, frames.concat()).unwrap();
        let mut scan = Scan::open(&path, &ScanOptions::default()).unwrap();
        assert_eq!((scan.info().kind, scan.info().frames.len()), (ScanKind::His, 2));
        let mut out = [0; 6];
        scan.read(1, 0..1, &mut out).unwrap();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, u16>(&out), [260, 5, 6]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.his");
        let good = frame("", [3, 1], 2, &[0; 6]);
        for (bytes, word) in [
            (frame("", [u16::MAX, u16::MAX], 2, &[0; 6]), "cannot be read"),
            (frame("", [2, 1], 14, &[0; 9]), "3 values of 12 bits"),
            ([good.clone(), frame("", [2, 1], 2, &[0; 4])].concat(), "frame 1"),
            (good[..66].to_vec(), "cut off"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
            assert!(text.contains(word) && text.contains("scan.his"), "{word}: {text}");
        }
    }
}
