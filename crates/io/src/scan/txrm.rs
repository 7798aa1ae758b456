//! TXRM and XRM, the files of Zeiss/Xradia microscopes: OLE2 compound files, a stream for each frame.
//!
//! # Source
//! Streams as found in files of these microscopes; there is no public description by the maker.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use beamstream_core::{ElementType, Role, Shape};
use cfb::CompoundFile;

use super::angles::AngleTable;
use super::pixels::{convert, element_type};
use super::{Extent, MAX_FRAME_BYTES, MAX_FRAMES, Parts, ScanError, ScanKind, Stack};
use crate::hdf5::{Number, NumberClass};

/// How a compound file begins.
pub(super) const SIGNATURE: [u8; 8] = [0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1];
/// Frames are kept in storages of this many.
const FRAMES_A_STORAGE: usize = 100;
/// Longest stream of values: one for each frame.
const MAX_VALUES_BYTES: u64 = 4 * MAX_FRAMES as u64;

/// The scan of a file: its frames, its angles, and as a flat the reference image if there is one.
pub(super) fn open(path: &Path) -> Result<Parts, ScanError> {
    let mut file = Compound::open(path)?;
    let extent = |found: Option<u32>| found.map_or(0, |value| value as usize);
    let rows = extent(file.number("ImageInfo/ImageHeight")?);
    let columns = extent(file.number("ImageInfo/ImageWidth")?);
    let announced = extent(file.number("ImageInfo/NoOfImages")?);
    let shape = Shape::new(rows, columns);
    let number = file.pixel_type("ImageInfo/DataType")?;
    let found =
        (0..announced.min(MAX_FRAMES)).take_while(|&frame| file.inner.is_stream(stream_of(frame))).count();
    if found == 0 {
        return Err(ScanError::no_frames(path, format!("expected {announced} images, found none")));
    }

    let mut parts = Parts::new(ScanKind::Txrm);
    if found < announced {
        parts.warnings.push(format!("{announced} images were planned, {found} were taken"));
    }
    let mut angles = file.floats("ImageInfo/Angles")?;
    // A scan that was stopped has angles for all that was planned.
    if angles.len() == announced {
        angles.truncate(found);
    }
    if !angles.is_empty() {
        let place = "ImageInfo/Angles".to_owned();
        let values = angles.into_iter().map(f64::from).collect();
        parts.angles = Some(AngleTable::new(path, place, values, Some("deg".to_owned())));
    }
    let pixel_um = file.floats("ImageInfo/PixelSize")?.first().copied();
    parts.pixel_size_m = pixel_um.filter(|um| um.is_finite() && *um > 0.0).map(|um| f64::from(um) * 1e-6);
    let reference = "ReferenceData/Image";
    if file.inner.is_stream(reference) {
        let number = file.pixel_type("ReferenceData/DataType")?;
        let stack = TxrmStack::new(Compound::open(path)?, vec![reference.to_owned()], shape, number)?;
        parts.add(Box::new(stack), Role::Flat);
    }
    let streams = (0..found).map(stream_of).collect();
    parts.add_listed("ImageData", Box::new(TxrmStack::new(file, streams, shape, number)?), Role::Projection);
    Ok(parts)
}

/// The path of a frame's stream; they are counted from 1.
fn stream_of(frame: usize) -> String {
    format!("ImageData{}/Image{}", 1 + frame / FRAMES_A_STORAGE, 1 + frame)
}

/// An open compound file.
struct Compound {
    path: PathBuf,
    inner: CompoundFile<File>,
}

impl Compound {
    fn open(path: &Path) -> Result<Self, ScanError> {
        let file = File::open(path).map_err(ScanError::io(path))?;
        let inner = CompoundFile::open(file).map_err(ScanError::io(path))?;
        Ok(Self { path: path.to_owned(), inner })
    }

