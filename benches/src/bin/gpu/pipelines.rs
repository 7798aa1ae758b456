//! Whole pipelines through the engine, from pinned memory to pinned memory or to the device.

use std::sync::Arc;

use beamstream_benches::accuracy;
use beamstream_engine::{Plan, Report};
use beamstream_graph::Graph;

use crate::Outcome;
use crate::ceilings::Ceilings;
use crate::machine::{Machine, registry};
use crate::results::{Bar, Figure, Results};
use crate::scan::{Extent, Scan};
use crate::settings::Settings;
use crate::stage::{Play, Seen, Stage, Times};

/// Frames a second at which a detector is played.
const LIVE_RATE_HZ: f64 = 1000.0;
/// Half turns that are played without a pause for the sustained rate.
const SUSTAINED_TURNS: u64 = 4;
/// Error of a slice of the rosette that would mean that something is wrong.
const MAX_NRMSE: f64 = 0.02;

/// Runs `line` on a scan and gives what was seen; the first series warms up.
fn run(machine: &Machine, scan: &Arc<Scan>, play: Play, line: &str) -> Outcome<(Report, Seen)> {
    let stage = Stage::set(scan.clone(), play);
    let registry = Arc::new(registry());
    let graph = Graph::launch(line, &registry, &|_no_variables| None)?;
    let plan = Plan::new(&graph, &registry, machine.options())?;
    let report = plan.start()?.wait();
    if let Some(error) = report.errors.first() {
        return Err(format!("node '{}': {}", error.node, error.message).into());
    }
    let seen = stage.seen()?;
    if report.exit_code() != 0 || seen.series.len() < 2 {
        return Err(format!("the run ended with {:?} after {} series", report.exit, seen.series.len()).into());
    }
    Ok((report, seen))
}

/// Seconds of each series but the first, which warms up.
fn seconds(seen: &Seen, of: impl Fn(&Times) -> f64) -> Vec<f64> {
    seen.series.iter().skip(1).map(of).collect()
}

fn until_volume(times: &Times) -> f64 {
    times.volume.duration_since(times.first_frame).as_secs_f64()
}

fn after_last_frame(times: &Times) -> f64 {
    times.volume.duration_since(times.last_frame).as_secs_f64()
}

/// `recon` of a scan with its parameters.
fn recon(extent: &Extent) -> String {
    format!("flat_field ! recon rotation_axis={}", extent.axis_px())
}

/// What limited a run, and what it took.
fn note(report: &Report) -> String {
    let joules = report.energy_joules.map_or_else(String::new, |joules| format!(", {joules:.0} J in all"));
    let limit = report.limit.as_ref().map_or_else(String::new, ToString::to_string);
    format!("{limit}{joules}")
}

/// Holds the sampled slices against the truth; gives the worst.
fn check(seen: &Seen, extent: &Extent) -> Outcome<String> {
    let (mut worst, mut gain) = (0.0_f64, 1.0);
    for (&z, slice) in &seen.samples {
        let found = accuracy(slice, &extent.truth(z as usize), extent.columns);
        if found.nrmse > worst {
            (worst, gain) = (found.nrmse, found.gain);
        }
    }
    if seen.samples.is_empty() || worst > MAX_NRMSE {
        return Err(
            format!("{} slices were sampled, their nRMSE is up to {worst:.4}", seen.samples.len()).into()
        );
    }
    Ok(format!("{} slices right, nRMSE <= {worst:.4}, fitted gain {gain:.4e}", seen.samples.len()))
}

/// Rows whose slices are looked at: in the first band, in the middle, in the last.
fn samples(extent: &Extent) -> Vec<u64> {
    let last = extent.rows as u64 - 1;
    let mut rows = vec![0, last / 2, last];
    rows.dedup();
    rows
}

/// The volume from host to host, in f32 or in integers.
pub(crate) fn offline(
    machine: &Machine,
    scan: &Arc<Scan>,
    element: &str,
    settings: &Settings,
    ceilings: &Ceilings,
    results: &mut Results,
) -> Outcome<()> {
    let extent = scan.extent;
    let integers = element == "u16";
    // The rosette's densest voxel is below 2 / columns, and the ramp rings a little on both sides.
    let range = 2.0 / extent.columns as f64;
    let rescale = format!(" ! rescale dtype=u16 range=\"-{range}:{range}\"");
    let line =
        format!("stage_source ! {}{} ! host_sink", recon(&extent), if integers { &rescale } else { "" });
    let play = Play {
        series: settings.repeats + 1,
        projections: extent.angles as u64,
        rate_hz: None,
        samples: samples(&extent),
    };
    let (report, seen) = run(machine, scan, play, &line)?;
    let voxel_bytes = if integers { 2.0 } else { 4.0 };
    let floor = ceilings.copies_secs(extent.scan_bytes(), extent.voxels() * voxel_bytes);
    let all = seconds(&seen, until_volume);
    let what = format!("host to host, {element}, {}", sizes(&extent));
    let figure = Figure::median(what, &all, "s").ceiling(floor, "copies");
    // The bars are those of the full size.
    let bar = if !is_headline(&extent) {
        Bar::None
    } else if integers {
        Bar::AtMost(1.3 * floor.max(results.value_of(crate::compute::VOLUME).unwrap_or(floor)))
    } else {
        Bar::AtMost(0.92)
    };
    let note = format!("{}; {}", check(&seen, &extent)?, note(&report));
    results.add(figure.bar(bar).note(note).report(report));
    Ok(())
}

