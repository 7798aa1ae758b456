//! The engine on a GPU: one program that measures everything that is promised of it, each figure beside its bar and
//! the ceiling that the hardware sets.
//!
//! `gpu [OPTIONS] [SECTION]...`; `gpu --help` lists both. Without a GPU it says so; `--device cpu` runs the sections
//! that a CPU can run, for trying the program out.

mod again;
mod ceilings;
mod compute;
mod first_slice;
mod machine;
mod pipelines;
mod planes;
mod quality;
mod results;
mod scan;
mod settings;
mod stage;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use crate::ceilings::Ceilings;
use crate::machine::Machine;
use crate::results::Results;
use crate::scan::{Extent, Scan};
use crate::settings::{Section, Settings};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[allow(clippy::print_stderr, reason = "a program for the terminal")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == first_slice::CHILD) {
        return end(first_slice::child(&arguments[1..]));
    }
    let settings = match Settings::parse(&arguments) {
        Ok(Some(settings)) => settings,
        Ok(None) => {
            eprintln!("{}", settings::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match Machine::open(&settings.device, settings.trace.as_deref()) {
        Ok(machine) => end(measure(&settings, &machine)),
        Err(error) => {
            eprintln!("skipped: {error}");
            ExitCode::SUCCESS
        }
    }
}

#[allow(clippy::print_stderr, reason = "a program for the terminal")]
fn end(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen sections, also after one has failed, and writes what came of them.
#[allow(clippy::print_stderr, reason = "a program for the terminal")]
fn measure(settings: &Settings, machine: &Machine) -> Outcome<()> {
    let mut results = Results::new(machine.describe(), settings);
    let ceilings = ceilings::measure(machine, settings, &mut results)?;
    let mut scan = None;
    for &section in &settings.sections {
        let began = Instant::now();
        eprintln!("== {}", section.name());
        let outcome = run(section, settings, machine, &ceilings, &mut scan, &mut results);
        if let Err(error) = outcome {
            results.failed(section, &error.to_string());
        }
        eprintln!("   {:.1} s", began.elapsed().as_secs_f64());
    }
    results.write()
}

/// One section. The scan in pinned memory, which takes seconds to make, serves all that can use it.
fn run(
    section: Section,
    settings: &Settings,
    machine: &Machine,
    ceilings: &Ceilings,
    kept: &mut Option<Arc<Scan>>,
    results: &mut Results,
) -> Outcome<()> {
    let extent = |bands| Extent { bands, ..settings.extent };
    let mut scan = |extent: Extent| -> Outcome<Arc<Scan>> {
        if let Some(scan) = kept.as_ref().filter(|scan| scan.extent == extent) {
            return Ok(scan.clone());
        }
        // Two scans at once may not fit the memory that can be pinned.
        *kept = None;
        Ok(kept.insert(Arc::new(Scan::new(extent, &*machine.pinned())?)).clone())
    };
    match section {
        Section::Headline => {
            pipelines::offline(machine, &scan(settings.extent)?, "f32", settings, ceilings, results)
        }
        Section::Integers => {
            pipelines::offline(machine, &scan(settings.extent)?, "u16", settings, ceilings, results)
        }
        Section::Wide => pipelines::wide(machine, settings, ceilings, results),
        Section::Live => pipelines::live(machine, &scan(extent(1))?, settings, ceilings, results),
        Section::Sustained => pipelines::sustained(machine, &scan(extent(1))?, settings, ceilings, results),
        Section::Again => again::measure(machine, &scan(extent(1))?, settings, results),
        Section::Upload => pipelines::upload(machine, &scan(extent(1))?, settings, ceilings, results),
        Section::Computation => compute::volume(machine, &*scan(extent(1))?, settings, results),
        Section::Direct => compute::direct(machine, settings, results),
        Section::Planes => planes::measure(machine, &*scan(extent(1))?, settings, results),
        Section::Quality => quality::measure(machine, settings, results),
        Section::FirstSlice => first_slice::measure(settings, results),
    }
}
