//! `recon`: the volume of a recorded scan.

use std::time::Instant;

use beamstream::{PreparedRecon, ReconOptions, prepare_recon, registry};

use crate::args::ReconArgs;
use crate::console::Console;
use crate::drive::{Drive, drive};
use crate::failure::Failure;
use crate::figures::{ReconFigures, tell_pace, work};
use crate::side_files;
use crate::view::Show;

pub(super) fn recon(args: &ReconArgs, console: &Console) -> Result<u8, Failure> {
    side_files::check(&args.results, &[("the scan", &args.scan), ("the volume", &args.output)])?;
    let registry = registry();
    let started = Instant::now();
    let run = args.compute.options(args.results.overwrite, args.results.trace.as_deref());
    let prepared = prepare_recon(&options(args), &run, &registry)?;
    tell(&prepared, console);
    let [z, y, x] = prepared.shape;
    let figures = ReconFigures::new(console, prepared.frames * prepared.passes, z);
    let how = Drive { report: args.results.report.as_deref(), show: Show::Nowhere };
    let report = drive(prepared.plan, console, &figures, &how)?.report;
    if report.exit_code() == 0 {
        let seconds = started.elapsed().as_secs_f64();
        let rate = (z * y * x) as f64 / seconds;
        let slices = if z == 1 { "slice" } else { "slices" };
        console.say(&format!(
            "{}: {z} {slices} of {y} x {x} in {seconds:.2} s, {:.1} million voxels/s, {}",
            args.output.display(),
            rate * 1e-6,
            work(&report)
        ));
        tell_pace(&report, console);
    }
    Ok(report.exit_code())
}

fn options(args: &ReconArgs) -> ReconOptions {
    ReconOptions {
        places: args.places.options(),
        rows: args.rows,
        columns: args.columns,
        bin: usize::from(args.bin),
        rotation_axis: args.rotation_axis,
        method: args.method,
        filter: args.filter,
        padding: args.pad,
        element: args.dtype,
        range: args.range,
        ..ReconOptions::new(&args.scan, &args.output)
    }
}

/// What was found out before the run.
fn tell(prepared: &PreparedRecon, console: &Console) {
    if let Some(axis) = &prepared.axis {
        let [one, other] = axis.angles_deg;
        console.say(&format!(
            "rotation axis {:.2} px, confidence {:.2}, from the projections at {one:.1} and {other:.1} degrees",
            axis.rotation_axis_px, axis.confidence
        ));
    }
    for warning in &prepared.warnings {
        console.warn(warning);
    }
    if let Some([low, high]) = prepared.levels {
        console.say(&format!("grey levels from {low} to {high} per pixel"));
    }
    if prepared.passes > 1 {
        console.say(&format!("{} passes over the scan", prepared.passes));
    }
}
