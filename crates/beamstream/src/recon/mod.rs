//! The reconstruction of a recorded scan: options in, a sized pipeline out.
//!
//! The pipeline is the one that a user would write: `scan_source ! flat_field ! recon ! [rescale !] sink`. What a user
//! would have to look up first is found here: the rotation axis, the grey levels for integers, the rows that fit
//! memory.

mod graph;
mod levels;
mod passes;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use beamstream_core::{ElementType, IndexRange, Shape};
use beamstream_engine::{Plan, PlanError, PlanOptions};
use beamstream_graph::{Errors, Graph};
use beamstream_io::{OutputKind, Scan, ScanOptions, output_kind_of};
use beamstream_node::{NodeErrorKind, Registry};
use beamstream_ops::{Filter, Method, Padding};

use crate::axis::{AxisFinding, find_axis};
use crate::{Error, Options};

/// Where the rotation axis is.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum RotationAxisChoice {
    /// Where two opposite projections say.
    #[default]
    Auto,
    /// In columns of the detector as it is, 0 being the centre of the first.
    Px(f64),
}

/// Which grey levels become 0 and the highest integer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OutputRange {
    /// Attenuation per pixel.
    Values([f32; 2]),
    /// Percentiles of a few slices from the middle of the scan, 0 to 100.
    Percentiles([f64; 2]),
}

/// What to reconstruct, and how.
#[derive(Debug, Clone)]
pub struct ReconOptions {
    /// The scan.
    pub scan: PathBuf,
    /// The volume: its ending says what it becomes.
    pub out: PathBuf,
    /// Where the parts of the scan are, if not where the file says.
    pub places: ScanOptions,
    /// Detector rows to reconstruct; all by default.
    pub rows: Option<IndexRange>,
    /// Detector columns to use; all by default.
    pub columns: Option<IndexRange>,
    /// Detector pixels per pixel along both axes.
    pub bin: usize,
    /// Where the rotation axis is.
    pub rotation_axis: RotationAxisChoice,
    /// How projections become slices.
    pub method: Method,
    /// Filter of the projections.
    pub filter: Filter,
    /// What stands beside a projection while it is filtered.
    pub padding: Padding,
    /// Type of a voxel, one of [`OUTPUT_TYPES`](crate::OUTPUT_TYPES).
    pub element: ElementType,
    /// Grey levels of integers; needed for `u16` and `u8`.
    pub range: Option<OutputRange>,
}

impl ReconOptions {
    /// Everything by default: all rows and columns, the axis found, `fourier` with the ramp, f32.
    pub fn new(scan: impl Into<PathBuf>, out: impl Into<PathBuf>) -> Self {
        Self {
            scan: scan.into(),
            out: out.into(),
            places: ScanOptions::default(),
            rows: None,
            columns: None,
            bin: 1,
            rotation_axis: RotationAxisChoice::Auto,
            method: Method::default(),
            filter: Filter::default(),
            padding: Padding::default(),
            element: ElementType::F32,
            range: None,
        }
    }
}

/// A reconstruction that is ready to start.
pub struct PreparedRecon {
    /// The pipeline.
    pub graph: Graph,
    /// The plan of it.
    pub plan: Plan,
    /// The axis, if it was to be found.
    pub axis: Option<AxisFinding>,
    /// Attenuations that become 0 and the highest integer, for integers.
    pub levels: Option<[f32; 2]>,
    /// Passes over the scan: more than one where all rows together do not fit memory, and on a GPU, where one band of
    /// rows comes while another one leaves.
    pub passes: usize,
    /// Frames of the scan.
    pub frames: usize,
    /// `[z, y, x]` of the volume.
    pub shape: [usize; 3],
    /// What had to be assumed.
    pub warnings: Vec<String>,
}

/// Checks the options against the scan, finds what is to be found, and sizes the pipeline to the memory.
///
/// # Errors
/// [`Error`] if an option does not fit the scan, the output exists, or a single row does not fit memory.
pub fn prepare_recon(
    options: &ReconOptions,
    run: &Options,
    registry: &Arc<Registry>,
) -> Result<PreparedRecon, Error> {
    // Made once: it keeps the devices open.
    prepare_with(options, run, &run.plan_options()?, registry)
}

fn prepare_with(
    options: &ReconOptions,
    run: &Options,
    plan_options: &PlanOptions,
    registry: &Arc<Registry>,
) -> Result<PreparedRecon, Error> {
    let sink = output_kind_of(&options.out)?;
    refuse_existing(&options.out, run.overwrite)?;
    if let (Ok(out), Ok(scan)) = (options.out.canonicalize(), options.scan.canonicalize())
        && out == scan
    {
        let message = format!("{} is the scan itself: give the volume another place", options.out.display());
        return Err(Error::Option { option: "output", message });
    }
    check_range(options)?;
    let mut scan = Scan::open(&options.scan, &options.places)?;
    let shape = scan.info().format.shape;
    let extent = extent(options, shape)?;
    let mut warnings = Vec::new();
    let (axis_px, axis) = match options.rotation_axis {
        RotationAxisChoice::Px(axis_px) => (checked_axis(axis_px, shape.columns)?, None),
        RotationAxisChoice::Auto => {
            let found = find_axis(&mut scan, None, run)?;
            (found_axis(found.as_ref(), shape.columns, &mut warnings), found)
        }
    };
    let frames = scan.info().frames.len();
    drop(scan);
    let mut spec = graph::Spec { options, sink, axis_px, rows: extent.rows, levels: None, band_rows: None };
    if let Some(range) = options.range.filter(|_| graph::is_integer(options.element)) {
        spec.levels = Some(levels::find(&spec, range, plan_options, registry)?);
    }
    let (band_rows, passes) = passes::fit(&spec, plan_options, registry)?;
    spec.band_rows = band_rows;
    let graph = spec.graph(registry)?;
    let plan = plan(&graph, plan_options, registry)?;
    let levels = spec.levels;
    Ok(PreparedRecon { graph, plan, axis, levels, passes, frames, shape: extent.volume, warnings })
}

