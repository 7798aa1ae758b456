//! The header of a series that has not come yet, for explaining a live pipeline.

use std::path::Path;
use std::sync::Arc;

use beamstream_core::{ElementType, Format, Role, RoleCounts, SeriesHeader, SeriesId};
use beamstream_io::{Scan, ScanInfo, ScanOptions};
use serde::Deserialize;

use crate::Error;

/// A header as people describe it in JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    rows: usize,
    columns: usize,
    #[serde(default = "u16_counts")]
    dtype: ElementType,
    projections: Option<u64>,
    #[serde(default)]
    flats: u64,
    #[serde(default)]
    darks: u64,
    rotation_axis_px: Option<f64>,
    pixel_size_m: Option<f64>,
}

fn u16_counts() -> ElementType {
    ElementType::U16
}

/// The header that a series would have: read from a JSON description, or taken from a recorded scan.
///
/// The description holds `rows` and `columns`, and may hold `dtype` (`u16`), `projections`, `flats`, `darks`,
/// `rotation_axis_px`, `pixel_size_m`.
///
/// # Errors
/// [`Error`] if the file is neither.
pub fn header_from_file(path: &Path) -> Result<SeriesHeader, Error> {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        return described(&text).map_err(|message| Error::Header { path: path.to_owned(), message });
    }
    Ok(of_scan(Scan::open(path, &ScanOptions::default())?.info()))
}

fn described(text: &str) -> Result<SeriesHeader, String> {
    let told: Description = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let format = Format::frame(told.dtype, told.rows, told.columns);
    if format.shape.is_empty() || format.checked_bytes().is_none() {
        return Err(format!("frames of {} cannot be", format.shape));
    }
    let roles = told.projections.map(|projections| RoleCounts {
        darks: told.darks,
        flats: told.flats,
        projections,
        references_first: true,
    });
    Ok(SeriesHeader {
        expected_frames: roles
            .map(|roles| roles.darks.saturating_add(roles.flats).saturating_add(roles.projections)),
        roles,
        rotation_axis_px: told.rotation_axis_px,
        pixel_size_m: told.pixel_size_m,
        ..SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, format)
    })
}

fn of_scan(info: &ScanInfo) -> SeriesHeader {
    let first_projection = info.frames.iter().position(|frame| frame.role == Role::Projection);
    let is_reference = |role| matches!(role, Role::Dark | Role::Flat);
    let last_reference = info.frames.iter().rposition(|frame| is_reference(frame.role));
    let roles = RoleCounts {
        darks: info.count(Role::Dark) as u64,
        flats: info.count(Role::Flat) as u64,
        projections: info.count(Role::Projection) as u64,
        references_first: last_reference < first_projection,
    };
    let angles: Vec<f64> = info.projection_angles_deg().into_iter().map(f64::to_radians).collect();
    SeriesHeader {
        expected_frames: Some(info.frames.len() as u64),
        roles: Some(roles),
        angles_rad: Some(Arc::from(angles)),
        pixel_size_m: info.pixel_size_m,
        ..SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, info.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_becomes_a_header() {
        let header = described(r#"{"rows": 3, "columns": 5, "projections": 90, "darks": 2}"#).unwrap();
        assert_eq!(header.format, Format::frame(ElementType::U16, 3, 5));
        assert_eq!((header.expected_frames, header.expected_projections()), (Some(92), Some(90)));
    }

    #[test]
    fn impossible_descriptions_are_refused() {
        let huge = format!(r#"{{"rows": {}, "columns": 5}}"#, u64::MAX);
        for text in ["", "7", r#"{"rows": 3}"#, r#"{"rows": 0, "columns": 5}"#, &huge] {
            assert!(described(text).is_err(), "{text}");
        }
        let error = described(r#"{"rows": 3, "cols": 5}"#).unwrap_err();
        assert!(error.contains("cols"), "{error}");
    }
}
