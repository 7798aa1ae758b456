//! Beamstream as a library: live tomography from detector frames to volumes.
//!
//! A pipeline is read ([`load_file`], [`load_line`]) or made for a recorded scan ([`prepare_recon`]), checked and sized
//! as a [`Plan`], and started: the [`RunHandle`] shows what it does, changes parameters, stops it, and gives its
//! [`Report`].
//!
//! ```
//! use beamstream::{Options, Plan, load_line, registry};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let registry = registry();
//! let line = "phantom_source size=32 angles=40 ! flat_field ! recon rotation_axis=15.5 ! null_sink";
//! let graph = load_line(line, &["phantom_source.rows=2"], &registry)?;
//! let plan = Plan::new(&graph, &registry, &Options::default().plan_options()?)?;
//! assert!(plan.explain().memory.host_bytes.is_some());
//!
//! let report = plan.start()?.wait();
//! assert_eq!(report.exit_code(), 0);
//! # Ok(())
//! # }
//! ```

mod axis;
mod convert;
mod date;
mod error;
mod frames;
mod header;
mod images;
mod inspect;
mod load;
mod options;
mod recon;
mod replay;
mod views;

use std::sync::Arc;

pub use axis::{AxisFinding, METHOD as AXIS_METHOD, find_axis};
pub use convert::{ConvertOptions, Converted, convert};
pub use error::Error;
pub use header::header_from_file;
pub use inspect::{FrameSummary, Inspection, ReconSummary, inspect};
pub use load::{load_file, load_line};
pub use options::{Device, Options};
pub use recon::{OutputRange, PreparedRecon, ReconOptions, RotationAxisChoice, prepare_recon};
pub use replay::replay_graph;
pub use views::with_views;

pub use beamstream_core::{ElementType, FrameCounts, IndexRange, Role, SeriesHeader};
pub use beamstream_cuda::{GpuReport, LibraryReport, Probe as GpuProbe, probe as probe_gpus};
pub use beamstream_engine::{
    ExitCode, Explanation, Plan, PlanError, PlanOptions, Report, RunHandle, RunState, SeriesReport,
    SetFailure, Status, available_host_bytes, parse_bytes, show_bytes,
};
pub use beamstream_graph::{Cause, Errors, Graph, GraphError, nearest, schema};
pub use beamstream_io::{DatasetInfo, Scan, ScanError, ScanInfo, ScanOptions};
pub use beamstream_node::{Board, KindClass, KindInfo, NodeErrorKind, Registry, View};
pub use beamstream_ops::{Filter, Method, OUTPUT_TYPES, Padding};

/// All kinds of nodes that this version has.
///
/// ```
/// let registry = beamstream::registry();
/// assert!(registry.get("recon").is_some_and(|kind| kind.parameters().any(|name| name == "rotation_axis")));
/// ```
pub fn registry() -> Arc<Registry> {
    let mut registry = Registry::default();
    beamstream_flow::register(&mut registry);
    beamstream_io::register(&mut registry);
    beamstream_tomo::register(&mut registry);
    beamstream_zmq::register(&mut registry);
    Arc::new(registry)
}
