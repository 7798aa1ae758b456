//! TIFF files as stacks of frames, one page a frame.

use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ::tiff::decoder::{Decoder, DecodingResult, Limits};
use ::tiff::tags::{ByteOrder, Tag};
use beamstream_core::{ElementType, Shape};

use super::pixels::{convert, element_type, is_native_but_for_order, swap_to_native};
use super::{Extent, MAX_FRAME_BYTES, MAX_FRAMES, ScanError, Stack};
use crate::hdf5::{Number, NumberClass};

/// How TIFF and BigTIFF files begin, in both byte orders.
pub(super) const SIGNATURES: [[u8; 4]; 4] = [*b"II*\0", *b"MM\0*", *b"II+\0", *b"MM\0+"];

/// One page of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Page {
    shape: Shape,
    number: Number,
    /// Where its pixels are if they are there as they are and without gaps; else it must be decoded.
    plain_at: Option<u64>,
    /// Whether two pixels of 12 bits share three bytes.
    is_packed: bool,
}

impl Page {
    /// Bytes of a row as it is stored.
    const fn row_bytes(&self) -> usize {
        if self.is_packed {
            (12 * self.shape.columns).div_ceil(8)
        } else {
            self.shape.columns * self.number.size
        }
    }
}

/// The pages of one file.
pub(super) struct TiffFile {
    path: PathBuf,
    pages: Vec<Page>,
    file: File,
    decoder: Decoder<BufReader<File>>,
    /// The last page that was decoded, as elements in the machine's byte order.
    decoded: Option<(usize, Vec<u8>)>,
}

impl TiffFile {
    pub(super) fn open(path: &Path) -> Result<Self, ScanError> {
        let file = File::open(path).map_err(ScanError::io(path))?;
        let buffered = BufReader::new(file.try_clone().map_err(ScanError::io(path))?);
        let mut limits = Limits::default();
        limits.decoding_buffer_size = MAX_FRAME_BYTES;
        limits.intermediate_buffer_size = MAX_FRAME_BYTES;
        let mut decoder = Decoder::new(buffered).map_err(ScanError::tiff(path))?.with_limits(limits);
        let mut pages = Vec::new();
        loop {
            let page = read_page(&mut decoder, path)?;
            pages.push(page);
            if !decoder.more_images() {
                break;
            }
            if pages.len() >= MAX_FRAMES {
                return Err(ScanError::no_frames(
                    path,
                    format!("expected at most {MAX_FRAMES} pages, found more"),
                ));
            }
            decoder.next_image().map_err(ScanError::tiff(path))?;
        }
        if let [only] = pages[..] {
            let len = file.metadata().map_err(ScanError::io(path))?.len();
            pages = imagej_pages(&mut decoder, only, len).unwrap_or(pages);
        }
        let first = pages[0];
        let other = pages
            .iter()
            .enumerate()
            .find(|(_, page)| (page.shape, page.number) != (first.shape, first.number));
        if let Some((at, page)) = other {
            let what =
                format!("page {at} as {} of {}, unlike the first page", page.number.name(), page.shape);
            return Err(ScanError::Shape {
                path: path.to_owned(),
                what,
                expected: first.shape,
                found: page.shape,
            });
        }
        Ok(Self { path: path.to_owned(), pages, file, decoder, decoded: None })
    }

    fn decode(&mut self, page: usize) -> Result<&[u8], ScanError> {
        if self.decoded.as_ref().is_none_or(|(known, _)| *known != page) {
            self.decoder.seek_to_image(page).map_err(ScanError::tiff(&self.path))?;
            let pixels = self.decoder.read_image().map_err(ScanError::tiff(&self.path))?;
            self.decoded = Some((page, native_bytes(pixels)));
        }
        Ok(self.decoded.as_ref().map_or(&[], |(_, bytes)| bytes))
    }
}

impl Stack for TiffFile {
    fn extent(&self) -> Extent {
        Extent { frames: self.pages.len(), shape: self.pages[0].shape }
    }

    fn element(&self) -> ElementType {
        element_type(self.pages[0].number)
    }

    fn memory_bytes(&self) -> usize {
        let is_plain = self.pages.iter().all(|page| page.plain_at.is_some());
        if is_plain { 0 } else { 2 * self.pages[0].shape.len() * self.pages[0].number.size }
    }

