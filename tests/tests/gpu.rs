//! Pipelines on a GPU against the same pipelines on the CPU, and what they need. Without a GPU they say that they
//! were skipped; `cargo xtask gpu-test` carries them to a machine that has one.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use beamstream::{
    Device, ElementType, Filter, Method, Options, OutputRange, Padding, Plan, PreparedRecon, ReconOptions,
    Report, RotationAxisChoice, ScanOptions, load_line, prepare_recon, registry,
};
use beamstream_testkit::{Array, data};
use tempfile::TempDir;

/// Root mean square by which a volume may differ from the CPU's, over its range: what `crates/ops` states for
/// reconstruction.
const TOLERANCE: f64 = 1e-4;
const GIB: u64 = 1 << 30;

fn on(device: Device) -> Options {
    Options { device, overwrite: true, ..Options::default() }
}

/// The first GPU; `None`, and a line that says why, if there is none that can be used.
fn gpu() -> Option<Options> {
    let options = on(Device::Cuda(vec![0]));
    match options.plan_options() {
        Ok(_) => Some(options),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn run(line: &str, options: &Options) -> Report {
    let registry = registry();
    let graph = load_line(line, &[] as &[&str], &registry).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan::new(&graph, &registry, &options.plan_options().unwrap());
    let report = plan.unwrap_or_else(|error| panic!("{error}")).start().unwrap().wait();
    assert_eq!(report.exit_code(), 0, "{:?} {:?}", report.errors, report.warnings);
    report
}

/// All voxels of a `.npy` volume.
fn voxels(path: &Path) -> Vec<f32> {
    let array = Array::read(path).unwrap();
    match array.bytes.len() / array.shape.iter().product::<usize>() {
        1 => array.bytes.iter().map(|&byte| f32::from(byte)).collect(),
        2 => array.bytes.chunks_exact(2).map(|b| f32::from(u16::from_le_bytes([b[0], b[1]]))).collect(),
        _ => array.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// Root mean square of the difference over the range of `reference`.
#[track_caller]
fn distance(volume: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(volume.len(), reference.len());
    assert!(volume.iter().all(|voxel| voxel.is_finite()), "a voxel has no value");
    let low = reference.iter().copied().fold(f32::INFINITY, f32::min);
    let high = reference.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let square: f64 = volume.iter().zip(reference).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    (square / reference.len() as f64).sqrt() / f64::from(high - low)
}

/// The volume of a line of nodes on a device.
fn volume(folder: &TempDir, line: &str, options: &Options) -> Vec<f32> {
    let path = folder.path().join("volume.npy");
    run(&format!("{line} ! npy_sink path=\"{}\"", path.display()), options);
    voxels(&path)
}

#[test]
fn a_gpu_gives_the_volume_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (scan, odd) =
        ("phantom_source size=128 rows=5 angles=180", "phantom_source size=97 rows=3 angles=111 noise=2000");
    for line in [
        format!("{scan} ! flat_field ! recon rotation_axis=63.5"),
        format!(
            "{scan} rotation_axis=60.25 ! flat_field ! recon rotation_axis=60.25 filter=shepp-logan pad=edge"
        ),
        format!("{scan} ! flat_field ! recon rotation_axis=63.5 method=fbp"),
        format!("{scan} ! flat_field ! recon rotation_axis=63.5 rows=\"1:4\" batch=7"),
        format!("{odd} ! flat_field ! recon rotation_axis=48.0"),
        format!("{odd} span_deg=360 ! flat_field ! recon rotation_axis=48.0 method=fbp filter=hann"),
        format!("{scan} ! flat_field ! recon"),
        "phantom_source size=2048 rows=2 angles=300 ! flat_field ! recon rotation_axis=1023.5".to_owned(),
    ] {
        let [ours, reference] = [&gpu, &on(Device::Cpu)].map(|options| volume(&folder, &line, options));
        let distance = distance(&ours, &reference);
        assert!(distance <= TOLERANCE, "{line}: {distance}");
    }
}

#[test]
fn fewer_bits_differ_by_their_last() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    for element in ["u8", "u16"] {
        let line = format!(
            "phantom_source size=96 rows=2 angles=120 ! flat_field ! recon rotation_axis=47.5 ! \
             rescale dtype={element} range=\"-0.01:0.04\""
        );
        let [ours, reference] = [&gpu, &on(Device::Cpu)].map(|options| volume(&folder, &line, options));
        assert!(distance(&ours, &reference) <= 3.0 * TOLERANCE.max(1.0 / 255.0 / 12_f64.sqrt()), "{element}");
    }
}

#[test]
fn a_gpu_repeats_itself_bit_for_bit() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let line = "phantom_source size=160 rows=70 angles=200 ! flat_field ! recon rotation_axis=79.5";
    let [one, other] = [0, 1].map(|_| volume(&folder, line, &gpu));
    assert!(one.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits()));
}

#[test]
fn the_report_tells_of_the_gpu() {
    let Some(gpu) = gpu() else { return };
    let line = "phantom_source size=128 rows=8 angles=90 ! flat_field ! recon rotation_axis=63.5 ! null_sink";
    let report = run(line, &gpu);
    let device = |kind: &str| report.nodes.iter().find(|node| node.kind == kind).unwrap().device.clone();
    assert_eq!([device("flat_field"), device("recon")], ["cuda:0", "cuda:0"]);
    assert_eq!([device("phantom_source"), device("null_sink")], ["cpu", "cpu"]);
    assert!(report.memory.device_bytes > 0 && report.memory.pinned_bytes > 0, "{:?}", report.memory);
    assert!(report.series[0].bytes.copied >= report.series[0].bytes.taken_in, "{:?}", report.series[0].bytes);
    // The meter ticks every tenth of a second: a short run may fall between.
    assert!(report.energy_joules.is_none_or(|joules| joules >= 0.0));
}