fn sizes(extent: &Extent) -> String {
    let Extent { rows, columns, angles, .. } = extent;
    format!("{rows} x {columns}^2 from {angles}")
}

fn is_headline(extent: &Extent) -> bool {
    (extent.rows, extent.columns, extent.angles) == (2048, 2048, 1800)
}

/// A wider detector: 1500 projections of 2447 columns where the others have 1800 of 2048.
pub(crate) fn wide(
    machine: &Machine,
    settings: &Settings,
    ceilings: &Ceilings,
    results: &mut Results,
) -> Outcome<()> {
    let Extent { columns, angles, copies, .. } = settings.extent;
    // As many projections as keep the rosette's symmetry.
    let angles = (angles * 5 / 6).next_multiple_of(copies / 2);
    let extent = Extent { columns: columns * 2447 / 2048, angles, ..settings.extent };
    let scan = Arc::new(Scan::new(extent, &*machine.pinned())?);
    offline(machine, &scan, "f32", settings, ceilings, results)
}

/// Last frame to volume, on the device and in host memory, at the rate of a detector.
pub(crate) fn live(
    machine: &Machine,
    scan: &Arc<Scan>,
    settings: &Settings,
    ceilings: &Ceilings,
    results: &mut Results,
) -> Outcome<()> {
    let extent = scan.extent;
    for (sink, what, most) in [("device_sink", "on the device", 0.25), ("host_sink", "in host memory", 1.0)] {
        let line = format!("stage_source ! {} ! {sink}", recon(&extent));
        let play = Play {
            series: settings.repeats + 1,
            projections: extent.angles as u64,
            rate_hz: Some(LIVE_RATE_HZ),
            samples: samples(&extent),
        };
        let (report, seen) = run(machine, scan, play, &line)?;
        let all = seconds(&seen, after_last_frame);
        let mut figure = Figure::median(format!("last frame to the volume {what}"), &all, "s");
        if is_headline(&extent) {
            figure = figure.bar(Bar::AtMost(most));
        }
        if sink == "host_sink" {
            figure = figure.ceiling(ceilings.copies_secs(0.0, extent.voxels() * 4.0), "copy to the host");
        }
        let offered =
            seconds(&seen, |times| times.last_frame.duration_since(times.first_frame).as_secs_f64());
        let rate = (extent.angles as f64 + 20.0) / beamstream_benches::median(&offered);
        let note = format!("frames taken at {rate:.0} a second; {}", note(&report));
        results.add(figure.note(note).report(report));
    }
    Ok(())
}

/// Projections a second that are added to the whole volume, without a pause.
pub(crate) fn sustained(
    machine: &Machine,
    scan: &Arc<Scan>,
    settings: &Settings,
    ceilings: &Ceilings,
    results: &mut Results,
) -> Outcome<()> {
    let extent = scan.extent;
    let projections = SUSTAINED_TURNS * extent.angles as u64;
    let line = format!("stage_source ! {} ! device_sink", recon(&extent));
    let play = Play { series: settings.repeats + 1, projections, rate_hz: None, samples: Vec::new() };
    let (report, seen) = run(machine, scan, play, &line)?;
    // To the last slice: the end is paid for by all projections.
    let rates: Vec<f64> =
        seen.series.iter().skip(1).map(|times| projections as f64 / until_volume(times)).collect();
    let frame_bytes = extent.scan_bytes() / extent.angles as f64;
    let mut figure = Figure::median(format!("sustained, {projections} projections"), &rates, "1/s")
        .ceiling(ceilings.frames_up / frame_bytes, "copies to the device");
    if is_headline(&extent) {
        figure = figure.bar(Bar::AtLeast(2000.0));
    }
    let note = format!("with the last slice; {}", note(&report));
    results.add(figure.note(note).report(report));
    Ok(())
}

/// Frames to the device through the engine, beside the plain copy.
pub(crate) fn upload(
    machine: &Machine,
    scan: &Arc<Scan>,
    settings: &Settings,
    ceilings: &Ceilings,
    results: &mut Results,
) -> Outcome<()> {
    let extent = scan.extent;
    let projections = extent.angles as u64;
    let play = Play { series: settings.repeats + 1, projections, rate_hz: None, samples: Vec::new() };
    let (report, seen) = run(machine, scan, play, "stage_source ! device_sink")?;
    let rates = seconds(&seen, |times| extent.scan_bytes() / until_volume(times) * 1e-9);
    let plain = ceilings.frames_up * 1e-9;
    let mut figure = Figure::median("frames to the device through the engine", &rates, "GB/s")
        .ceiling(plain, "plain copy");
    if machine.gpu().is_some() {
        figure = figure.bar(Bar::AtLeast(0.9 * plain));
    }
    let note = note(&report);
    results.add(figure.note(note).report(report));
    Ok(())
}
