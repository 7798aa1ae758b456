//! The rotation axis of a recorded scan, from two projections half a turn apart.

use std::ops::Range;

use beamstream_buffer::{Block, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_io::{Scan, ScanInfo};
use beamstream_ops::{Backend, FlatFieldSpec};
use serde::Serialize;

use crate::frames::{FrameReader, FramesError};
use crate::{Error, Options};

/// Two projections count as opposite if they are half a turn apart to within this. Unit: degrees.
const MAX_OFF_DEG: f64 = 10.0;
/// The one method that there is so far, by its name.
pub const METHOD: &str = "opposite-projections";
/// Most flats and darks that are averaged: enough for a search.
const MAX_REFERENCES: usize = 10;
/// Most rows that are looked at, from the middle of the detector.
const MAX_ROWS: usize = 512;

/// A rotation axis that was found, and how far to trust it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AxisFinding {
    /// Detector columns from the centre of the first.
    pub rotation_axis_px: f64,
    /// 0..1; below 0.5 it should not be relied on.
    pub confidence: f64,
    /// How it was found.
    pub method: &'static str,
    /// Angles of the two projections. Unit: degrees.
    pub angles_deg: [f64; 2],
}

impl AxisFinding {
    /// Whether it may be relied on.
    pub fn is_trustworthy(&self) -> bool {
        self.confidence >= 0.5
    }
}

/// Finds the rotation axis of a scan from the two projections that are nearest to half a turn apart.
///
/// Gives `None` if there are no two such projections. Reads these two and a few flats and darks only; looks at one
/// `row` of the detector, or at many in its middle.
///
/// # Errors
/// [`Error`] if the scan cannot be read, or has no such row.
pub fn find_axis(
    scan: &mut Scan,
    row: Option<usize>,
    options: &Options,
) -> Result<Option<AxisFinding>, Error> {
    let detector_rows = scan.info().format.shape.rows;
    let rows = match row {
        None => middle(detector_rows),
        Some(row) if row < detector_rows => row..row + 1,
        Some(row) => {
            let message = format!("expected a row below the detector's {detector_rows}, found {row}");
            return Err(Error::Option { option: "row", message });
        }
    };
    let Some(pair) = opposite_projections(scan.info()) else {
        return Ok(None);
    };
    let ops = options.plan_options()?.ops;
    let [at_0, at_180] = line_integrals(scan, rows, pair.frames, &*ops)?;
    let estimate = ops.rotation_axis(&at_0, &at_180)?;
    Ok(Some(AxisFinding {
        rotation_axis_px: estimate.rotation_axis_px,
        confidence: estimate.confidence * (1.0 - pair.off_deg / MAX_OFF_DEG),
        method: METHOD,
        angles_deg: pair.angles_deg,
    }))
}

/// Two projections half a turn apart.
#[derive(Debug, PartialEq)]
struct Pair {
    frames: [usize; 2],
    angles_deg: [f64; 2],
    /// How far from half a turn.
    off_deg: f64,
}

/// The two projections that are nearest to half a turn apart.
fn opposite_projections(info: &ScanInfo) -> Option<Pair> {
    let projections = info.frames.iter().enumerate().filter(|(_, frame)| frame.role == Role::Projection);
    let mut angles: Vec<(f64, usize)> = projections
        .filter_map(|(at, frame)| Some((frame.angle_deg?, at)))
        .filter(|(deg, _)| deg.is_finite())
        .collect();
    angles.sort_by(|one, other| one.0.rem_euclid(360.0).total_cmp(&other.0.rem_euclid(360.0)));
    let best = angles.iter().filter_map(|&(deg, frame)| {
        let wanted = (deg + 180.0).rem_euclid(360.0);
        let behind = angles.partition_point(|(other, _)| other.rem_euclid(360.0) < wanted);
        // The neighbours of the wanted angle on both sides, over the end of the circle too.
        let neighbours = [(behind + angles.len() - 1) % angles.len(), behind % angles.len()];
        let off = |at: usize| {
            let away = (angles[at].0 - wanted).rem_euclid(360.0);
            away.min(360.0 - away)
        };
        let nearest = neighbours.into_iter().min_by(|&one, &other| off(one).total_cmp(&off(other)))?;
        let (other_deg, other) = angles[nearest];
        let pair = Pair { frames: [frame, other], angles_deg: [deg, other_deg], off_deg: off(nearest) };
        // The best pair is met from both of its ends.
        (deg < other_deg).then_some(pair)
    });
    best.filter(|pair| pair.off_deg < MAX_OFF_DEG).min_by(|one, other| one.off_deg.total_cmp(&other.off_deg))
}

