//! Scans out: an NXtomo file of frames with their roles and angles.
//!
//! # Source
//! NeXus application definition NXtomo.

use std::path::Path;

use beamstream_core::{Content, Format};

use super::hdf5::{Attribute, Hdf5, Item};
use super::stacked::Stacked;
use super::{Output, OutputError, OutputSpec};
use crate::scan::FrameEntry;

/// Begins an NXtomo file. The frames are written by their places in `frames`, in any order.
///
/// Frames without an angle have the angle 0 in the file: NXtomo wants one for each.
///
/// # Errors
/// As [`create_output`](super::create_output).
pub fn create_scan(
    path: &Path,
    overwrite: bool,
    format: Format,
    frames: &[FrameEntry],
    pixel_size_m: Option<f64>,
) -> Result<Box<dyn Output>, OutputError> {
    let count = frames.len() as u64;
    let spec = OutputSpec {
        path: path.to_owned(),
        overwrite,
        content: Content::Frames,
        format,
        count: Some(count),
        first_number: 0,
    };
    let bytes = format.checked_bytes().and_then(|bytes| (bytes as u64).checked_mul(count));
    if bytes.is_none_or(|bytes| bytes > i64::MAX as u64) {
        let what = format!("{count} frames of {} are more than a file can hold", format.shape);
        return Err(OutputError::Unsupported { path: path.to_owned(), what });
    }
    Ok(Box::new(Stacked::create(&spec, Hdf5::of(nxtomo(frames, pixel_size_m), format))?))
}

fn nxtomo(frames: &[FrameEntry], pixel_size_m: Option<f64>) -> Item {
    let class = |name| ("NX_class", Attribute::Text(name));
    let keys = frames.iter().map(|frame| frame.role.image_key()).collect();
    let angles = frames.iter().map(|frame| frame.angle_deg.unwrap_or(0.0)).collect();
    let mut detector = vec![("data", Item::Data), ("image_key", Item::Bytes(keys))];
    if let Some(size) = pixel_size_m {
        detector.push(("x_pixel_size", Item::Numbers(vec![size], "m")));
        detector.push(("y_pixel_size", Item::Numbers(vec![size], "m")));
    }
    let instrument = Item::Group(
        vec![class("NXinstrument")],
        vec![("detector", Item::Group(vec![class("NXdetector")], detector))],
    );
    let sample =
        Item::Group(vec![class("NXsample")], vec![("rotation_angle", Item::Numbers(angles, "degree"))]);
    let data = Item::Group(
        vec![class("NXdata"), ("signal", Attribute::Text("data"))],
        vec![
            ("data", Item::Link("/entry/instrument/detector/data")),
            ("image_key", Item::Link("/entry/instrument/detector/image_key")),
            ("rotation_angle", Item::Link("/entry/sample/rotation_angle")),
        ],
    );
    let process = Item::Group(
        vec![class("NXprocess")],
        vec![
            ("parameters", Item::Provenance),
            ("program", Item::Text(super::PROGRAM)),
            ("version", Item::Text(super::VERSION)),
        ],
    );
    let entry = Item::Group(
        vec![class("NXentry"), ("default", Attribute::Text("data"))],
        vec![
            ("conversion", process),
            ("data", data),
            ("definition", Item::Text("NXtomo")),
            ("instrument", instrument),
            ("sample", sample),
        ],
    );
    let root = vec![
        class("NXroot"),
        ("default", Attribute::Text("entry")),
        ("creator", Attribute::Text(super::PROGRAM)),
    ];
    Item::Group(root, vec![("entry", entry)])
}
