//! What cargo itself cannot do: the demo, the whole test, benchmarks, valgrind, what needs a GPU.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod bench;
mod checks;
mod command;
mod gpu;
mod python;
mod steps;

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match arguments.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("help", &[][..]),
    };
    match task {
        "demo" => demo(rest),
        "test" => steps::run_chosen(checks::STEPS, rest),
        "valgrind" => steps::run(&[&checks::VALGRIND]),
        "bench" => bench::run(rest),
        "gpu-test" => gpu::test(rest),
        "gpu-bench" => gpu::bench(rest),
        "help" | "-h" | "--help" => {
            help();
            ExitCode::SUCCESS
        }
        unknown => {
            eprintln!("error: there is no task '{unknown}'; `cargo xtask help` lists them");
            ExitCode::from(2)
        }
    }
}

/// Builds all programs as a release, as `test` does, and starts the demonstration.
fn demo(arguments: &[String]) -> ExitCode {
    match checks::build_command().status() {
        Ok(status) if status.success() => {
            let program = command::target().join("release").join("beamstream");
            command::foreground(Command::new(program).arg("demo").args(arguments))
        }
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: cargo cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}

fn help() {
    println!(
        "cargo xtask demo [ARGUMENTS]   builds the programs and runs `beamstream demo`\n\
         cargo xtask test [STEP]...     checks everything, or only the steps that are named\n\
         cargo xtask bench [NAME]       runs a benchmark, or lists them\n\
         cargo xtask gpu-test [FOLDER]  packs the tests of GPUs into target/gpu, and runs them where there is one\n\
         cargo xtask gpu-bench [...]    the same for the benchmark of GPUs\n\
         cargo xtask valgrind           runs the tests of core and buffer under valgrind\n\
         cargo xtask help               this text\n\nSteps of `cargo xtask test`:"
    );
    for step in checks::STEPS {
        println!("  {:<10} {}", step.name, step.says);
    }
}
