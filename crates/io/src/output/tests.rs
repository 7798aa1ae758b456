use std::fs;

use beamstream_core::{ElementType, Role};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::scan::{Scan, ScanOptions};

const KINDS: [(OutputKind, &str); 6] = [
    (OutputKind::Hdf5, "v.h5"),
    (OutputKind::Zarr, "v.zarr"),
    (OutputKind::TiffStack, "v.tif"),
    (OutputKind::TiffFolder, "slices"),
    (OutputKind::Npy, "v.npy"),
    (OutputKind::Raw, "v.raw"),
];

fn spec(path: PathBuf, format: Format, count: Option<u64>) -> OutputSpec {
    let content = if count.is_some() { Content::Volume } else { Content::Frames };
    OutputSpec { path, overwrite: false, content, format, count, first_number: 0 }
}

fn provenance() -> Value {
    json!({ "program": "beamstream", "rotation_axis_px": 20.125 })
}

fn block(format: Format, number: u64) -> Vec<u8> {
    (0..format.bytes()).map(|at| (at as u64 * 7 + number * 31) as u8).collect()
}

/// The blocks of a file that this crate reads as well.
fn read_back(path: &Path) -> Vec<Vec<u8>> {
    let mut scan = Scan::open(path, &ScanOptions::default()).unwrap();
    let format = scan.info().format;
    let frames = 0..scan.info().frames.len();
    let read = |frame| {
        let mut out = vec![0; format.bytes()];
        scan.read(frame, 0..format.shape.rows, &mut out).unwrap();
        out
    };
    frames.map(read).collect()
}

fn partial_files(folder: &Path) -> usize {
    fs::read_dir(folder)
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'))
        .count()
}

#[test]
fn endings_tell_the_kind() {
    for (kind, name) in KINDS {
        assert_eq!(output_kind_of(Path::new(name)).unwrap(), kind);
    }
    let error = output_kind_of(Path::new("v.docx")).unwrap_err().to_string();
    assert!(error.contains(".docx") && error.contains(".zarr") && error.contains("folder"), "{error}");
}

#[test]
fn every_element_type_comes_back_from_hdf5_and_tiff() {
    let folder = tempfile::tempdir().unwrap();
    for element in ElementType::ALL {
        let format = Format { axes: beamstream_core::Axes::Slice, ..Format::frame(element, 3, 5) };
        for (kind, name) in [KINDS[0], KINDS[2], KINDS[3]] {
            let path = folder.path().join(format!("{element}-{name}"));
            let mut output = create_output(kind, &spec(path.clone(), format, Some(4))).unwrap();
            for number in [2, 0, 3, 1] {
                output.write(FrameId::new(number), &block(format, number)).unwrap();
            }
            output.finish(&provenance()).unwrap();
            let expected: Vec<_> = (0..4).map(|number| block(format, number)).collect();
            assert_eq!(read_back(&path), expected, "{element} {kind:?}");
        }
    }
}

#[test]
fn lost_frames_leave_no_gap_and_order_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let format = Format::frame(ElementType::U16, 2, 3);
    let arrivals = [9, 4, 2, 7, 3];
    let sorted: Vec<u8> = [2, 3, 4, 7, 9].iter().flat_map(|&number| block(format, number)).collect();
    for (kind, name) in KINDS {
        let path = folder.path().join(name);
        let mut output = create_output(kind, &spec(path.clone(), format, None)).unwrap();
        for number in arrivals {
            output.write(FrameId::new(number), &block(format, number)).unwrap();
        }
        output.finish(&provenance()).unwrap();
        let found: Vec<u8> = match kind {
            OutputKind::Raw => fs::read(&path).unwrap(),
            OutputKind::Npy => fs::read(&path).unwrap().split_off(192),
            OutputKind::Zarr => {
                (0..5).flat_map(|n| fs::read(path.join(format!("0/c/{n}/0/0"))).unwrap()).collect()
            }
            _ => read_back(&path).concat(),
        };
        assert_eq!(found, sorted, "{kind:?}");
    }
    assert!(folder.path().join("slices/frame_00007.tif").exists());
}

#[test]
fn frames_that_are_counted_by_role_keep_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let format = Format::frame(ElementType::U8, 1, 1);
    let path = folder.path().join("frames");
    let mut output = create_output(OutputKind::TiffFolder, &spec(path.clone(), format, None)).unwrap();
    for role in [Role::Dark, Role::Flat, Role::Projection] {
        output.write(FrameId::by_role(role, 0), &[1]).unwrap();
    }
    output.finish(&provenance()).unwrap();
    assert!(
        ["dark_00000.tif", "flat_00000.tif", "projection_00000.tif"]
            .iter()
            .all(|name| path.join(name).exists())
    );
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let format = Format::slice(ElementType::F32, 4);
    for (kind, name) in KINDS {
        let mut output = create_output(kind, &spec(folder.path().join(name), format, Some(3))).unwrap();
        output.write(FrameId::new(1), &block(format, 1)).unwrap();
        assert_eq!(partial_files(folder.path()), 1, "{kind:?} is written beside its place");
        drop(output);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{kind:?}");
    }
}

#[test]
fn wrong_blocks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let format = Format::slice(ElementType::F32, 4);
    let mut spec = spec(folder.path().join("v.h5"), format, Some(3));
    spec.first_number = 10;
    let mut output = create_output(OutputKind::Hdf5, &spec).unwrap();
    assert!(matches!(
        output.write(FrameId::new(10), &[0; 3]),
        Err(OutputError::BlockSize { expected: 64, found: 3, .. })
    ));
    for number in [9, 13] {
        let error = output.write(FrameId::new(number), &[0; 64]).unwrap_err();
        assert!(matches!(error, OutputError::OutOfRange { first: 10, count: 3, .. }), "{error}");
    }
    output.write(FrameId::new(12), &[0; 64]).unwrap();
}

#[test]
fn a_volume_that_no_file_can_hold_is_refused() {
    let format = Format::slice(ElementType::F32, 1 << 20);
    let error = create_output(OutputKind::Hdf5, &spec("v.h5".into(), format, Some(1 << 40))).err().unwrap();
    assert!(error.to_string().contains("v.h5"), "{error}");
}

proptest! {
    #[test]
    fn any_order_of_arrival_gives_the_same_file(numbers in proptest::collection::hash_set(0_u64..500, 1..40)) {
        let folder = tempfile::tempdir().unwrap();
        let format = Format::frame(ElementType::U8, 1, 4);
        let path = folder.path().join("v.raw");
        let mut output = create_output(OutputKind::Raw, &spec(path.clone(), format, None)).unwrap();
        for &number in &numbers {
            output.write(FrameId::new(number), &block(format, number)).unwrap();
        }
        output.finish(&provenance()).unwrap();
        let mut sorted: Vec<u64> = numbers.into_iter().collect();
        sorted.sort_unstable();
        let expected: Vec<u8> = sorted.into_iter().flat_map(|number| block(format, number)).collect();
        prop_assert_eq!(fs::read(&path).unwrap(), expected);
    }
}
