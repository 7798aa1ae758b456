//! Simulated detector to volume: the whole path, held against the truth, and one test for each fault.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;
use std::thread::JoinHandle;

use beamstream::{Options, Plan, Report, load_line, registry};
use beamstream_sim::{
    Faults, FrameSource, Phantom, PhantomConfig, Protocol, ScanSource, Sent, Settings, SimError, Simulator,
    Stop,
};
use beamstream_testkit::{Array, data, phantom};

const SIZE: usize = 64;
const ANGLES: usize = 90;
const AXIS_PX: f64 = 30.25;

fn scan() -> PhantomConfig {
    PhantomConfig {
        size: SIZE,
        rows: 2,
        angles: ANGLES,
        flats: 3,
        darks: 2,
        axis_px: Some(AXIS_PX),
        ..Default::default()
    }
}

/// A detector in a thread of its own.
struct Detector {
    endpoint: String,
    stop: Stop,
    running: JoinHandle<Result<Sent, SimError>>,
}

impl Detector {
    fn start(source: Box<dyn FrameSource>, protocol: Protocol, faults: &str) -> Self {
        let settings = Settings {
            faults: faults.parse::<Faults>().unwrap(),
            wait_for_peer: true,
            ..Settings::new(protocol, "tcp://127.0.0.1:0".parse().unwrap())
        };
        let simulator = Simulator::open(source, settings).unwrap();
        let endpoint = simulator.endpoint().to_string();
        let stop = simulator.stop();
        let running = std::thread::spawn(move || simulator.run(|_frames| ()));
        Self { endpoint, stop, running }
    }

    fn phantom(protocol: Protocol, faults: &str) -> Self {
        Self::start(Box::new(Phantom::new(scan()).unwrap()), protocol, faults)
    }
}

fn run(line: &str) -> Report {
    let registry = registry();
    let graph = load_line(line, &[] as &[&str], &registry).unwrap_or_else(|error| panic!("{error}"));
    let options = Options::default().plan_options().unwrap();
    Plan::new(&graph, &registry, &options).unwrap_or_else(|error| panic!("{error}")).start().unwrap().wait()
}

/// Runs a live reconstruction of one scan into `folder` and waits for it.
fn live(detector: Detector, source: &str, recon: &str, folder: &Path) -> Report {
    let Detector { endpoint, stop, running } = detector;
    let out = folder.join("{series}.npy");
    let line = format!(
        "zmq_source endpoint=\"{endpoint}\" max_series=1 series_timeout_secs=5 {source} ! flat_field ! recon {recon} \
         ! npy_sink path=\"{}\"",
        out.display()
    );
    let report = run(&line);
    // A complete series needs no end message, so the last one may never be taken.
    stop.set();
    drop(running.join());
    report
}

/// The slices of the only volume in a folder.
fn volume(folder: &Path) -> Vec<Vec<f32>> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "npy"));
    assert_eq!(files.len(), 1, "{files:?}");
    let array = Array::read(&files[0]).unwrap();
    let values: Vec<f32> =
        array.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    values.chunks(array.shape[1] * array.shape[2]).map(<[f32]>::to_vec).collect()
}

/// Root mean square distance to the truth within the disc that every projection sees, over the truth's range.
fn distance_to_truth(slice: &[f32], z: f64) -> f64 {
    let truth = phantom::truth(SIZE, z);
    let middle = (SIZE as f64 - 1.0) / 2.0;
    let radius = AXIS_PX.min(SIZE as f64 - 1.0 - AXIS_PX) - 3.0;
    let inside = |at: usize| ((at / SIZE) as f64 - middle).hypot((at % SIZE) as f64 - middle) < radius;
    let (mut sum, mut count, mut low, mut high) = (0.0, 0.0, f32::MAX, f32::MIN);
    for at in (0..slice.len()).filter(|at| inside(*at)) {
        sum += f64::from(slice[at] - truth[at]).powi(2);
        count += 1.0;
        (low, high) = (low.min(truth[at]), high.max(truth[at]));
    }
    (sum / count).sqrt() / f64::from(high - low)
}

fn check_against_truth(volume: &[Vec<f32>]) {
    assert_eq!(volume.len(), 2);
    for (slice, z) in volume.iter().zip(phantom::heights(2)) {
        let distance = distance_to_truth(slice, z);
        // Direct filtered backprojection in double precision comes to 0.055 on this small phantom.
        assert!(distance < 0.075, "the slice at height {z} is {distance} away from the truth");
    }
}

