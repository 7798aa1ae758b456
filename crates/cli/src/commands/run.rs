//! `run` and `launch`: a pipeline from a file or a line.

use std::sync::Arc;

use beamstream::{Error, Graph, Plan, Registry, load_file, load_line, registry, with_views};

use crate::args::{HowArgs, LaunchArgs, RunArgs};
use crate::console::Console;
use crate::drive::{Drive, drive};
use crate::failure::Failure;
use crate::figures::{StreamFigures, tell_pace, tell_series, work};
use crate::side_files;
use crate::view::Show;

pub(super) fn run(args: &RunArgs, console: &Console) -> Result<u8, Failure> {
    side_files::check(&args.how.results, &[("the pipeline itself", &args.pipeline)])?;
    let registry = registry();
    let graph = load_file(&args.pipeline, &args.how.set, &registry)?;
    start(&graph, &args.how, &registry, console)
}

pub(super) fn launch(args: &LaunchArgs, console: &Console) -> Result<u8, Failure> {
    side_files::check(&args.how.results, &[])?;
    let registry = registry();
    let graph = load_line(&args.line, &args.how.set, &registry)?;
    start(&graph, &args.how, &registry, console)
}

pub(super) fn start(
    graph: &Graph,
    how: &HowArgs,
    registry: &Arc<Registry>,
    console: &Console,
) -> Result<u8, Failure> {
    let plan = plan(graph, how, registry)?;
    let show = Show::when(plan.nodes_of_kind("view").next().is_some(), how.view);
    let how = Drive { report: how.results.report.as_deref(), show };
    let driven = drive(plan, console, &StreamFigures::new(console), &how)?;
    tell_series(&driven.report, console);
    console.say(&format!("computed {}", work(&driven.report)));
    tell_pace(&driven.report, console);
    Ok(driven.report.exit_code())
}

fn plan(graph: &Graph, how: &HowArgs, registry: &Arc<Registry>) -> Result<Plan, Error> {
    let results = &how.results;
    let options = how.compute.options(results.overwrite, results.trace.as_deref()).plan_options()?;
    // The graph of the user is planned in any case: only its errors know their places.
    let plan = Plan::new(graph, registry, &options)?;
    if how.view.is_none() || plan.nodes_of_kind("view").next().is_some() {
        return Ok(plan);
    }
    Ok(Plan::new(&with_views(graph, registry)?, registry, &options)?)
}
