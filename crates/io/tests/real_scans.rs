//! Scans as instruments wrote them, and as others repacked them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::error::Error;
use std::path::Path;

use beamstream_core::{ElementType, Role, Shape};
use beamstream_io::{Scan, ScanError, ScanKind, ScanOptions, list_datasets};
use beamstream_testkit::data;

fn open(path: &Path) -> Scan {
    Scan::open(path, &ScanOptions::default()).unwrap()
}

fn at_dataset(path: &Path, dataset: &str) -> Result<Scan, ScanError> {
    Scan::open(path, &ScanOptions { data: Some(dataset.to_owned()), ..ScanOptions::default() })
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

fn read_all(scan: &mut Scan) -> Vec<u8> {
    let format = scan.info().format;
    let mut frame = vec![0; format.bytes()];
    (0..scan.info().frames.len())
        .flat_map(|number| {
            scan.read(number, 0..format.shape.rows, &mut frame).unwrap();
            frame.clone()
        })
        .collect()
}

/// The array of an oracle, without its header.
fn npy(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[header..].to_vec()
}

#[test]
fn the_tooth_has_its_flats_darks_and_angles() {
    let Some(path) = data("tomo/aps_tooth/tooth.h5") else {
        return;
    };
    let mut scan = open(&path);
    let info = scan.info().clone();
    assert_eq!(
        (info.kind, info.format.element, info.format.shape),
        (ScanKind::DxChange, ElementType::F32, Shape::new(2, 640))
    );
    assert_eq!([Role::Dark, Role::Flat, Role::Projection].map(|role| info.count(role)), [10, 10, 181]);
    let angles = info.projection_angles_deg();
    assert!(angles[0].abs() < 1e-9 && (angles[180] - 179.0055).abs() < 1e-3 && info.warnings.is_empty());
    assert_eq!(info.metadata["measurement/sample/name"], "Tooth");
    // One row alone is the same as that row of the whole frame.
    let (mut whole, mut row) = (vec![0; info.format.bytes()], vec![0; 640 * 4]);
    scan.read(100, 0..2, &mut whole).unwrap();
    scan.read(100, 1..2, &mut row).unwrap();
    assert_eq!(whole[640 * 4..], row);
    assert!(matches!(scan.read(201, 0..2, &mut whole), Err(ScanError::OutOfRange { frames: 201, .. })));
}

#[test]
fn one_scan_in_two_files_is_one_scan() {
    let Some(nexus) = data("formats_derived/i13_nxtomo_bitshuffle_lz4.nxs") else {
        return;
    };
    let Some(exchange) = data("formats_derived/i13_dxchange_gzip_shuffle.h5") else {
        return;
    };
    let (mut nexus, mut exchange) = (open(&nexus), open(&exchange));
    assert_eq!((nexus.info().kind, exchange.info().kind), (ScanKind::NxTomo, ScanKind::DxChange));
    assert_eq!([Role::Dark, Role::Flat, Role::Projection].map(|role| nexus.info().count(role)), [2, 5, 91]);
    let format = nexus.info().format;
    let (mut one, mut two) = (vec![0; format.bytes()], vec![0; format.bytes()]);
    let projections = |scan: &Scan| -> Vec<usize> {
        let frames = &scan.info().frames;
        (0..frames.len()).filter(|&at| frames[at].role == Role::Projection).collect()
    };
    for (first, second) in projections(&nexus).into_iter().zip(projections(&exchange)) {
        nexus.read(first, 0..format.shape.rows, &mut one).unwrap();
        exchange.read(second, 0..format.shape.rows, &mut two).unwrap();
        assert_eq!(one, two);
    }
}

#[test]
fn every_filter_gives_the_pixels_or_its_name() {
    let Some(path) = data("formats_derived/crop_filters.h5") else {
        return;
    };
    let Some(oracle) = data("formats_derived/crop_rows60_76_oracle.npy") else {
        return;
    };
    let oracle = npy(&oracle);
    let listed = list_datasets(&path).unwrap();
    assert_eq!(listed.len(), 13);
    for dataset in listed {
        match at_dataset(&path, &dataset.path) {
            Ok(mut scan) => assert_eq!(read_all(&mut scan), oracle, "{}", dataset.path),
            Err(error) => {
                assert_eq!(dataset.path, "/blosc2");
                assert!(full_text(&error).contains("blosc2"), "{}", full_text(&error));
            }
        }
    }
}

#[test]
fn tiff_pages_of_either_byte_order_are_frames() {
    let Some(oracle) = data("formats_derived/crop_rows60_76_oracle.npy") else {
        return;
    };
    for name in ["formats_derived/crop_multipage_le.tif", "formats_derived/crop_bigtiff_be.tif"] {
        let Some(path) = data(name) else { return };
        assert_eq!(read_all(&mut open(&path)), npy(&oracle), "{name}");
    }
}

#[test]
fn float_flats_beside_integer_projections_make_all_frames_float() {
    let Some(folder) = data("tomo/dls_i13_24737") else {
        return;
    };
    let place = |name: &str| Some(folder.join(name).display().to_string());
    let options = ScanOptions {
        data: None,
        flats: place("flat_00001.tiff"),
        darks: place("dark_00001.tiff"),
        angles: place("angles_91_deg.txt"),
    };
    let mut scan = Scan::open(&folder.join("tiff"), &options).unwrap();
    let info = scan.info().clone();
    assert_eq!((info.kind, info.format.element), (ScanKind::Folder, ElementType::F32));
    assert_eq!(
        info.frames.iter().map(|f| f.role).take(3).collect::<Vec<_>>(),
        [Role::Dark, Role::Flat, Role::Projection]
    );
    let mean = |scan: &mut Scan, frame| {
        let mut bytes = vec![0; info.format.bytes()];
        scan.read(frame, 0..info.format.shape.rows, &mut bytes).unwrap();
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64
    };
    assert!((mean(&mut scan, 0) - 98.0).abs() < 1.0 && (mean(&mut scan, 1) - 37_195.0).abs() < 1.0);
    assert!((info.projection_angles_deg()[0] + 88.2).abs() < 1e-9);

    let all = ScanOptions { angles: place("angles_111_as_in_repo.txt"), ..options };
    let text = full_text(&Scan::open(&folder.join("tiff"), &all).unwrap_err());
    assert!(text.contains("111") && text.contains("91"), "{text}");
}

#[test]
fn links_to_other_files_are_followed_and_broken_ones_named() {
    let Some(path) = data("tomo/dls_k11_18014/k11-18014.nxs") else {
        return;
    };
    let info = open(&path).info().clone();
    assert_eq!([Role::Dark, Role::Flat, Role::Projection].map(|role| info.count(role)), [100, 100, 3001]);
    let angles = info.projection_angles_deg();
    assert!((angles[0] - 90.0).abs() < 0.01 && (angles[3000] - 270.0).abs() < 0.01);
    assert!(info.warnings.iter().any(|w| w.contains("gts_theta_value")), "{:?}", info.warnings);

    let Some(path) = data("tomo/dls_i13_24737/sister_24888_metadata_only.nxs") else {
        return;
    };
    let text = full_text(&Scan::open(&path, &ScanOptions::default()).unwrap_err());
    assert!(text.contains("sister_24888") && text.contains("pco1-24888.hdf"), "{text}");
}

#[test]
fn data_files_of_detectors_are_read_by_what_is_in_them() {
    let Some(folder) = data("detector_files/dectris_eiger2") else {
        return;
    };
    for entry in std::fs::read_dir(folder).unwrap() {
        let mut scan = open(&entry.unwrap().path());
        assert_eq!((scan.info().kind, scan.info().format.shape), (ScanKind::Hdf5, Shape::new(512, 1028)));
        assert!(read_all(&mut scan).iter().any(|&byte| byte != 0));
    }
}

#[test]
fn images_of_a_microscope_have_angles_and_pixels() {
    let Some(path) = data("tomo/xradia_txrm/txrm_test_chip_tomo.txrm") else {
        return;
    };
    let Some(oracle) = data("tomo/xradia_txrm/oracle_images.npy") else {
        return;
    };
    let mut scan = open(&path);
    let info = scan.info().clone();
    assert_eq!((info.kind, info.format.element), (ScanKind::Txrm, ElementType::U16));
    let angles = info.projection_angles_deg();
    assert!((angles[0] + 45.018).abs() < 1e-3 && (angles[6] - 44.986).abs() < 1e-3, "{angles:?}");
    assert_eq!(read_all(&mut scan), npy(&oracle));
}

#[test]
fn arrays_of_ome_zarr_have_the_pixels() {
    let Some(oracle) = data("formats_derived/crop_rows60_76_oracle.npy") else {
        return;
    };
    for name in ["crop_omezarr_0.4.zarr", "crop_omezarr_0.5.zarr"] {
        let Some(path) = data(&format!("formats_derived/{name}")) else { return };
        let mut scan = open(&path);
        assert_eq!(scan.info().kind, ScanKind::Zarr);
        assert_eq!(read_all(&mut scan), npy(&oracle), "{name}");
    }
}

#[test]
fn raw_pixels_are_read_by_a_layout() {
    let Some(oracle) = data("formats_derived/crop_rows60_76_oracle.npy") else {
        return;
    };
    for (name, layout) in [
        ("crop_raw_offset_1024_le.raw", "raw:16x160:u16:offset=1024"),
        ("crop_raw_offset_0_be.raw", "raw:16x160:u16be"),
    ] {
        let Some(path) = data(&format!("formats_derived/{name}")) else { return };
        let mut scan = at_dataset(&path, layout).unwrap();
        assert_eq!(scan.info().kind, ScanKind::Raw);
        assert_eq!(read_all(&mut scan), npy(&oracle), "{name}");
    }
}

/// Damaged files are refused with their name, or read; nothing panics.
fn open_damaged(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    match Scan::open(path, &ScanOptions::default()) {
        Err(error) => assert!(error.to_string().contains("damaged"), "{error}"),
        Ok(mut scan) => {
            let format = scan.info().format;
            let mut frame = vec![0; format.bytes()];
            for number in 0..scan.info().frames.len().min(4) {
                if let Err(error) = scan.read(number, 0..format.shape.rows, &mut frame) {
                    assert!(error.to_string().contains("damaged"), "{error}");
                }
            }
        }
    }
}

#[test]
fn damaged_files_are_refused_with_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged");
    for start in
        [&b""[..], b"hello\n", b"\x89HDF\r\n\x1a\n", b"II*\0", b"\x93NUMPY\x01\0\xff\xff", b"II+\0\x08\0\0\0"]
    {
        open_damaged(&path, start);
        open_damaged(&path, &[start, &[0xff; 4096]].concat());
        open_damaged(&path, &[start, &[0; 4096]].concat());
    }
    let names = [
        "formats_derived/i13_nxtomo_bitshuffle_lz4.nxs",
        "tomo/aps_tooth/tooth.h5",
        "formats_derived/crop_multipage_le.tif",
        "tomo/xradia_txrm/txrm_test_chip_tomo.txrm",
    ];
    for name in names {
        let Some(whole) = data(name) else { return };
        let whole = std::fs::read(whole).unwrap();
        for part in [2, 3, 50, 300] {
            open_damaged(&path, &whole[..whole.len() / part]);
        }
        // Metadata lie in the first and the last kilobytes; a fixed sequence of places and values.
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..300 {
            let mut content = whole.clone();
            for _ in 0..4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let near = (random >> 8) as usize % 12_000;
                let at = if random & 1 == 0 { near } else { content.len() - 1 - near };
                content[at] = (random >> 40) as u8;
            }
            open_damaged(&path, &content);
        }
    }
}