#[test]
fn every_protocol_ends_in_the_true_volume() {
    for (protocol, source) in [
        (Protocol::DectrisV1, ""),
        (Protocol::DectrisV2, ""),
        (Protocol::Array, ""),
        (Protocol::Concert, "series_roles=[dark, flat, projection] angles={start_deg: 0, step_deg: 2}"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let report = live(Detector::phantom(protocol, ""), source, "rotation_axis=30.25", folder.path());
        assert_eq!(report.exit_code(), 0, "{protocol:?}: {:?} {:?}", report.errors, report.warnings);
        check_against_truth(&volume(folder.path()));
    }
}

#[test]
fn live_equals_offline_to_the_last_bit() {
    for method in ["fourier", "fbp"] {
        let recon = format!("rotation_axis=30.25 method={method}");
        let folders = [0, 1, 2].map(|_| tempfile::tempdir().unwrap());
        live(Detector::phantom(Protocol::DectrisV2, ""), "", &recon, folders[0].path());
        live(
            Detector::phantom(Protocol::DectrisV1, "swap=3,17,40,60;late=25:0.3"),
            "",
            &recon,
            folders[1].path(),
        );
        let file = tempfile::tempdir().unwrap();
        let path = file.path().join("scan.nxs");
        let stop = Stop::default();
        beamstream_sim::write_nxtomo(&path, &Phantom::new(scan()).unwrap(), false, &stop, |_| ()).unwrap();
        let out = folders[2].path().join("volume.npy");
        let line = format!(
            "scan_source path=\"{}\" ! flat_field ! recon {recon} ! npy_sink path=\"{}\"",
            path.display(),
            out.display()
        );
        assert_eq!(run(&line).exit_code(), 0);
        let [in_order, disordered, offline] = folders.map(|folder| volume(folder.path()));
        assert!(in_order == offline, "{method}: live and offline differ");
        assert!(in_order == disordered, "{method}: the order of arrival changed bits");
    }
}

/// The counts of the projections' series: expected, received, processed, duplicate, rejected, lost.
fn counts(faults: &str) -> ([u64; 6], Report) {
    let folder = tempfile::tempdir().unwrap();
    let report =
        live(Detector::phantom(Protocol::DectrisV1, faults), "", "rotation_axis=30.25", folder.path());
    let series =
        report.series.iter().find(|series| series.id == 3).unwrap_or_else(|| panic!("{:?}", report.series));
    let frames = &series.frames;
    assert_eq!(
        frames.received,
        frames.processed + frames.duplicate + frames.late + frames.rejected,
        "{frames:?}"
    );
    let counted = [
        frames.expected.unwrap_or(0),
        frames.received,
        frames.processed,
        frames.duplicate,
        frames.rejected,
        frames.lost,
    ];
    (counted, report)
}

#[test]
fn lost_frames_are_named_and_the_volume_still_comes() {
    let (counted, report) = counts("lose=5,6,40");
    assert_eq!(counted, [90, 87, 87, 0, 0, 3]);
    let series = report.series.iter().find(|series| series.id == 3).unwrap();
    assert_eq!(series.frames.lost_ranges, [[5, 6], [40, 40]]);
    assert_eq!(report.exit_code(), 3);
}

#[test]
fn doubled_frames_are_used_once() {
    let (counted, report) = counts("double=5,50");
    assert_eq!((counted, report.exit_code()), ([90, 92, 90, 2, 0, 0], 0));
}

#[test]
fn swapped_frames_are_no_fault() {
    let (counted, report) = counts("swap=5,50");
    assert_eq!((counted, report.exit_code()), ([90, 90, 90, 0, 0, 0], 0));
}

#[test]
fn frames_of_a_wrong_shape_are_rejected_alone() {
    let (counted, report) = counts("wrong-shape=7");
    assert_eq!((counted, report.exit_code()), ([90, 90, 89, 0, 1, 0], 3));
}

#[test]
fn truncated_and_corrupt_frames_are_rejected_alone() {
    for fault in ["truncate=7", "corrupt=7"] {
        let (counted, report) = counts(fault);
        assert_eq!((counted, report.exit_code()), ([90, 90, 89, 0, 1, 0], 3), "{fault}");
    }
}

#[test]
fn a_missing_end_is_not_missed() {
    let (counted, report) = counts("no-end");
    assert_eq!((counted, report.exit_code()), ([90, 90, 90, 0, 0, 0], 0));
}

#[test]
fn a_disconnection_loses_at_most_what_was_under_way() {
    let (counted, report) = counts("disconnect=50");
    let [expected, received, processed, _, _, lost] = counted;
    assert_eq!((expected, received, processed + lost), (90, processed, 90), "{:?}", report.warnings);
}

#[test]
fn the_axis_of_real_scans_is_found() {
    let (Some(tooth), Some(i13)) =
        (data("tomo/aps_tooth/tooth.h5"), data("formats_derived/i13_nxtomo_bitshuffle_lz4.nxs"))
    else {
        return;
    };
    for (path, expected) in [(tooth, 295.75), (i13, 85.75)] {
        let line = format!("scan_source path=\"{}\" ! flat_field ! recon ! null_sink", path.display());
        let report = run(&line);
        let found = report.series[0].rotation_axis_px.unwrap();
        assert!((found - expected).abs() < 0.3, "{}: found {found}, expected {expected}", path.display());
    }
}

#[test]
fn a_real_scan_is_replayed_live() {
    let Some(path) = data("formats_derived/i13_nxtomo_bitshuffle_lz4.nxs") else {
        return;
    };
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let source = ScanSource::open(&path).unwrap();
    let report = live(
        Detector::start(Box::new(source), Protocol::DectrisV2, ""),
        "",
        "rotation_axis=85.75",
        folders[0].path(),
    );
    assert_eq!(report.exit_code(), 0, "{:?} {:?}", report.errors, report.warnings);
    let out = folders[1].path().join("volume.npy");
    let line = format!(
        "scan_source path=\"{}\" ! flat_field ! recon rotation_axis=85.75 ! npy_sink path=\"{}\"",
        path.display(),
        out.display()
    );
    run(&line);
    let [live, offline] = folders.map(|folder| volume(folder.path()));
    assert_eq!(live.len(), 135);
    let most = offline.iter().flatten().fold(0.0_f32, |most, v| most.max(v.abs()));
    let off = live
        .iter()
        .flatten()
        .zip(offline.iter().flatten())
        .fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(off < 1e-4 * most, "live and offline differ by {off} of {most}");
}
