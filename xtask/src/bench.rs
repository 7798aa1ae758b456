//! Benchmarks: one program each, in `benches/src/bin`.

use std::fs;
use std::process::ExitCode;

use crate::command::{cargo, foreground, root};

/// Runs the benchmark that is named first with the arguments that follow, or lists them.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let names = names();
    let Some((name, rest)) = arguments.split_first() else {
        println!("benchmarks: {}\nrun one with `cargo xtask bench NAME`", names.join(", "));
        return ExitCode::SUCCESS;
    };
    if !names.contains(name) {
        eprintln!("error: there is no benchmark '{name}'; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let mut command = cargo();
    command.args(["run", "--release", "--package", "beamstream-benches", "--bin", name, "--"]);
    foreground(command.args(rest))
}

fn names() -> Vec<String> {
    let files = fs::read_dir(root().join("benches/src/bin")).into_iter().flatten().flatten();
    let mut names: Vec<String> = files
        .filter_map(|file| file.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}
