//! A moved rotation axis after the last frame: chosen slices and the whole volume, made again from projections that
//! are kept.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beamstream_engine::Plan;
use beamstream_graph::Graph;
use beamstream_node::prelude::*;
use serde_json::json;

use crate::Outcome;
use crate::machine::{Machine, registry, wait};
use crate::results::{Bar, Figure, Results};
use crate::scan::Scan;
use crate::settings::Settings;
use crate::stage::{Play, Stage};

/// Slices that are looked at.
const LOOKS: usize = 3;
/// Longest time that a volume may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// When looks and volumes came.
#[derive(Debug, Default)]
struct Log {
    looks: Vec<Instant>,
    volumes: Vec<Instant>,
}

static LOG: Mutex<Log> = Mutex::new(Log { looks: Vec::new(), volumes: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `volumes` volumes have come.
fn wait_for(volumes: usize) -> Outcome<()> {
    let waiting = |log: &mut Log| log.volumes.len() < volumes;
    let (log, waited) =
        CHANGED.wait_timeout_while(log(), PATIENCE, waiting).unwrap_or_else(PoisonError::into_inner);
    drop(log);
    if waited.timed_out() { Err(format!("volume {volumes} did not come").into()) } else { Ok(()) }
}

pub(crate) fn register(registry: &mut Registry) {
    registry.node::<LookSinkConfig>();
}

/// The end of a pipeline that looks at unfinished work, too.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct LookSinkConfig {}

impl NodeConfig for LookSinkConfig {
    const KIND: &'static str = "look_sink";
    const CLASS: KindClass = KindClass::Sink;
    const PREVIEWS: bool = true;
    type Node = LookSink;

    fn build(self, _cx: &BuildContext) -> Result<LookSink, BuildError> {
        Ok(LookSink)
    }
}

struct LookSink;

impl Node for LookSink {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }

    fn begin(&mut self, _header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        wait(&block);
        if block.meta.preview {
            log().looks.push(Instant::now());
        }
        Ok(())
    }

    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        log().volumes.push(Instant::now());
        CHANGED.notify_all();
        Ok(())
    }
}

/// Moves the axis after the last frame, again and again, and looks at the clock.
pub(crate) fn measure(
    machine: &Machine,
    scan: &Arc<Scan>,
    settings: &Settings,
    results: &mut Results,
) -> Outcome<()> {
    let extent = scan.extent;
    let play = Play { series: 1, projections: extent.angles as u64, ..Play::default() };
    let stage = Stage::set(scan.clone(), play);
    let registry = Arc::new(registry());
    let axis_px = extent.axis_px();
    let line = format!("stage_source ! flat_field ! recon rotation_axis={axis_px} keep=all ! look_sink");
    let graph = Graph::launch(&line, &registry, &|_no_variables| None)?;
    *log() = Log::default();
    let mut run = Plan::new(&graph, &registry, machine.options())?.start()?;
    let (mut first, mut looks, mut volumes) = (Vec::new(), Vec::new(), Vec::new());
    let outcome = wait_for(1).and_then(|()| {
        for at in 0..=settings.repeats {
            let already = log().looks.len();
            let moved = Instant::now();
            run.set("recon", "rotation_axis", json!(axis_px + 0.5 * (at + 1) as f64))?;
            wait_for(at as usize + 2)?;
            let log = log();
            let seconds = |when: Option<&Instant>| when.map(|when| when.duration_since(moved).as_secs_f64());
            first.extend(seconds(log.looks.get(already)));
            looks.extend(seconds(log.looks.get(already + LOOKS - 1)));
            volumes.extend(seconds(log.volumes.last()));
        }
        Ok(())
    });
    stage.volume_came();
    let report = run.wait();
    if let Some(error) = report.errors.first() {
        return Err(format!("node '{}': {}", error.node, error.message).into());
    }
    outcome?;
    let volume = Figure::median("a moved axis: the volume in host memory", &volumes[1..], "s");
    results.add(Figure::median("a moved axis: the first slice", &first[1..], "s").bar(Bar::None));
    results.add(Figure::median(format!("a moved axis: {LOOKS} slices"), &looks[1..], "s").bar(Bar::None));
    results.add(volume.note("from corrected projections that are kept on the device").report(report));
    Ok(())
}
