//! NumPy's array file.
//!
//! # Source
//! NumPy enhancement proposal 1, "A simple file format for NumPy arrays", version 1.0.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use beamstream_core::Format;
use serde_json::Value;

use super::stacked::Container;

/// Room for the header whatever the number of blocks: two extents of an array in memory and a third.
const HEADER_BYTES: usize = 192;

/// An array `(block, row, column)`.
pub(super) struct Npy {
    pub(super) format: Format,
}

impl Container for Npy {
    fn data_offset(&self) -> u64 {
        HEADER_BYTES as u64
    }

    fn seal(&self, file: &File, count: u64, _provenance: &Value) -> io::Result<()> {
        let Format { element, shape, .. } = self.format;
        let extents = format!("({count}, {}, {})", shape.rows, shape.columns);
        let mut header = b"\x93NUMPY\x01\x00".to_vec();
        header.extend(((HEADER_BYTES - 10) as u16).to_le_bytes());
        let descr = element.numpy_descr();
        header
            .extend(format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {extents}, }}").bytes());
        header.resize(HEADER_BYTES - 1, b' ');
        header.push(b'\n');
        file.write_all_at(&header, 0)
    }
}