    fn read(
        &mut self,
        frame: usize,
        rows: Range<usize>,
        element: ElementType,
        out: &mut [u8],
    ) -> Result<(), ScanError> {
        let page = self.pages[frame];
        let Page { shape, mut number, plain_at, is_packed } = page;
        let row_bytes = page.row_bytes();
        let first = rows.start * row_bytes;
        match plain_at {
            Some(at) if is_packed => {
                let mut stored = vec![0; rows.len() * row_bytes];
                self.file.read_exact_at(&mut stored, at + first as u64).map_err(ScanError::io(&self.path))?;
                let pixels: Vec<u16> =
                    stored.chunks_exact(row_bytes).flat_map(|row| unpacked(row, shape.columns)).collect();
                convert(number, bytemuck::cast_slice(&pixels), element, out);
            }
            Some(at) if is_native_but_for_order(number, element) => {
                self.file.read_exact_at(out, at + first as u64).map_err(ScanError::io(&self.path))?;
                swap_to_native(number, out);
            }
            Some(at) => {
                let mut stored = vec![0; rows.len() * row_bytes];
                self.file.read_exact_at(&mut stored, at + first as u64).map_err(ScanError::io(&self.path))?;
                convert(number, &stored, element, out);
            }
            None => {
                let path = self.path.clone();
                let decoded = self.decode(frame)?;
                let stored = decoded.get(first..first + rows.len() * row_bytes);
                let stored = stored
                    .ok_or_else(|| ScanError::no_frames(&path, format!("page {frame} is too short")))?;
                number.big_endian = cfg!(target_endian = "big");
                convert(number, stored, element, out);
            }
        }
        Ok(())
    }
}

/// Describes the page at which the decoder stands.
fn read_page(decoder: &mut Decoder<BufReader<File>>, path: &Path) -> Result<Page, ScanError> {
    let (columns, rows) = decoder.dimensions().map_err(ScanError::tiff(path))?;
    let shape = Shape::new(rows as usize, columns as usize);
    let mut tag = |tag| decoder.find_tag_unsigned_vec::<u64>(tag).map_err(ScanError::tiff(path));
    let bits = tag(Tag::BitsPerSample)?.unwrap_or_else(|| vec![1]);
    let format = tag(Tag::SampleFormat)?.and_then(|f| f.first().copied()).unwrap_or(1);
    let compression = tag(Tag::Compression)?.and_then(|c| c.first().copied()).unwrap_or(1);
    let offsets = tag(Tag::StripOffsets)?.unwrap_or_default();
    let counts = tag(Tag::StripByteCounts)?.unwrap_or_default();
    let class = match format {
        1 => NumberClass::Unsigned,
        2 => NumberClass::Signed,
        3 => NumberClass::Float,
        _ => {
            return Err(ScanError::no_frames(
                path,
                format!("expected integers or floats, found TIFF sample format {format}"),
            ));
        }
    };
    let &[bits] = bits.as_slice() else {
        return Err(ScanError::no_frames(path, format!("expected one value a pixel, found {}", bits.len())));
    };
    let is_packed = (class, bits, compression) == (NumberClass::Unsigned, 12, 1);
    if !is_packed
        && !matches!(
            (class, bits),
            (NumberClass::Float, 16 | 32 | 64)
                | (NumberClass::Unsigned | NumberClass::Signed, 8 | 16 | 32 | 64)
        )
    {
        return Err(ScanError::no_frames(
            path,
            format!("expected pixels of 8, 16, 32 or 64 bits, or of 12 without compression, found {bits}"),
        ));
    }
    // Packed bits come in one order, and are native numbers once they are unpacked.
    let big_endian =
        if is_packed { cfg!(target_endian = "big") } else { decoder.byte_order() == ByteOrder::BigEndian };
    let number = Number { size: bits.div_ceil(8) as usize, class, big_endian };
    let bytes = shape.checked_len().and_then(|len| len.checked_mul(number.size));
    let bytes = bytes.filter(|bytes| *bytes > 0 && *bytes <= MAX_FRAME_BYTES);
    let bytes =
        bytes.ok_or_else(|| ScanError::no_frames(path, format!("pages of {shape} pixels cannot be read")))?;
    let page = Page { shape, number, plain_at: None, is_packed };
    let stored_bytes = if is_packed { shape.rows * page.row_bytes() } else { bytes };

    let without_gaps = offsets
        .iter()
        .zip(&counts)
        .zip(offsets.iter().skip(1))
        .all(|((at, len), next)| at.checked_add(*len) == Some(*next));
    let is_whole = counts
        .iter()
        .try_fold(0_u64, |sum, count| sum.checked_add(*count))
        .is_some_and(|sum| sum >= stored_bytes as u64);
    let is_plain =
        compression == 1 && !offsets.is_empty() && offsets.len() == counts.len() && without_gaps && is_whole;
    if is_packed && !is_plain {
        return Err(ScanError::no_frames(
            path,
            "expected pixels of 12 bits in strips without gaps, found others",
        ));
    }
    Ok(Page { plain_at: is_plain.then(|| offsets[0]), ..page })
}

