//! A recorded scan as the source of frames.

use std::path::Path;

use beamstream_core::{Format, Role};
use beamstream_io::{Scan, ScanError, ScanOptions};

use crate::source::{FrameSource, ReadError, SourceFrame};

/// The frames of a scan file, of all its rows or some.
#[derive(Debug)]
pub struct ScanSource {
    scan: Scan,
    frames: Vec<SourceFrame>,
    format: Format,
    first_row: usize,
}

/// Rows were asked for that a scan does not have.
#[derive(Debug, thiserror::Error)]
#[error("rows {first}:{end} are not among the {rows} rows of the scan")]
pub struct RowsError {
    first: usize,
    end: usize,
    rows: usize,
}

impl ScanSource {
    /// Opens a scan file.
    ///
    /// # Errors
    /// If the file is no scan.
    pub fn open(path: &Path) -> Result<Self, ScanError> {
        let scan = Scan::open(path, &ScanOptions::default())?;
        let entries = scan.info().frames.iter();
        // The angles of darks and flats are where the stage was parked: of no use to anybody.
        let angle = |role, angle_deg: Option<f64>| angle_deg.filter(|_| role == Role::Projection);
        Ok(Self {
            frames: entries
                .map(|entry| SourceFrame { role: entry.role, angle_deg: angle(entry.role, entry.angle_deg) })
                .collect(),
            format: scan.info().format,
            first_row: 0,
            scan,
        })
    }

    /// Keeps the rows `first..end` of the detector only.
    ///
    /// # Errors
    /// If the scan does not have them.
    pub fn with_rows(mut self, first: usize, end: usize) -> Result<Self, RowsError> {
        let shape = self.scan.info().format.shape;
        if first >= end || end > shape.rows {
            return Err(RowsError { first, end, rows: shape.rows });
        }
        self.first_row = first;
        self.format = Format::frame(self.format.element, end - first, shape.columns);
        Ok(self)
    }

    /// What had to be assumed of the scan.
    pub fn warnings(&self) -> &[String] {
        &self.scan.info().warnings
    }
}

impl FrameSource for ScanSource {
    fn format(&self) -> Format {
        self.format
    }

    fn frames(&self) -> &[SourceFrame] {
        &self.frames
    }

    /// The scan gives pixels in the machine's byte order, and detectors send little-endian: the two are the same on
    /// every machine that this runs on.
    fn read(&mut self, index: usize, pixels: &mut Vec<u8>) -> Result<(), ReadError> {
        pixels.resize(self.format.bytes(), 0);
        let rows = self.first_row..self.first_row + self.format.shape.rows;
        Ok(self.scan.read(index, rows, pixels)?)
    }
}

#[cfg(target_endian = "big")]
compile_error!("scans are sent in the machine's byte order, which must be little-endian");

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::{Array, data};

    #[test]
    fn rows_of_a_real_scan_equal_their_oracle() {
        let Some(path) = data("formats_derived/i13_nxtomo_bitshuffle_lz4.nxs") else {
            return;
        };
        let Some(oracle) = data("formats_derived/crop_rows60_76_oracle.npy") else {
            return;
        };
        let oracle = Array::read(&oracle).unwrap();
        let mut source = ScanSource::open(&path).unwrap().with_rows(60, 76).unwrap();
        let projections: Vec<usize> =
            (0..source.frames().len()).filter(|&i| source.frames()[i].role == Role::Projection).collect();
        assert_eq!((source.frames().len(), projections.len()), (98, 91));
        let mut pixels = Vec::new();
        for (number, index) in projections.into_iter().enumerate() {
            source.read(index, &mut pixels).unwrap();
            let bytes = source.format().bytes();
            assert!(pixels == oracle.bytes[number * bytes..(number + 1) * bytes], "projection {number}");
        }
    }

    #[test]
    fn rows_that_are_not_there_are_refused() {
        let Some(path) = data("tomo/aps_tooth/tooth.h5") else {
            return;
        };
        let error = ScanSource::open(&path).unwrap().with_rows(1, 3).unwrap_err();
        assert_eq!(error.to_string(), "rows 1:3 are not among the 2 rows of the scan");
    }
}