/// A recorded scan and its axis.
fn real_scans() -> Vec<ReconOptions> {
    let with_axis = |path: PathBuf, axis_px: f64| ReconOptions {
        rotation_axis: RotationAxisChoice::Px(axis_px),
        ..ReconOptions::new(path, "")
    };
    let mut scans = Vec::new();
    scans.extend(data("tomo/aps_tooth/tooth.h5").map(|path| with_axis(path, 295.75)));
    scans.extend(data("tomo/dls_i13_24737").map(|folder| ReconOptions {
        places: ScanOptions {
            data: None,
            flats: Some(folder.join("flat_00001.tiff").to_string_lossy().into_owned()),
            darks: Some(folder.join("dark_00001.tiff").to_string_lossy().into_owned()),
            angles: Some(folder.join("angles_91_deg.txt").to_string_lossy().into_owned()),
        },
        ..with_axis(folder.join("tiff"), 85.75)
    }));
    scans
}

fn prepare(options: &ReconOptions, run: &Options) -> PreparedRecon {
    prepare_recon(options, run, &registry()).unwrap_or_else(|error| panic!("{}", error.full_text()))
}

#[test]
fn recorded_scans_come_out_alike() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    for scan in real_scans() {
        for (method, filter, padding) in
            [(Method::Fourier, Filter::Ramp, Padding::Zero), (Method::Fbp, Filter::Cosine, Padding::Edge)]
        {
            let [ours, reference] = [&gpu, &on(Device::Cpu)].map(|run| {
                let out = folder.path().join("volume.npy");
                let prepared =
                    prepare(&ReconOptions { out: out.clone(), method, filter, padding, ..scan.clone() }, run);
                let report = prepared.plan.start().unwrap().wait();
                assert_eq!(report.exit_code(), 0, "{:?}", report.errors);
                voxels(&out)
            });
            let distance = distance(&ours, &reference);
            assert!(distance <= TOLERANCE, "{} by {method}: {distance}", scan.scan.display());
        }
    }
}

#[test]
fn percentiles_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    for scan in real_scans() {
        let range = Some(OutputRange::Percentiles([1.0, 99.0]));
        let options =
            ReconOptions { out: folder.path().join("v.h5"), element: ElementType::U16, range, ..scan };
        let [ours, reference] = [&gpu, &on(Device::Cpu)].map(|run| prepare(&options, run).levels.unwrap());
        let width = reference[1] - reference[0];
        for (ours, reference) in ours.iter().zip(reference) {
            assert!((ours - reference).abs() < 1e-3 * width, "{ours} and {reference}");
        }
    }
}

/// A scan that takes no room: a file of zeros, most of them never written.
fn large_scan(folder: &Path) -> ReconOptions {
    let (angles, rows, columns) = (1800_u64, 2048_u64, 2048_u64);
    let shape =
        format!("{{'descr': '<u2', 'fortran_order': False, 'shape': ({angles}, {rows}, {columns}), }}");
    let header = format!("{shape:<117}\n");
    let path = folder.join("scan.npy");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"\x93NUMPY\x01\x00").unwrap();
    file.write_all(&u16::try_from(header.len()).unwrap().to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(10 + header.len() as u64 + angles * rows * columns * 2).unwrap();
    let table: Vec<String> = (0..angles).map(|at| format!("{}", at as f64 * 0.1)).collect();
    std::fs::write(folder.join("angles.txt"), table.join("\n")).unwrap();
    ReconOptions {
        places: ScanOptions {
            angles: Some(folder.join("angles.txt").to_string_lossy().into_owned()),
            ..ScanOptions::default()
        },
        rotation_axis: RotationAxisChoice::Px(1023.5),
        ..ReconOptions::new(path, folder.join("volume.h5"))
    }
}

#[test]
fn small_gpus_take_more_passes_and_stay_within_their_memory() {
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let scan = large_scan(folder.path());
    let mut earlier = usize::MAX;
    for gib in [4, 24, 80] {
        let run = Options { memory_bytes: Some(gib * GIB), ..gpu.clone() };
        let prepared = prepare(&scan, &run);
        let memory = prepared.plan.explain().memory;
        assert!(memory.device_bytes.unwrap() <= gib * GIB, "{gib} GiB: {memory:?}");
        assert!(
            memory.host_bytes.unwrap() + memory.pinned_bytes.unwrap() <= gib * GIB,
            "{gib} GiB: {memory:?}"
        );
        assert!(prepared.passes > 1 && prepared.passes <= earlier, "{gib} GiB: {} passes", prepared.passes);
        earlier = prepared.passes;
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_in_one_line() {
    let Err(error) = on(Device::Cuda(vec![63])).plan_options() else { panic!("there is no such device") };
    let text = error.full_text();
    assert!(text.contains("cuda:63") && !text.contains('\n'), "{text}");
    assert_eq!(error.exit_code().code(), 2);
}
