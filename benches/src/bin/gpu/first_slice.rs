//! From the start of a program to its first slice, with and without compiled kernels at hand.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use beamstream_engine::Plan;
use beamstream_graph::Graph;

use crate::Outcome;
use crate::machine::{Machine, registry};
use crate::results::{Bar, Figure, Results};
use crate::scan::{Extent, Scan};
use crate::settings::Settings;
use crate::stage::{Play, Stage};

/// First argument of the program that is measured.
pub(crate) const CHILD: &str = "--as-first-slice";
/// Rows and projections of its scan: enough for a slice.
const ROWS: usize = 16;
const ANGLES: usize = 60;
/// Programs that are started with kernels at hand.
const STARTS: usize = 3;

/// Starts the program once with an empty cache of kernels, then with the filled one.
pub(crate) fn measure(settings: &Settings, results: &mut Results) -> Outcome<()> {
    let cache = std::env::temp_dir().join(format!("beamstream-kernels-{}", std::process::id()));
    std::fs::create_dir_all(&cache)?;
    let start = || -> Outcome<f64> {
        let began = Instant::now();
        let mut child = Command::new(std::env::current_exe()?)
            .args([CHILD, &settings.extent.columns.to_string(), &settings.device.to_string()])
            .env("XDG_CACHE_HOME", &cache)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let seconds = began.elapsed().as_secs_f64();
        if child.wait()?.success() {
            Ok(seconds)
        } else {
            Err("the program that makes a slice failed".into())
        }
    };
    let empty = start();
    let filled: Result<Vec<f64>, _> = (0..STARTS).map(|_| start()).collect();
    std::fs::remove_dir_all(&cache)?;
    results.add(Figure::new("first slice, empty kernel cache", empty?, "s").bar(Bar::AtMost(15.0)));
    results.add(Figure::median("first slice, filled kernel cache", &filled?, "s").bar(Bar::AtMost(1.5)));
    Ok(())
}

/// What is measured: `COLUMNS DEVICE`.
pub(crate) fn child(arguments: &[String]) -> Outcome<()> {
    let [columns, device] = arguments else { return Err("expected COLUMNS DEVICE".into()) };
    let machine = Machine::open(&device.parse()?, None)?;
    // The host's own memory: pinning much of it is not what is measured.
    let extent = Extent { columns: columns.parse()?, rows: ROWS, angles: ANGLES, copies: 8, bands: 1 };
    let scan = Arc::new(Scan::new(extent, &beamstream_buffer::HostAllocator)?);
    let play = Play { series: 1, projections: ANGLES as u64, rate_hz: None, samples: Vec::new() };
    let stage = Stage::set(scan, play);
    let registry = Arc::new(registry());
    let line = format!("stage_source ! flat_field ! recon rotation_axis={} ! host_sink", extent.axis_px());
    let graph = Graph::launch(&line, &registry, &|_no_variables| None)?;
    let report = Plan::new(&graph, &registry, machine.options())?.start()?.wait();
    stage.seen()?;
    writeln!(std::io::stdout(), "{} slices", report.nodes.last().map_or(0, |node| node.blocks_in))?;
    if report.exit_code() == 0 { Ok(()) } else { Err(format!("{:?}", report.errors).into()) }
}
