//! Reference images from files.

use std::path::Path;
use std::sync::Arc;

use beamstream_core::{Role, Shape};
use beamstream_io::{Scan, ScanOptions};
use beamstream_node::ImageReader;
use beamstream_ops::Backend;

use crate::Error;
use crate::frames::{FrameReader, FramesError};

/// Reads reference images for nodes, from whatever [`Scan::open`] can read.
pub(crate) struct ScanImages {
    ops: Arc<dyn Backend>,
}

impl ScanImages {
    pub(crate) fn new(ops: Arc<dyn Backend>) -> Self {
        Self { ops }
    }

    fn mean(&self, path: &str) -> Result<(Shape, Vec<f32>), String> {
        let (file, dataset) = split(path);
        let options = ScanOptions { data: dataset, ..Default::default() };
        let mut scan =
            Scan::open(Path::new(file), &options).map_err(|error| Error::from(error).full_text())?;
        let info = scan.info();
        let usable: Vec<usize> =
            (0..info.frames.len()).filter(|&at| info.frames[at].role != Role::Invalid).collect();
        let Some(role) = usable.first().map(|&at| info.frames[at].role) else {
            return Err(format!("{path} holds no frame that could be averaged"));
        };
        if usable.iter().any(|&at| info.frames[at].role != role) {
            return Err(format!(
                "{path} holds frames of several roles: name a dataset, as in FILE:/path/of/dataset"
            ));
        }
        let shape = info.format.shape;
        let mean = FrameReader::new(&mut scan, 0..shape.rows, 1)
            .map_err(FramesError::from)
            .and_then(|mut frames| frames.mean(&usable, role, &*self.ops));
        match mean {
            Ok(mean) => Ok((shape, mean)),
            Err(FramesError::Scan(error)) => Err(Error::from(error).full_text()),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }
}

impl ImageReader for ScanImages {
    fn mean_image(&self, path: &str) -> Result<(Shape, Vec<f32>), String> {
        self.mean(path)
    }
}

/// A file and, behind a colon, the dataset in it.
fn split(path: &str) -> (&str, Option<String>) {
    match path.split_once(":/") {
        Some((file, dataset)) if !Path::new(path).exists() => (file, Some(format!("/{dataset}"))),
        _ => (path, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_cpu::CpuBackend;
    use tiff::encoder::{TiffEncoder, colortype};

    fn images() -> ScanImages {
        ScanImages::new(Arc::new(CpuBackend::new(1)))
    }

    #[test]
    fn pages_are_averaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flats.tif");
        let mut file = TiffEncoder::new(std::fs::File::create(&path).unwrap()).unwrap();
        for counts in [[10_u16, 20, 30, 40, 50, 60], [20, 20, 50, 40, 70, 60]] {
            file.write_image::<colortype::Gray16>(3, 2, &counts).unwrap();
        }
        let (shape, mean) = images().mean_image(path.to_str().unwrap()).unwrap();
        assert_eq!(shape, Shape::new(2, 3));
        assert_eq!(mean, [15.0, 20.0, 40.0, 40.0, 60.0, 60.0]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = images().mean_image("nowhere/flats.h5:/a/b").unwrap_err();
        assert!(error.contains("nowhere/flats.h5") && !error.contains("/a/b"), "{error}");
    }

    #[test]
    fn datasets_stand_behind_a_colon() {
        assert_eq!(split("a.h5:/x/y"), ("a.h5", Some("/x/y".to_owned())));
        assert_eq!(split("/data/a.tif"), ("/data/a.tif", None));
    }
}
