//! Steps that are run one after the other, and the summary at the end.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::command::{self, Finished};

/// One thing to check.
pub(crate) struct Step {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it does, in one line.
    pub(crate) says: &'static str,
    /// Does it.
    pub(crate) run: fn() -> Outcome,
}

/// What became of a step.
pub(crate) enum Outcome {
    /// All is well; tests that skipped a part of themselves said why.
    Passed { skips: Vec<String> },
    /// Something is wrong: the end of what was written.
    Failed(String),
    /// It could not be run: why, and what would be needed.
    Skipped(String),
}

impl Outcome {
    /// The outcome of a program: passed if it exits with 0.
    pub(crate) fn of(command: Command) -> Self {
        Self::without_lines(command, |_line| false)
    }

    /// The same, without the lines that are `idle`.
    pub(crate) fn without_lines(command: Command, idle: fn(&str) -> bool) -> Self {
        let name = command.get_program().display().to_string();
        match command::watch(command, idle) {
            Ok(Finished { success: true, skips, .. }) => Self::Passed { skips },
            Ok(Finished { tail, .. }) => Self::Failed(Vec::from(tail).join("\n")),
            Err(error) => Self::Failed(format!("{name} cannot be run: {error}")),
        }
    }
}

/// Runs the steps that are named, or all of them.
pub(crate) fn run_chosen(steps: &[Step], names: &[String]) -> ExitCode {
    if let Some(unknown) = names.iter().find(|name| steps.iter().all(|step| step.name != **name)) {
        let known: Vec<_> = steps.iter().map(|step| step.name).collect();
        eprintln!("error: there is no step '{unknown}'; there are {}", known.join(", "));
        return ExitCode::from(2);
    }
    let chosen: Vec<&Step> =
        steps.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)).collect();
    run(&chosen)
}

/// Runs all steps, also after one has failed, and tells at the end what became of each.
pub(crate) fn run(steps: &[&Step]) -> ExitCode {
    let mut done: Vec<(&Step, Outcome, Duration)> = Vec::with_capacity(steps.len());
    for step in steps {
        println!("\n== {}: {}", step.name, step.says);
        let began = Instant::now();
        let outcome = (step.run)();
        if let Outcome::Skipped(reason) = &outcome {
            println!("skipped: {reason}");
        }
        done.push((step, outcome, began.elapsed()));
    }
    show_first_failure(&done);
    show_summary(&done)
}

fn show_first_failure(done: &[(&Step, Outcome, Duration)]) {
    for (step, outcome, _) in done {
        if let Outcome::Failed(tail) = outcome {
            println!("\n== the first failure, {}, ended with\n{tail}", step.name);
            return;
        }
    }
}

fn show_summary(done: &[(&Step, Outcome, Duration)]) -> ExitCode {
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    println!("\n== summary");
    for (step, outcome, took) in done {
        let text = match outcome {
            Outcome::Passed { skips } => {
                passed += 1;
                passed_text(skips)
            }
            Outcome::Failed(_) => {
                failed += 1;
                String::from("FAILED")
            }
            Outcome::Skipped(reason) => {
                skipped += 1;
                format!("skipped: {reason}")
            }
        };
        println!("{:<10} {:>7.1} s  {text}", step.name, took.as_secs_f64());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A step that passed may hold tests that could not look at everything: their reasons, each once.
fn passed_text(skips: &[String]) -> String {
    let mut reasons = skips.to_vec();
    reasons.sort();
    reasons.dedup();
    match (skips.len(), reasons.as_slice()) {
        (0, _) | (_, []) => String::from("passed"),
        (count, [first]) => format!("passed, {count} tests skipped a part: {first}"),
        (count, [first, rest @ ..]) => {
            format!("passed, {count} tests skipped a part: {first} (and {} other reasons)", rest.len())
        }
    }
}
