//! Frames that lie in a file as they are, each at an offset of its own.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use beamstream_core::{ElementType, Shape};

use super::pixels::{convert, element_type, is_native_but_for_order, swap_to_native};
use super::{Extent, MAX_FRAME_BYTES, ScanError, Stack};
use crate::hdf5::Number;

/// A stack of frames in one file, without compression.
pub(super) struct PlainStack {
    path: PathBuf,
    file: File,
    /// Where each frame begins.
    offsets: Vec<u64>,
    shape: Shape,
    number: Number,
    stored: Vec<u8>,
}

impl PlainStack {
    /// A stack of frames at `offsets` of a file, all of them within it.
    pub(super) fn new(
        path: &Path,
        file: File,
        offsets: Vec<u64>,
        shape: Shape,
        number: Number,
    ) -> Result<Self, ScanError> {
        let bytes = shape.checked_len().and_then(|len| len.checked_mul(number.size));
        let bytes = bytes.filter(|bytes| *bytes > 0 && *bytes <= MAX_FRAME_BYTES);
        let bytes =
            bytes.ok_or_else(|| ScanError::no_frames(path, format!("frames of {shape} cannot be read")))?;
        let len = file.metadata().map_err(ScanError::io(path))?.len();
        let end = |offset: u64| offset.checked_add(bytes as u64);
        if offsets.is_empty() {
            return Err(ScanError::no_frames(path, "expected frames, found none"));
        }
        if let Some(number) = offsets.iter().position(|&offset| end(offset).is_none_or(|end| end > len)) {
            return Err(ScanError::no_frames(
                path,
                format!("the file is cut off: frame {number} is not whole"),
            ));
        }
        Ok(Self { path: path.to_owned(), file, offsets, shape, number, stored: Vec::new() })
    }
}

impl Stack for PlainStack {
    fn extent(&self) -> Extent {
        Extent { frames: self.offsets.len(), shape: self.shape }
    }

    fn element(&self) -> ElementType {
        element_type(self.number)
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn read(
        &mut self,
        frame: usize,
        rows: Range<usize>,
        element: ElementType,
        out: &mut [u8],
    ) -> Result<(), ScanError> {
        let row_bytes = self.shape.columns * self.number.size;
        let at = self.offsets[frame] + (rows.start * row_bytes) as u64;
        if is_native_but_for_order(self.number, element) {
            self.file.read_exact_at(out, at).map_err(ScanError::io(&self.path))?;
            swap_to_native(self.number, out);
        } else {
            self.stored.resize(rows.len() * row_bytes, 0);
            self.file.read_exact_at(&mut self.stored, at).map_err(ScanError::io(&self.path))?;
            convert(self.number, &self.stored, element, out);
        }
        Ok(())
    }
}
