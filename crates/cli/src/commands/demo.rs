//! `demo`: a simulated detector, ZeroMQ, live reconstruction, a page, files.

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use beamstream::{ExitCode, Graph, Options, Plan, Registry, Report, Scan, find_axis, registry, show_bytes};
use beamstream_sim::{
    FrameSource, Phantom, PhantomConfig, Protocol, ScanSource, Sent, Settings, SimError, Simulator, Stop,
};
use serde_json::{Value, json};

use crate::args::{DemoArgs, ResultArgs};
use crate::console::Console;
use crate::drive::{Drive, drive};
use crate::failure::Failure;
use crate::figures::{StreamFigures, tell_series};
use crate::side_files;
use crate::view::Show;

/// How often figures are told where no bar shows them.
const FIGURES_EVERY: Duration = Duration::from_secs(2);
/// Detector rows of the phantom: this part of its columns.
const COLUMNS_PER_ROW: usize = 8;
/// Most detector rows of the phantom.
const MAX_ROWS: usize = 128;
/// Projections that are added in one go: few, so that the first slice is seen soon.
const BATCH: usize = 8;

pub(super) fn demo(args: &DemoArgs, console: &Console) -> Result<u8, Failure> {
    let results = ResultArgs { report: None, trace: args.trace.clone(), overwrite: false };
    let scan_file = args.scan.as_deref().map(|scan| ("the scan", scan));
    let others: Vec<(&str, &Path)> = scan_file.into_iter().collect();
    side_files::check(&results, &others)?;
    let registry = registry();
    let options = args.compute.options(true, args.trace.as_deref());
    let scan = scan(args, &options)?;
    let detector = Detector::start(scan.frames, args)?;
    let volume = args.out.join("volume.h5");
    let graph = graph(&detector.endpoint, scan.axis_px, &volume, !args.headless, &registry)?;
    let plan = Plan::new(&graph, &registry, &options.plan_options()?)?;
    let rate = detector.rate_hz;
    console.say(&format!("{}: {} frames at {rate:.1} frames/s", scan.name, detector.frames));
    let figures = StreamFigures::telling(console, FIGURES_EVERY);
    let report_path = args.out.join("report.json");
    let how = Drive { report: Some(&report_path), show: Show::when(!args.headless, args.view) };
    let driven = drive(plan, console, &figures, &how)?;
    if let Err(error) = detector.finish() {
        console.warn(&format!("the simulated detector: {error}"));
    }
    tell(&driven.report, &volume, &report_path, console);
    driven.stay_on_show(console);
    Ok(driven.report.exit_code())
}

/// What the simulated detector sends.
struct DemoScan {
    name: String,
    frames: Box<dyn FrameSource>,
    /// Rotation axis in detector columns, where it is known.
    axis_px: Option<f64>,
}

fn scan(args: &DemoArgs, options: &Options) -> Result<DemoScan, Failure> {
    let Some(path) = &args.scan else {
        let size = usize::from(args.size);
        let config = PhantomConfig {
            size,
            rows: (size / COLUMNS_PER_ROW).clamp(1, MAX_ROWS),
            angles: args.angles as usize,
            ..Default::default()
        };
        let axis_px = Some(config.rotation_axis_px());
        let name = format!("phantom of {} rows x {size} columns", config.rows);
        let phantom = Phantom::new(config).map_err(|error| Failure::usage(error.to_string()))?;
        return Ok(DemoScan { name, frames: Box::new(phantom), axis_px });
    };
    let mut recorded =
        Scan::open(path, &beamstream::ScanOptions::default()).map_err(beamstream::Error::from)?;
    let axis = find_axis(&mut recorded, None, options)?;
    let axis_px = axis.filter(beamstream::AxisFinding::is_trustworthy).map(|axis| axis.rotation_axis_px);
    let frames = ScanSource::open(path).map_err(beamstream::Error::from)?;
    Ok(DemoScan { name: path.display().to_string(), frames: Box::new(frames), axis_px })
}