/// Rows in the middle of the detector.
fn middle(rows: usize) -> Range<usize> {
    let kept = rows.min(MAX_ROWS);
    let first = (rows - kept) / 2;
    first..first + kept
}

/// Two projections as line integrals.
fn line_integrals(
    scan: &mut Scan,
    rows: Range<usize>,
    frames: [usize; 2],
    ops: &dyn Backend,
) -> Result<[Block; 2], FramesError> {
    let of_role = |role| -> Vec<usize> {
        let entries = scan.info().frames.iter().enumerate();
        entries.filter(|(_, frame)| frame.role == role).map(|(at, _)| at).take(MAX_REFERENCES).collect()
    };
    let (darks, flats) = (of_role(Role::Dark), of_role(Role::Flat));
    let mut reader = FrameReader::new(scan, rows, 1)?;
    let dark = reader.mean(&darks, Role::Dark, ops)?;
    let flat = if flats.is_empty() {
        // Without an open beam the brightest count has to do for it: the sample stays where it is.
        open_beam(
            &reader.mean(&frames[..1], Role::Projection, ops)?,
            &reader.mean(&frames[1..], Role::Projection, ops)?,
        )
    } else {
        reader.mean(&flats, Role::Flat, ops)?
    };
    let mut correction = ops.flat_field(&FlatFieldSpec { minus_log: true }, reader.format())?;
    correction.set_references(&dark, &[&flat])?;
    let format: Format = reader.format().with_element(ElementType::F32);
    let pool = Pool::host("line integrals", frames.len(), format.bytes())?;
    let mut corrected = |frame: usize| -> Result<Block, FramesError> {
        let mut lease = pool.lease(format)?;
        correction.correct(&reader.read(frame, Role::Projection)?, 0.0, &mut lease)?;
        Ok(lease.freeze(BlockMeta::new(FrameId::new(frame as u64), Role::Projection)))
    };
    Ok([corrected(frames[0])?, corrected(frames[1])?])
}

/// The brightest count of two images everywhere.
fn open_beam(one: &[f32], other: &[f32]) -> Vec<f32> {
    let brightest = one.iter().chain(other).copied().fold(0.0, f32::max);
    vec![brightest; one.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_io::ScanOptions;
    use beamstream_testkit::data;

    fn info(angles_deg: &[f64]) -> ScanInfo {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("projections.tif");
        let mut file = tiff::encoder::TiffEncoder::new(std::fs::File::create(&path).unwrap()).unwrap();
        for _ in angles_deg {
            file.write_image::<tiff::encoder::colortype::Gray8>(1, 1, &[7]).unwrap();
        }
        let table = folder.path().join("angles.txt");
        let lines: Vec<String> = angles_deg.iter().map(ToString::to_string).collect();
        std::fs::write(&table, lines.join("\n")).unwrap();
        let angles = Some(table.to_string_lossy().into_owned());
        let scan = Scan::open(&path, &ScanOptions { angles, ..Default::default() }).unwrap();
        scan.info().clone()
    }

    #[test]
    fn the_pair_nearest_to_half_a_turn_is_taken() {
        let frames = |angles: &[f64]| opposite_projections(&info(angles)).map(|pair| pair.frames);
        assert_eq!(frames(&[0.0, 60.0, 120.0, 180.0]), Some([0, 3]));
        assert_eq!(frames(&[-88.2, 1.8, 91.5, 91.8]), Some([0, 3]));
        assert_eq!(frames(&[350.0, 20.0, 171.0]), Some([2, 0]));
        assert_eq!(frames(&[0.0, 60.0, 120.0]), None);
        assert_eq!(frames(&[5.0]), None);
    }

    #[test]
    fn the_axis_of_a_real_scan_is_found() {
        let Some(path) = data("formats_derived/i13_nxtomo_bitshuffle_lz4.nxs") else {
            return;
        };
        let mut scan = Scan::open(&path, &ScanOptions::default()).unwrap();
        let found = find_axis(&mut scan, None, &Options::default()).unwrap().unwrap();
        assert!((found.rotation_axis_px - 85.75).abs() < 0.5, "{found:?}");
        assert!(found.is_trustworthy(), "{found:?}");
    }
}