/// The pixels of a packed row: 12 bits each, the highest first.
fn unpacked(row: &[u8], columns: usize) -> impl Iterator<Item = u16> {
    (0..columns).map(move |column| {
        let at = column / 2 * 3;
        let byte = |offset: usize| u16::from(row[at + offset]);
        if column % 2 == 0 { byte(0) << 4 | byte(1) >> 4 } else { (byte(1) & 0xf) << 8 | byte(2) }
    })
}

/// ImageJ writes stacks of more than 4 GiB as one page: the others follow it, counted in the description only.
fn imagej_pages(decoder: &mut Decoder<BufReader<File>>, only: Page, file_len: u64) -> Option<Vec<Page>> {
    let at = only.plain_at.filter(|_| !only.is_packed)?;
    let description = decoder.get_tag_ascii_string(Tag::ImageDescription).ok()?;
    let images =
        description.strip_prefix("ImageJ=")?.lines().find_map(|line| line.strip_prefix("images="))?;
    let images: usize = images.trim().parse().ok()?;
    let bytes = (only.shape.len() * only.number.size) as u64;
    let end = (images as u64).checked_mul(bytes)?.checked_add(at)?;
    let pages = (0..images as u64).map(|n| Page { plain_at: Some(at + n * bytes), ..only });
    (images > 1 && images <= MAX_FRAMES && end <= file_len).then(|| pages.collect())
}

/// The decoded pixels as bytes in the machine's order.
fn native_bytes(pixels: DecodingResult) -> Vec<u8> {
    match pixels {
        DecodingResult::U8(v) => v,
        DecodingResult::I8(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::U16(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::I16(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::F16(v) => v.into_iter().flat_map(half::f16::to_ne_bytes).collect(),
        DecodingResult::U32(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::I32(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::F32(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::U64(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::I64(v) => bytemuck::cast_slice(&v).to_vec(),
        DecodingResult::F64(v) => bytemuck::cast_slice(&v).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Scan, ScanOptions};

    /// A little-endian file of one page with one strip behind its tags.
    fn write(path: &Path, tags: &[(u16, u32)], strip: &[u8]) {
        let tags = [tags, &[(273, 0), (279, strip.len() as u32)]].concat();
        let mut tags = tags;
        tags.sort_unstable();
        let data_at = 8 + 2 + 12 * tags.len() as u32 + 4;
        let mut bytes = b"II*\0\x08\0\0\0".to_vec();
        bytes.extend((tags.len() as u16).to_le_bytes());
        for (tag, value) in tags {
            let value = if tag == 273 { data_at } else { value };
            bytes.extend(tag.to_le_bytes());
            // One value of four bytes.
            bytes.extend([4, 0, 1, 0, 0, 0]);
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend([0; 4]);
        bytes.extend(strip);
        std::fs::write(path, bytes).unwrap();
    }

    /// Width 3, height 2, 12 bits, one strip.
    const PACKED: [(u16, u32); 6] = [(256, 3), (257, 2), (258, 12), (262, 1), (277, 1), (278, 2)];

    #[test]
    fn packed_pixels_are_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packed.tif");
        let rows = [0x12, 0x3a, 0xbc, 0xff, 0xf0, 0x00, 0x10, 0x02, 0x80, 0x00];
        write(&path, &[&PACKED[..], &[(259, 1)]].concat(), &rows);
        let mut scan = Scan::open(&path, &ScanOptions::default()).unwrap();
        let mut out = [0; 12];
        scan.read(0, 0..2, &mut out).unwrap();
        let pixels: Vec<u16> = bytemuck::pod_collect_to_vec(&out);
        assert_eq!(pixels, [0x123, 0xabc, 0xfff, 0x001, 0x002, 0x800]);

        write(&path, &[&PACKED[..], &[(259, 1)]].concat(), &rows[..9]);
        let text = Scan::open(&path, &ScanOptions::default()).unwrap_err().to_string();
        assert!(text.contains("12 bits") && text.contains("packed.tif"), "{text}");
    }
}