/// The plan of a pipeline that no user wrote: its errors are told without places.
fn plan(graph: &Graph, options: &PlanOptions, registry: &Arc<Registry>) -> Result<Plan, Error> {
    Plan::new(graph, registry, options).map_err(no_plan)
}

fn no_plan(error: PlanError) -> Error {
    match error {
        PlanError::Graph(errors) => without_places(&errors),
        // Texts of scan files and of the memory speak for themselves.
        PlanError::Node { ref error, .. } if error.kind() != NodeErrorKind::Internal => {
            Error::Recon(error.full_text())
        }
        PlanError::Memory { error, .. } => Error::Recon(error.full_text()),
        other => other.into(),
    }
}

fn without_places(errors: &Errors) -> Error {
    let texts: Vec<String> = errors.iter().map(|error| error.cause.to_string()).collect();
    Error::Recon(texts.join("; "))
}

fn refuse_existing(out: &Path, overwrite: bool) -> Result<(), Error> {
    // A link that leads nowhere is something, too.
    if !overwrite && out.symlink_metadata().is_ok() {
        return Err(Error::Exists { path: out.to_owned() });
    }
    Ok(())
}

/// What of the detector is used, and what becomes of it.
struct Extent {
    rows: IndexRange,
    volume: [usize; 3],
}

fn extent(options: &ReconOptions, detector: Shape) -> Result<Extent, Error> {
    let whole = |end: usize| IndexRange { first: 0, end: end as u64 };
    let rows = options.rows.unwrap_or(whole(detector.rows));
    let columns = options.columns.unwrap_or(whole(detector.columns));
    for (option, range, limit) in [("rows", rows, detector.rows), ("columns", columns, detector.columns)] {
        if range.within(limit).is_none() {
            let message = format!("{range} reaches beyond the {limit} {option} of the detector");
            return Err(Error::Option { option, message });
        }
    }
    let binned = |range: IndexRange| range.len() as usize / options.bin.max(1);
    let (z, x) = (binned(rows), binned(columns));
    if options.bin == 0 || z == 0 || x == 0 {
        let message =
            format!("{} leaves nothing of {} rows and {} columns", options.bin, rows.len(), columns.len());
        return Err(Error::Option { option: "bin", message });
    }
    Ok(Extent { rows, volume: [z, x, x] })
}

fn check_range(options: &ReconOptions) -> Result<(), Error> {
    let wrong = |option, message: String| Err(Error::Option { option, message });
    match (options.range, graph::is_integer(options.element)) {
        (None, true) => {
            let message =
                format!("{} needs the grey levels to map, with --range LO:HI or p1:p99", options.element);
            wrong("dtype", message)
        }
        (Some(_), false) => {
            wrong("range", format!("only integers have a range, and the output is {}", options.element))
        }
        _ => Ok(()),
    }
}

fn checked_axis(axis_px: f64, columns: usize) -> Result<f64, Error> {
    if (-0.5..=columns as f64 - 0.5).contains(&axis_px) {
        return Ok(axis_px);
    }
    let message = format!("expected an axis within the {columns} columns of the detector, found {axis_px}");
    Err(Error::Option { option: "rotation-axis", message })
}

/// The axis to use, and a word if it is a guess.
fn found_axis(found: Option<&AxisFinding>, columns: usize, warnings: &mut Vec<String>) -> f64 {
    let middle = (columns as f64 - 1.0) / 2.0;
    match found {
        Some(found) if (-0.5..=columns as f64 - 0.5).contains(&found.rotation_axis_px) => {
            if !found.is_trustworthy() {
                warnings.push(format!(
                    "the rotation axis {:.2} px is a guess (confidence {:.2}): check a slice, or give --rotation-axis",
                    found.rotation_axis_px, found.confidence
                ));
            }
            found.rotation_axis_px
        }
        _ => {
            warnings.push(format!(
                "no two opposite projections tell the rotation axis: the middle of the detector, {middle} px, is \
                 taken; give --rotation-axis"
            ));
            middle
        }
    }
}

/// Kind of the sink for an output.
fn sink_kind(output: OutputKind) -> &'static str {
    match output {
        OutputKind::Hdf5 => "hdf5_sink",
        OutputKind::Zarr => "zarr_sink",
        OutputKind::TiffStack | OutputKind::TiffFolder => "tiff_sink",
        OutputKind::Npy => "npy_sink",
        OutputKind::Raw => "raw_sink",
    }
}
