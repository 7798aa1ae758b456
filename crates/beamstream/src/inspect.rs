//! What is in a file.

use std::path::{Path, PathBuf};

use beamstream_core::{ElementType, Role};
use beamstream_io::{DatasetInfo, Scan, ScanError, ScanInfo, ScanKind, ScanOptions, list_datasets};
use serde::Serialize;

use crate::Error;

/// What is in a file.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// The file or folder.
    pub path: PathBuf,
    /// What kind of scan it is, if it is one.
    pub kind: Option<ScanKind>,
    /// Its frames, if it is a scan.
    pub frames: Option<FrameSummary>,
    /// What a reconstruction would make of it.
    pub recon: Option<ReconSummary>,
    /// Why it is no scan, or not without further options.
    pub no_scan_because: Option<String>,
    /// Edge length of a detector pixel. Unit: metres.
    pub pixel_size_m: Option<f64>,
    /// The datasets of the file.
    pub datasets: Vec<DatasetInfo>,
    /// Scalar numbers and texts of the file, by their paths.
    pub metadata: serde_json::Value,
    /// What has to be assumed.
    pub warnings: Vec<String>,
}

/// The frames of a scan.
#[derive(Debug, Clone, Serialize)]
pub struct FrameSummary {
    /// `[frames, rows, columns]`, all roles together.
    pub shape: [usize; 3],
    /// Type of a pixel.
    pub element: ElementType,
    /// Number of projections.
    pub projections: usize,
    /// Number of flats.
    pub flats: usize,
    /// Number of darks.
    pub darks: usize,
    /// Number of frames that are not to be used.
    pub invalid: usize,
    /// Smallest and largest angle of the projections. Unit: degrees.
    pub angle_range_deg: Option<[f64; 2]>,
}

/// What a reconstruction makes of a scan.
#[derive(Debug, Clone, Serialize)]
pub struct ReconSummary {
    /// `[z, y, x]` of the volume.
    pub shape: [usize; 3],
    /// Size of the volume as f32. Unit: bytes.
    pub volume_bytes: u64,
}

/// Tells what is in a file: the scan, or at least its datasets.
///
/// # Errors
/// [`Error::Scan`] if the file cannot be read, or is of no kind that is known.
pub fn inspect(path: &Path, options: &ScanOptions) -> Result<Inspection, Error> {
    match Scan::open(path, options) {
        Ok(scan) => Ok(Inspection::of(scan.info())),
        Err(why) => no_scan(path, why),
    }
}

/// A file that is no scan may still have datasets.
fn no_scan(path: &Path, why: ScanError) -> Result<Inspection, Error> {
    let datasets = list_datasets(path).unwrap_or_default();
    let why = Error::from(why);
    if datasets.is_empty() {
        return Err(why);
    }
    Ok(Inspection {
        path: path.to_owned(),
        kind: None,
        frames: None,
        recon: None,
        no_scan_because: Some(why.full_text()),
        pixel_size_m: None,
        datasets,
        metadata: serde_json::Value::Null,
        warnings: Vec::new(),
    })
}

impl Inspection {
    fn of(info: &ScanInfo) -> Self {
        let shape = info.format.shape;
        let frames = FrameSummary {
            shape: [info.frames.len(), shape.rows, shape.columns],
            element: info.format.element,
            projections: info.count(Role::Projection),
            flats: info.count(Role::Flat),
            darks: info.count(Role::Dark),
            invalid: info.count(Role::Invalid),
            angle_range_deg: angle_range_deg(info),
        };
        let volume = [shape.rows, shape.columns, shape.columns];
        let voxels = volume.iter().fold(1_u64, |product, &extent| product.saturating_mul(extent as u64));
        let volume_bytes = voxels.saturating_mul(ElementType::F32.size() as u64);
        Self {
            path: info.path.clone(),
            kind: Some(info.kind),
            frames: Some(frames),
            recon: Some(ReconSummary { shape: volume, volume_bytes }),
            no_scan_because: None,
            pixel_size_m: info.pixel_size_m,
            datasets: info.datasets.clone(),
            metadata: info.metadata.clone(),
            warnings: info.warnings.clone(),
        }
    }
}

fn angle_range_deg(info: &ScanInfo) -> Option<[f64; 2]> {
    let angles = info.projection_angles_deg();
    let first = angles.iter().copied().reduce(f64::min)?;
    let last = angles.iter().copied().reduce(f64::max)?;
    Some([first, last])
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::data;

    #[test]
    fn a_real_scan_is_told() {
        let Some(path) = data("tomo/aps_tooth/tooth.h5") else {
            return;
        };
        let told = inspect(&path, &ScanOptions::default()).unwrap();
        assert_eq!(told.kind, Some(ScanKind::DxChange));
        let frames = told.frames.unwrap();
        assert_eq!((frames.projections, frames.shape[1..].to_vec()), (181, vec![2, 640]));
        assert_eq!(told.recon.unwrap().shape, [2, 640, 640]);
    }

    #[test]
    fn datasets_are_told_where_there_is_no_scan() {
        let Some(path) = data("formats_derived/crop_filters.h5") else {
            return;
        };
        let told = inspect(&path, &ScanOptions::default()).unwrap();
        assert!(told.no_scan_because.is_some() && !told.datasets.is_empty());
    }

    #[test]
    fn what_is_no_file_at_all_is_refused() {
        assert!(inspect(Path::new("nowhere.h5"), &ScanOptions::default()).is_err());
    }
}
