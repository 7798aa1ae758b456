//! On a small scan in TIFF files, written here.

use std::fs::File;
use std::path::PathBuf;

use beamstream_engine::ExitCode;
use beamstream_testkit::SimDevice;
use serde_json::Value;
use tempfile::TempDir;
use tiff::encoder::{TiffEncoder, colortype::Gray16};

use super::*;
use crate::registry;

const ROWS: usize = 40;
const COLUMNS: usize = 24;
const ANGLES: usize = 31;

/// Counts of a pixel by row and column.
type Counts<'a> = &'a dyn Fn(usize, usize) -> u16;

/// A scan of a rod of 6 columns in the middle of all rows.
struct Small {
    folder: TempDir,
}

impl Small {
    fn new() -> Self {
        Self::of_rows(ROWS)
    }

    fn of_rows(rows: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The beam gets brighter downwards, so that every row needs its own flats.
        let beam = |row: usize| 10_000 + 500 * (row % ROWS) as u16;
        let rod = |row: usize, column: usize| {
            if (9..15).contains(&column) { beam(row) / 5 * 2 } else { beam(row) }
        };
        let images: [(&str, usize, Counts<'_>); 3] = [
            ("data.tif", ANGLES, &rod),
            ("flats.tif", 2, &|row, _| beam(row)),
            ("darks.tif", 2, &|_, _| 100),
        ];
        for (name, count, counts) in images {
            let mut file = TiffEncoder::new(File::create(folder.path().join(name)).unwrap()).unwrap();
            let image: Vec<u16> = (0..rows * COLUMNS).map(|at| counts(at / COLUMNS, at % COLUMNS)).collect();
            for _ in 0..count {
                file.write_image::<Gray16>(COLUMNS as u32, rows as u32, &image).unwrap();
            }
        }
        // Both ends of half a turn, so that there are opposite projections.
        let angles: Vec<String> = (0..ANGLES).map(|at| format!("{}", 180 * at / (ANGLES - 1))).collect();
        std::fs::write(folder.path().join("angles.txt"), angles.join("\n")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self, out: &str) -> ReconOptions {
        let place = |name: &str| Some(self.path(name).to_string_lossy().into_owned());
        ReconOptions {
            places: ScanOptions {
                data: None,
                flats: place("flats.tif"),
                darks: place("darks.tif"),
                angles: place("angles.txt"),
            },
            rotation_axis: RotationAxisChoice::Px(11.5),
            ..ReconOptions::new(self.path("data.tif"), self.path(out))
        }
    }
}

fn refusal(options: &ReconOptions) -> String {
    match prepare(options) {
        Ok(_) => panic!("not refused"),
        Err(error) => error.full_text(),
    }
}

fn prepare(options: &ReconOptions) -> Result<PreparedRecon, Error> {
    prepare_recon(options, &Options::default(), &registry())
}

#[test]
fn options_become_parameters() {
    let small = Small::new();
    let options = ReconOptions {
        rows: Some("4:20".parse().unwrap()),
        columns: Some("2:22".parse().unwrap()),
        bin: 2,
        filter: Filter::Hann,
        padding: Padding::Edge,
        element: ElementType::U16,
        range: Some(OutputRange::Values([0.0, 0.5])),
        ..small.options("v.zarr")
    };
    let prepared = prepare(&options).unwrap();
    assert_eq!((prepared.shape, prepared.passes), ([8, 10, 10], 1));
    let parameter = |node: &str, key: &str| prepared.graph.node(node).unwrap().parameters[key].clone();
    assert_eq!(parameter("scan", "rows"), "4:20");
    assert_eq!(parameter("scan", "columns"), "2:22");
    assert_eq!(parameter("scan", "bin"), 2);
    assert_eq!(parameter("volume", "filter"), "hann");
    assert_eq!(parameter("volume", "pad"), "edge");
    assert_eq!(parameter("volume", "rotation_axis"), 11.5);
    assert_eq!(parameter("convert", "range"), "0:0.5");
    assert_eq!(prepared.graph.node("output").unwrap().kind, "zarr_sink");
}

#[test]
fn what_does_not_fit_the_scan_is_named() {
    let small = Small::new();
    let rows = ReconOptions { rows: Some("2:41".parse().unwrap()), ..small.options("v.h5") };
    let text = refusal(&rows);
    assert!(text.contains("--rows") && text.contains("2:41") && text.contains("40"), "{text}");
    let axis = ReconOptions { rotation_axis: RotationAxisChoice::Px(5000.0), ..small.options("v.h5") };
    assert!(refusal(&axis).contains("5000"));
    let ending = small.options("v.docx");
    assert!(refusal(&ending).contains("docx"));
    let integers = ReconOptions { element: ElementType::U8, ..small.options("v.h5") };
    assert!(refusal(&integers).contains("--range"));
    let bin = ReconOptions { bin: 50, ..small.options("v.h5") };
    assert!(refusal(&bin).contains("--bin"));
}

#[test]
fn outputs_are_not_replaced_unasked() {
    let small = Small::new();
    std::fs::write(small.path("v.h5"), "precious").unwrap();
    let text = refusal(&small.options("v.h5"));
    assert!(text.contains("v.h5") && text.contains("--overwrite"), "{text}");
}

#[test]
fn short_memory_means_passes() {
    let small = Small::new();
    let options = small.options("v.h5");
    let whole = prepare(&options).unwrap().plan.explain().memory.host_bytes.unwrap();
    let run = Options { memory_bytes: Some(whole - 1), ..Options::default() };
    let prepared = prepare_recon(&options, &run, &registry()).unwrap();
    assert!(prepared.passes > 1);
    assert!(prepared.plan.explain().memory.host_bytes.unwrap() < whole);
    let run = Options { memory_bytes: Some(1000), ..Options::default() };
    let Err(error) = prepare_recon(&options, &run, &registry()) else { panic!("1000 bytes are not enough") };
    assert!(error.full_text().contains("--memory"), "{}", error.full_text());
}

#[test]
fn passes_give_the_volume_of_one() {
    let small = Small::new();
    let volume = |out: &str, memory_bytes: Option<u64>| -> (usize, Vec<f32>) {
        let run = Options { memory_bytes, ..Options::default() };
        let prepared = prepare_recon(&small.options(out), &run, &registry()).unwrap();
        let passes = prepared.passes;
        assert_eq!(prepared.plan.start().unwrap().wait().exit, ExitCode::Done);
        let bytes = std::fs::read(small.path(out)).unwrap();
        (passes, bytes.chunks_exact(4).map(|voxel| f32::from_le_bytes(voxel.try_into().unwrap())).collect())
    };
    let need = prepare(&small.options("v.raw")).unwrap().plan.explain().memory.host_bytes.unwrap();
    let (one, whole) = volume("one.raw", None);
    let (several, parts) = volume("several.raw", Some(need * 3 / 4));
    assert!(one == 1 && several > 1, "{several} passes");
    assert_eq!((whole.len(), parts.len()), (ROWS * COLUMNS * COLUMNS, ROWS * COLUMNS * COLUMNS));
    let largest = whole.iter().fold(0.0, |largest: f32, voxel| largest.max(voxel.abs()));
    let differ =
        whole.iter().zip(&parts).filter(|(one, other)| (*one - *other).abs() > 1e-3 * largest).count();
    assert_eq!(differ, 0, "of {} voxels", whole.len());
}

/// Reconstructs on a simulated device with so much memory; gives the number of passes, the memory
/// planned, and the voxels.
fn on_device(small: &Small, out: &str, memory_bytes: u64) -> (usize, u64, Vec<f32>) {
    let device = SimDevice::new(0, memory_bytes);
    let run = Options { device: crate::Device::Cpu, ..Options::default() };
    let options = PlanOptions { devices: vec![device.clone()], ..run.plan_options().unwrap() };
    let prepared = prepare_with(&small.options(out), &run, &options, &registry()).unwrap();
    let passes = prepared.passes;
    let planned = prepared.plan.explain().memory.device_bytes.unwrap();
    let report = prepared.plan.start().unwrap().wait();
    assert_eq!(report.exit, ExitCode::Done, "{:?}", report.errors);
    assert_eq!(device.misuses(), Vec::<String>::new());
    (passes, planned, voxels(&small.path(out)))
}

fn voxels(path: &std::path::Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks_exact(4).map(|voxel| f32::from_le_bytes(voxel.try_into().unwrap())).collect()
}

#[test]
fn a_device_takes_tall_scans_in_bands_that_fit_it() {
    const TALL: usize = 300;
    let small = Small::of_rows(TALL);
    let run = Options { device: crate::Device::Cpu, ..Options::default() };
    let prepared = prepare_recon(&small.options("cpu.raw"), &run, &registry()).unwrap();
    assert_eq!(prepared.passes, 1);
    assert_eq!(prepared.plan.start().unwrap().wait().exit, ExitCode::Done);
    let expected = voxels(&small.path("cpu.raw"));
    assert_eq!(expected.len(), TALL * COLUMNS * COLUMNS);
    let largest = expected.iter().fold(0.0, |largest: f32, voxel| largest.max(voxel.abs()));
    let (passes, planned, large) = on_device(&small, "large.raw", 1 << 30);
    assert_eq!(passes, 5, "64 rows in a band where there is room");
    let (passes, _, little) = on_device(&small, "little.raw", planned / 2);
    assert!(passes > 5, "{passes} passes");
    for (out, found) in [("large", large), ("little", little)] {
        assert_eq!(found.len(), expected.len());
        let differ =
            expected.iter().zip(&found).filter(|(one, other)| (*one - *other).abs() > 1e-3 * largest).count();
        assert_eq!(differ, 0, "{out}");
    }
}

#[test]
fn a_volume_comes_out() {
    let small = Small::new();
    let options = ReconOptions { rotation_axis: RotationAxisChoice::Auto, ..small.options("v.npy") };
    let prepared = prepare(&options).unwrap();
    let axis = prepared.axis.unwrap();
    assert!((axis.rotation_axis_px - 11.5).abs() < 0.5, "{axis:?}");
    let report = prepared.plan.start().unwrap().wait();
    assert_eq!(report.exit, ExitCode::Done, "{:?}", report.errors);
    let voxels = ROWS * COLUMNS * COLUMNS * ElementType::F32.size();
    assert!(small.path("v.npy").metadata().unwrap().len() > voxels as u64);
}

#[test]
fn percentiles_are_taken_from_slices() {
    let small = Small::new();
    let options = ReconOptions {
        element: ElementType::U8,
        range: Some(OutputRange::Percentiles([1.0, 99.0])),
        ..small.options("v.tif")
    };
    let prepared = prepare(&options).unwrap();
    let [low, high] = prepared.levels.unwrap();
    // The rod attenuates by about ln(9900 / 3900) over its 6 columns; being as wide from everywhere, it is denser within.
    let rod = (9900.0_f32 / 3900.0).ln() / 6.0;
    assert!(low < 0.2 * rod && high > 0.7 * rod && high < 3.0 * rod, "{low} {high}, rod {rod}");
    assert!(matches!(prepared.graph.node("convert").unwrap().parameters["range"], Value::String(_)));
}