/// `zmq_source ! flat_field ! recon ! [view, hdf5_sink]`
fn graph(
    endpoint: &str,
    axis_px: Option<f64>,
    volume: &Path,
    with_view: bool,
    registry: &Registry,
) -> Result<Graph, Failure> {
    let axis = axis_px.map_or_else(|| Value::from("auto"), Value::from);
    let path = volume.to_string_lossy().replace("${", "$${");
    let mut nodes = json!({
        "detector": { "kind": "zmq_source", "endpoint": endpoint, "protocol": Protocol::DectrisV2.name(), "max_series": 1 },
        "correct": { "kind": "flat_field", "input": "detector" },
        "volume": { "kind": "recon", "input": "correct", "rotation_axis": axis, "batch": BATCH },
        "keep": { "kind": "hdf5_sink", "input": "volume", "path": path },
    });
    if with_view {
        nodes["eyes"] = json!({ "kind": "view", "input": { "from": "volume", "when_full": "latest" } });
    }
    let file = json!({ "version": 1, "nodes": nodes }).to_string();
    let graph = Graph::parse("demo", &file, registry, &|_no_variables| None);
    Ok(graph.map_err(beamstream::Error::from)?)
}

/// The simulated detector, in a thread of its own; it is stopped when this is dropped.
struct Detector {
    endpoint: String,
    frames: u64,
    rate_hz: f64,
    stop: Stop,
    thread: Option<JoinHandle<Result<Sent, SimError>>>,
}

impl Detector {
    fn start(source: Box<dyn FrameSource>, args: &DemoArgs) -> Result<Self, Failure> {
        let failure = |error: SimError| Failure::usage(format!("the simulated detector: {error}"));
        let rate_hz = args.rate.unwrap_or_else(|| source.frames().len().max(1) as f64 / args.seconds);
        // Any free port of this machine.
        let endpoint = "tcp://127.0.0.1:0".parse().map_err(|error| Failure::usage(format!("{error}")))?;
        let settings = Settings {
            rate_hz: Some(rate_hz),
            wait_for_peer: true,
            ..Settings::new(Protocol::DectrisV2, endpoint)
        };
        let simulator = Simulator::open(source, settings).map_err(failure)?;
        let (endpoint, stop, frames) =
            (simulator.endpoint().to_string(), simulator.stop(), simulator.frames_per_pass());
        let thread = std::thread::Builder::new()
            .name("detector".to_owned())
            .spawn(|| simulator.run(|_frames| ()))
            .map_err(|error| Failure::system("the simulated detector cannot be started", &error))?;
        Ok(Self { endpoint, frames, rate_hz, stop, thread: Some(thread) })
    }

    /// Stops sending, if the run has ended before.
    fn finish(mut self) -> Result<(), SimError> {
        self.stop.set();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) if !matches!(error, SimError::Stopped(_)) => Err(error),
            // A panic has been told by its own message.
            _ => Ok(()),
        }
    }
}

impl Drop for Detector {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // Whoever drops it has an error of its own to tell.
            drop(thread.join());
        }
    }
}

fn tell(report: &Report, volume: &Path, report_path: &Path, console: &Console) {
    tell_series(report, console);
    let whole = matches!(report.exit, ExitCode::Done | ExitCode::Incomplete);
    if let Some(bytes) = std::fs::metadata(volume).ok().map(|file| file.len()).filter(|_| whole) {
        console.say(&format!("volume: {} ({})", volume.display(), show_bytes(bytes)));
    }
    console.say(&format!("report: {}", report_path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipeline_of_the_demo_is_sound() {
        let registry = registry();
        let volume = Path::new("out/${x}/volume.h5");
        let graph = graph("tcp://127.0.0.1:5", Some(31.5), volume, true, &registry).unwrap();
        assert_eq!(graph.nodes().len(), 5);
        assert_eq!(graph.node("keep").unwrap().parameters["path"], "out/${x}/volume.h5");
    }
}
