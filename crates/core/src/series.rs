//! One acquisition, from its header to its end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Format, FrameCounts};

/// Which series: the detector's own number and the count of series in this run.
///
/// A detector that was restarted counts from 1 again, so `number` alone does not tell two series apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeriesId {
    /// The detector's number, or the count on arrival where the protocol has none.
    pub number: u64,
    /// Count of the series in this run, from 0.
    pub ordinal: u64,
}

impl std::fmt::Display for SeriesId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// The part of the detector that the frames of a series show, in detector pixels, ends excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First detector row, of this pass.
    pub first_row: usize,
    /// First detector column.
    pub first_column: usize,
    /// Detector pixels per pixel of the frames along each axis.
    pub bin: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { first_row: 0, first_column: 0, bin: 1 }
    }
}

impl Window {
    /// The position of a detector column in the frames' own columns; both count from the centre of their first.
    ///
    /// With a bin of 2, detector columns 0 and 1 (centres 0.0 and 1.0) form column 0: detector 0.5 is 0.0.
    pub fn column_from_detector(self, detector_px: f64) -> f64 {
        let bin = self.bin as f64;
        (detector_px - self.first_column as f64 - (bin - 1.0) / 2.0) / bin
    }

    /// The position of one of the frames' columns in detector columns.
    pub fn column_to_detector(self, column_px: f64) -> f64 {
        let bin = self.bin as f64;
        column_px * bin + self.first_column as f64 + (bin - 1.0) / 2.0
    }
}

/// A scan that does not fit memory is sent in several passes over its detector rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// Which pass, from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Position of this pass's first row among the rows of the whole series.
    pub first_row: usize,
    /// Rows of the whole series, all passes together.
    pub total_rows: usize,
}

impl Pass {
    /// The only pass over `rows` rows.
    pub const fn whole(rows: usize) -> Self {
        Self { index: 0, count: 1, first_row: 0, total_rows: rows }
    }

    /// Whether this pass is the first.
    pub const fn is_first(self) -> bool {
        self.index == 0
    }

    /// Whether no pass follows.
    pub const fn is_last(self) -> bool {
        self.index + 1 >= self.count
    }
}

/// How many frames of each role a series has, where that is known ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleCounts {
    /// Frames without beam.
    pub darks: u64,
    /// Frames of the open beam.
    pub flats: u64,
    /// Frames of the sample.
    pub projections: u64,
    /// Whether all darks and flats come before the first projection.
    pub references_first: bool,
}

/// What the blocks of an edge are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Detector frames, numbered in their series.
    Frames,
    /// Slices of a volume `(z, y, x)`, numbered by z.
    Volume,
}

/// What is known of a series before its first block, on one edge.
#[derive(Debug, Clone)]
pub struct SeriesHeader {
    /// Which series.
    pub id: SeriesId,
    /// What the blocks are.
    pub content: Content,
    /// Type, axes and shape of every block.
    pub format: Format,
    /// The part of the detector that the frames show.
    pub window: Window,
    /// Which pass over the rows this is.
    pub pass: Pass,
    /// Frames of all roles that were announced, where that is known.
    pub expected_frames: Option<u64>,
    /// The same by role.
    pub roles: Option<RoleCounts>,
    /// Angles of the projections in radians, by number of the projection, where they are known ahead.
    pub angles_rad: Option<Arc<[f64]>>,
    /// Rotation axis in detector columns, where the source or an earlier node knows it.
    pub rotation_axis_px: Option<f64>,
    /// Edge length of a detector pixel in metres, where it is known.
    pub pixel_size_m: Option<f64>,
    /// The parameter epoch with which the series began: a later one than that of its frames where a changed parameter
    /// lets a node hand on the series again.
    pub epoch: u32,
    /// All else that the source told, for provenance.
    pub metadata: Arc<serde_json::Value>,
}

impl SeriesHeader {
    /// A header for frames of one format, with nothing else known.
    pub fn frames(id: SeriesId, format: Format) -> Self {
        Self {
            id,
            content: Content::Frames,
            format,
            window: Window::default(),
            pass: Pass::whole(format.shape.rows),
            expected_frames: None,
            roles: None,
            angles_rad: None,
            rotation_axis_px: None,
            pixel_size_m: None,
            epoch: 0,
            metadata: Arc::new(serde_json::Value::Null),
        }
    }

    /// Number of slices of a volume made from this series: one per row of a frame.
    pub fn rows(&self) -> usize {
        match self.content {
            Content::Frames => self.format.shape.rows,
            Content::Volume => self.pass.total_rows,
        }
    }

    /// The detector row that slice `z` of the whole volume shows, counted in rows as they were binned.
    pub fn detector_row(&self, z: u64) -> u64 {
        let first = (self.window.first_row / self.window.bin) as u64;
        (first + z).saturating_sub(self.pass.first_row as u64)
    }

    /// Projections that are expected, where that is known.
    pub fn expected_projections(&self) -> Option<u64> {
        let by_angles = self.angles_rad.as_ref().map(|angles| angles.len() as u64);
        self.roles.map(|roles| roles.projections).or(by_angles).or(self.expected_frames)
    }
}

/// How a series ended, on one edge.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeriesSummary {
    /// What became of its frames.
    pub counts: FrameCounts,
    /// Whether the series was cut short by the user or a failure, rather than closed by its own rules.
    pub aborted: bool,
}

impl SeriesSummary {
    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        !self.aborted && self.counts.is_complete()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binned_columns_keep_their_place() {
        let window = Window { first_row: 0, first_column: 8, bin: 2 };
        assert_eq!(window.column_from_detector(8.5), 0.0);
        assert_eq!(window.column_to_detector(window.column_from_detector(63.5)), 63.5);
        assert_eq!(Window::default().column_from_detector(5.25), 5.25);
    }
}
