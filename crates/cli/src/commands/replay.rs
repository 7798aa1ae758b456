//! `replay`: a recording in the place of a detector.

use beamstream::{load_file, registry, replay_graph};

use super::run::start;
use crate::args::ReplayArgs;
use crate::console::Console;
use crate::failure::Failure;
use crate::side_files;

pub(super) fn replay(args: &ReplayArgs, console: &Console) -> Result<u8, Failure> {
    side_files::check(&args.how.results, &[("the recording itself", &args.recording)])?;
    let registry = registry();
    let pipeline = match &args.pipeline {
        Some(path) => Some(load_file(path, &args.how.set, &registry)?),
        None if !args.how.set.is_empty() => {
            return Err(Failure::usage("--set changes a pipeline: name one with --pipeline"));
        }
        None => None,
    };
    let speed = (args.speed > 0.0).then_some(args.speed);
    let graph = replay_graph(&args.recording, speed, pipeline.as_ref(), &registry)?;
    start(&graph, &args.how, &registry, console)
}
