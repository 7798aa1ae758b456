//! Rotation angles: from tables in files and from texts, in degrees or radians.

use std::f64::consts::TAU;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::ScanError;

/// Longest text file of angles.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A table of angles as a file holds it.
#[derive(Debug, Clone)]
pub(crate) struct AngleTable {
    /// The file, for errors.
    pub(crate) path: PathBuf,
    /// Where in the file, for warnings.
    pub(crate) place: String,
    pub(crate) values: Vec<f64>,
    /// What the file says of the unit.
    pub(crate) units: Option<String>,
    /// Whether the table counts all frames, for files whose frames are still to come.
    pub(crate) of_all_frames: bool,
}

/// Unit of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Degrees,
    Radians,
}

impl AngleTable {
    /// A table of the projections only, as far as is known.
    pub(crate) fn new(path: &Path, place: String, values: Vec<f64>, units: Option<String>) -> Self {
        Self { path: path.to_owned(), place, values, units, of_all_frames: false }
    }

    /// A text with one angle in degrees on each line; empty lines and those that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`ScanError::AngleText`] names the line that is no number.
    pub(crate) fn from_text(path: &Path) -> Result<Self, ScanError> {
        // Not the size that the file claims: devices and pipes have none.
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(ScanError::io(path))?;
        file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(ScanError::io(path))?;
        if bytes.len() as u64 > MAX_TEXT_BYTES {
            let expected = format!("expected a text of angles, found more than {MAX_TEXT_BYTES} bytes");
            return Err(ScanError::no_frames(path, expected));
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut values = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let value = line.parse().ok();
            let found = || line.chars().take(40).collect();
            values.push(value.ok_or_else(|| ScanError::AngleText {
                path: path.to_owned(),
                line: at + 1,
                found: found(),
            })?);
        }
        Ok(Self::new(path, path.display().to_string(), values, Some("degrees".to_owned())))
    }

    /// Cuts the table to the frames that are there, and tells how many frames have an angle.
    ///
    /// A file that is being written may hold angles for all frames that are to come, or lack those of the last ones.
    pub(crate) fn cut_to(&mut self, frames: usize, projections: &[usize]) -> usize {
        let wanted = if self.of_all_frames { frames } else { projections.len() };
        self.values.truncate(wanted);
        if self.of_all_frames {
            self.values.len()
        } else {
            projections.get(self.values.len()).copied().unwrap_or(frames)
        }
    }

    /// The angles of `projections`, which are positions among all `frames` of the file, in degrees.
    ///
    /// The table may count all frames or projections only. Says in `warnings` if the unit had to be guessed.
    ///
    /// # Errors
    /// [`ScanError::AngleCount`] and [`ScanError::AngleValue`].
    pub(crate) fn degrees_of(
        &self,
        projections: &[usize],
        frames: usize,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<f64>, ScanError> {
        let of_projections: Vec<f64> = if self.values.len() == projections.len() {
            self.values.clone()
        } else if self.values.len() == frames {
            projections.iter().map(|&at| self.values[at]).collect()
        } else {
            let (expected, found) = (projections.len(), self.values.len());
            return Err(ScanError::AngleCount { path: self.path.clone(), expected, found });
        };
        if let Some(projection) = of_projections.iter().position(|angle| !angle.is_finite()) {
            let value = of_projections[projection];
            return Err(ScanError::AngleValue { path: self.path.clone(), projection, value });
        }
        Ok(match self.unit(&of_projections, warnings) {
            Unit::Degrees => of_projections,
            Unit::Radians => of_projections.into_iter().map(f64::to_degrees).collect(),
        })
    }

    /// Without a unit, angles that stay within one turn in radians are taken for radians.
    fn unit(&self, values: &[f64], warnings: &mut Vec<String>) -> Unit {
        let units = self.units.as_deref().unwrap_or_default().trim().to_lowercase();
        if units.starts_with("deg") || units == "°" {
            return Unit::Degrees;
        }
        if units.starts_with("rad") {
            return Unit::Radians;
        }
        let largest = values.iter().fold(0.0_f64, |largest, angle| largest.max(angle.abs()));
        // A few projections near 0 are as likely degrees, but then the two differ little.
        let unit = if largest <= TAU * (1.0 + 1e-6) { Unit::Radians } else { Unit::Degrees };
        let guess = if unit == Unit::Radians { "radians" } else { "degrees" };
        warnings.push(format!(
            "{} has no unit: its angles, up to {largest:.4}, are taken for {guess}",
            self.place
        ));
        unit
    }
}

/// Angles for a scan that holds none: even over half a turn, the end left out.
pub(crate) fn even_degrees(projections: usize) -> Vec<f64> {
    (0..projections).map(|number| 180.0 * number as f64 / projections as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(values: &[f64], units: Option<&str>) -> AngleTable {
        let place = "/theta".to_owned();
        AngleTable::new(Path::new("scan.h5"), place, values.to_vec(), units.map(str::to_owned))
    }

    fn degrees(table: &AngleTable) -> (Vec<f64>, usize) {
        let all: Vec<usize> = (0..table.values.len()).collect();
        let mut warnings = Vec::new();
        (table.degrees_of(&all, all.len(), &mut warnings).unwrap(), warnings.len())
    }

    #[test]
    fn units_are_obeyed_and_missing_ones_guessed_aloud() {
        assert_eq!(degrees(&table(&[0.0, 1.0], Some("deg"))), (vec![0.0, 1.0], 0));
        assert_eq!(degrees(&table(&[0.0, std::f64::consts::PI], Some("Radians"))), (vec![0.0, 180.0], 0));
        assert_eq!(degrees(&table(&[0.0, std::f64::consts::PI], None)), (vec![0.0, 180.0], 1));
        assert_eq!(degrees(&table(&[0.0, 179.0], Some(""))), (vec![0.0, 179.0], 1));
    }

    #[test]
    fn a_table_of_all_frames_is_reduced_to_projections() {
        let all = table(&[7.0, 8.0, 10.0, 20.0], Some("degrees"));
        assert_eq!(all.degrees_of(&[2, 3], 4, &mut Vec::new()).unwrap(), [10.0, 20.0]);
        let error = all.degrees_of(&[0, 1, 2], 5, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains('4') && error.contains('3') && error.contains("scan.h5"), "{error}");
    }

    #[test]
    fn a_growing_scan_ends_with_its_last_angle() {
        let of_projections = table(&[1.0, 2.0], None);
        let of_all = AngleTable { of_all_frames: true, ..of_projections.clone() };
        // Frames 0 and 2 are no projections.
        let projections = [1, 3, 4];
        assert_eq!(of_projections.clone().cut_to(5, &projections), 4);
        assert_eq!(of_all.clone().cut_to(5, &projections), 2);
        let mut ahead = table(&[1.0, 2.0, 3.0, 4.0], None);
        assert_eq!((ahead.cut_to(5, &projections), ahead.values.len()), (5, 3));
    }

    #[test]
    fn nan_is_refused_for_projections_only() {
        let all = table(&[f64::NAN, 1.0, f64::NAN], Some("degrees"));
        assert!(all.degrees_of(&[1], 3, &mut Vec::new()).is_ok());
        let error = all.degrees_of(&[1, 2], 3, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("projection 1 is NaN"), "{error}");
    }

    #[test]
    fn a_line_that_is_no_number_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("angles.txt");
        std::fs::write(&path, "# degrees\n0\n\n 1.5 \nzwei\n").unwrap();
        let error = AngleTable::from_text(&path).unwrap_err().to_string();
        assert!(error.contains("line 5") && error.contains("zwei"), "{error}");
    }
}