    /// The bytes of a short stream; none if it is missing.
    fn bytes(&mut self, stream: &str) -> Result<Vec<u8>, ScanError> {
        if !self.inner.is_stream(stream) {
            return Ok(Vec::new());
        }
        let read = |inner: &mut CompoundFile<File>| {
            let mut bytes = Vec::new();
            inner.open_stream(stream)?.take(MAX_VALUES_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read(&mut self.inner).map_err(ScanError::io(&self.path))
    }

    fn floats(&mut self, stream: &str) -> Result<Vec<f32>, ScanError> {
        let bytes = self.bytes(stream)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }

    fn number(&mut self, stream: &str) -> Result<Option<u32>, ScanError> {
        Ok(self.bytes(stream)?.first_chunk().map(|value| u32::from_le_bytes(*value)))
    }

    fn pixel_type(&mut self, stream: &str) -> Result<Number, ScanError> {
        let (class, size) = match self.number(stream)? {
            Some(3) => (NumberClass::Unsigned, 1),
            Some(5) => (NumberClass::Unsigned, 2),
            Some(10) => (NumberClass::Float, 4),
            found => {
                let found = found.map_or("nothing".to_owned(), |code| code.to_string());
                let what = format!("expected {stream} to be 3 (u8), 5 (u16) or 10 (f32), found {found}");
                return Err(ScanError::no_frames(&self.path, what));
            }
        };
        Ok(Number { size, class, big_endian: false })
    }
}

/// Frames that are streams of a compound file.
struct TxrmStack {
    file: Compound,
    streams: Vec<String>,
    shape: Shape,
    number: Number,
    stored: Vec<u8>,
}

impl TxrmStack {
    /// A stack of streams, each long enough for a frame.
    fn new(file: Compound, streams: Vec<String>, shape: Shape, number: Number) -> Result<Self, ScanError> {
        let bytes = shape.checked_len().and_then(|len| len.checked_mul(number.size));
        let bytes = bytes.filter(|bytes| *bytes > 0 && *bytes <= MAX_FRAME_BYTES);
        let bytes = bytes
            .ok_or_else(|| ScanError::no_frames(&file.path, format!("frames of {shape} cannot be read")))?;
        for stream in &streams {
            let len = file.inner.entry(stream).map_err(ScanError::io(&file.path))?.len();
            if len < bytes as u64 {
                let what = format!("expected {bytes} bytes in {stream} for {shape}, found {len}");
                return Err(ScanError::no_frames(&file.path, what));
            }
        }
        Ok(Self { file, streams, shape, number, stored: Vec::new() })
    }
}

impl Stack for TxrmStack {
    fn extent(&self) -> Extent {
        Extent { frames: self.streams.len(), shape: self.shape }
    }

    fn element(&self) -> ElementType {
        element_type(self.number)
    }

    fn memory_bytes(&self) -> usize {
        self.shape.len() * self.number.size
    }

    fn read(
        &mut self,
        frame: usize,
        rows: Range<usize>,
        element: ElementType,
        out: &mut [u8],
    ) -> Result<(), ScanError> {
        let row_bytes = self.shape.columns * self.number.size;
        self.stored.resize(rows.len() * row_bytes, 0);
        let (stored, stream) = (&mut self.stored, &self.streams[frame]);
        let mut read = |inner: &mut CompoundFile<File>| {
            let mut stream = inner.open_stream(stream)?;
            stream.seek(SeekFrom::Start((rows.start * row_bytes) as u64))?;
            stream.read_exact(stored)
        };
        read(&mut self.file.inner).map_err(ScanError::io(&self.file.path))?;
        convert(self.number, &self.stored, element, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::scan::{Scan, ScanOptions};

    fn write(path: &Path, streams: &[(&str, &[u8])]) {
        let mut file = cfb::create(path).unwrap();
        for storage in ["ImageInfo", "ImageData1", "ReferenceData"] {
            file.create_storage(storage).unwrap();
        }
        for (name, bytes) in streams {
            file.create_stream(name).unwrap().write_all(bytes).unwrap();
        }
        file.flush().unwrap();
    }

    fn le(value: u32) -> [u8; 4] {
        value.to_le_bytes()
    }

    #[test]
    fn a_scan_that_was_stopped_has_what_was_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.txrm");
        let angles: Vec<u8> = [0.0_f32, 10.0, 20.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let streams: [(&str, &[u8]); 10] = [
            ("ImageInfo/ImageWidth", &le(2)),
            ("ImageInfo/ImageHeight", &le(1)),
            ("ImageInfo/NoOfImages", &le(3)),
            ("ImageInfo/DataType", &le(5)),
            ("ImageInfo/Angles", &angles),
            ("ImageInfo/PixelSize", &1.5_f32.to_le_bytes()),
            ("ImageData1/Image1", &[1, 0, 2, 0]),
            ("ImageData1/Image2", &[3, 0, 4, 1]),
            ("ReferenceData/DataType", &le(10)),
            ("ReferenceData/Image", &[0; 8]),
        ];
        write(&path, &streams);
        let mut scan = Scan::open(&path, &ScanOptions::default()).unwrap();
        let info = scan.info().clone();
        assert_eq!((info.count(Role::Flat), info.projection_angles_deg()), (1, vec![0.0, 10.0]));
        assert!(info.warnings[0].contains("2 were taken"), "{:?}", info.warnings);
        assert!((info.pixel_size_m.unwrap() - 1.5e-6).abs() < 1e-12);
        let mut out = [0; 8];
        scan.read(2, 0..1, &mut out).unwrap();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&out), [3.0, 260.0]);
    }

    #[test]
    fn absurd_extents_and_short_frames_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scan.txrm");
        for (width, word) in [(u32::MAX, "cannot be read"), (3, "expected 6 bytes")] {
            let streams: [(&str, &[u8]); 5] = [
                ("ImageInfo/ImageWidth", &le(width)),
                ("ImageInfo/ImageHeight", &le(if width == 3 { 1 } else { width })),
                ("ImageInfo/NoOfImages", &le(u32::MAX)),
                ("ImageInfo/DataType", &le(5)),
                ("ImageData1/Image1", &[1, 0, 2, 0]),
            ];
            write(&path, &streams);
            let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
            assert!(text.contains(word) && text.contains("scan.txrm"), "{text}");
        }
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
        assert!(text.contains("scan.txrm"), "{text}");
    }
}
