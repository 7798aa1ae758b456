//! Layouts of HDF5 files that our own writer does not write; `files/make.py` made them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::error::Error;
use std::path::{Path, PathBuf};

use beamstream_core::{Role, Shape};
use beamstream_io::{Scan, ScanError, ScanKind, ScanOptions};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

fn open(name: &str, data: Option<&str>) -> Result<Scan, ScanError> {
    Scan::open(&file(name), &ScanOptions { data: data.map(str::to_owned), ..ScanOptions::default() })
}

fn full_text(error: &ScanError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The pixels of a frame, all of them or rows 1 and 2.
fn pixels(scan: &mut Scan, frame: usize, rows: std::ops::Range<usize>) -> Vec<u16> {
    let mut out = vec![0; rows.len() * 8];
    scan.read(frame, rows, &mut out).unwrap();
    bytemuck::pod_collect_to_vec(&out)
}

fn expected(frame: u16, rows: std::ops::Range<u16>) -> Vec<u16> {
    rows.flat_map(|row| (0..4).map(move |column| 100 * frame + 10 * row + column)).collect()
}

#[test]
fn virtual_datasets_are_put_together() {
    for (dataset, frames) in [("/alternating", 0..6), ("/tiled", 0..6), ("/nested", 2..4)] {
        let mut scan = open("virtual.h5", Some(dataset)).unwrap();
        assert_eq!(scan.info().format.shape, Shape::new(3, 4));
        for (at, frame) in frames.enumerate() {
            assert_eq!(pixels(&mut scan, at, 0..3), expected(frame, 0..3), "{dataset} {frame}");
            assert_eq!(pixels(&mut scan, at, 1..3), expected(frame, 1..3), "{dataset} {frame}");
        }
    }
    let mut tiled = open("virtual.h5", Some("/tiled")).unwrap();
    assert_eq!(pixels(&mut tiled, 6, 0..3), [9; 12], "what has no source has the fill value");
    let text = full_text(&open("virtual.h5", Some("/missing")).unwrap_err());
    assert!(text.contains("not_there.h5") && text.contains("virtual"), "{text}");
}

#[test]
fn master_files_lead_to_their_data_files() {
    let mut scan = open("dectris_master.h5", None).unwrap();
    let info = scan.info().clone();
    assert_eq!((info.kind, info.count(Role::Projection)), (ScanKind::Dectris, 4));
    assert_eq!(info.projection_angles_deg(), [-1.0, -0.5, 0.0, 0.5]);
    assert!((info.pixel_size_m.unwrap() - 75e-6).abs() < 1e-12);
    assert!(info.warnings.iter().any(|w| w.contains("data_000003")), "{:?}", info.warnings);
    assert_eq!(pixels(&mut scan, 3, 0..3), expected(3, 0..3));
}

#[test]
fn scans_of_bliss_are_told_by_their_titles() {
    let mut scan = open("bliss.h5", None).unwrap();
    let info = scan.info().clone();
    assert_eq!(info.kind, ScanKind::Bliss);
    let roles: Vec<Role> = info.frames.iter().map(|frame| frame.role).collect();
    let (p, invalid) = (Role::Projection, Role::Invalid);
    assert_eq!(roles, [Role::Dark, Role::Flat, p, p, p, p, invalid]);
    assert_eq!(info.projection_angles_deg(), [0.0, 45.0, 90.0, 135.0]);
    assert!((info.pixel_size_m.unwrap() - 3.2e-6).abs() < 1e-12);
    assert_eq!(pixels(&mut scan, 4, 0..3), expected(4, 0..3));
}

#[test]
fn alignment_images_are_left_out_and_units_guessed_aloud() {
    let scan = open("esrf_control.nx", None).unwrap();
    let info = scan.info();
    assert_eq!([Role::Projection, Role::Invalid].map(|role| info.count(role)), [3, 1]);
    let angles = info.projection_angles_deg();
    assert!((angles[1] - 60.0).abs() < 1e-9 && (angles[2] - 120.0).abs() < 1e-9, "{angles:?}");
    assert!(info.warnings.iter().any(|w| w.contains("radians")), "{:?}", info.warnings);
}

#[test]
fn damaged_copies_are_refused_or_read() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["virtual_part_0.h5", "virtual_part_1.h5", "dectris_data_000001.h5", "dectris_data_000002.h5"]
    {
        std::fs::copy(file(part), folder.path().join(part)).unwrap();
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for name in ["virtual.h5", "bliss.h5", "dectris_master.h5"] {
        let whole = std::fs::read(file(name)).unwrap();
        let path = folder.path().join(name);
        for _ in 0..30 {
            let mut content = whole.clone();
            for _ in 0..6 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = (random >> 8) as usize % content.len();
                content[at] = (random >> 40) as u8;
            }
            std::fs::write(&path, content).unwrap();
            for data in [None, Some("/alternating"), Some("/tiled"), Some("/nested")] {
                let options = ScanOptions { data: data.map(str::to_owned), ..ScanOptions::default() };
                let Ok(mut scan) = Scan::open(&path, &options) else { continue };
                let format = scan.info().format;
                // Extents of nonsense are honest where nothing was ever written.
                if format.bytes() > 1 << 20 {
                    continue;
                }
                let mut out = vec![0; format.bytes()];
                for frame in 0..scan.info().frames.len().min(8) {
                    if let Err(error) = scan.read(frame, 0..format.shape.rows, &mut out) {
                        assert!(error.to_string().contains(name), "{error}");
                    }
                }
            }
        }
    }
}
