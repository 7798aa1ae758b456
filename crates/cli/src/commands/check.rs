//! `check` and `explain`: a pipeline without running it.

use beamstream::{Plan, header_from_file, load_file, registry};

use crate::args::{CheckArgs, ExplainArgs};
use crate::console::Console;
use crate::failure::Failure;

/// Says whether a pipeline could run.
pub(super) fn check(args: &CheckArgs, console: &Console) -> Result<(), Failure> {
    plan(args)?;
    console.say(&format!("{}: no mistakes", args.pipeline.display()));
    Ok(())
}

/// Shows the plan of a pipeline.
pub(super) fn explain(args: &ExplainArgs, console: &Console) -> Result<(), Failure> {
    let mut plan = plan(&args.check)?;
    if let Some(path) = &args.header {
        plan.assume_header(&header_from_file(path)?);
    }
    let explanation = plan.explain();
    if args.json { console.print_json(&explanation) } else { console.print(&explanation.to_string()) }
}

fn plan(args: &CheckArgs) -> Result<Plan, Failure> {
    let registry = registry();
    let graph = load_file(&args.pipeline, &args.set, &registry)?;
    // Files that a run would replace are no mistake of the pipeline.
    let options = args.compute.options(true, None).plan_options()?;
    Ok(Plan::new(&graph, &registry, &options)?)
}
