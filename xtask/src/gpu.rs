//! Tests and benchmarks that need a GPU: built on any machine, run on one that has one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::command::{cargo, foreground, is_installed, root, target};

/// What to build, as arguments of cargo, and the folder of [`packed`] that the programs go to.
struct Programs {
    cargo: &'static [&'static str],
    folder: &'static str,
}

const TESTS: &[Programs] = &[
    Programs {
        cargo: &["test", "--no-run", "--package", "beamstream-cuda", "--lib", "--tests"],
        folder: "tests",
    },
    Programs {
        cargo: &["test", "--no-run", "--package", "beamstream-tests", "--test", "gpu"],
        folder: "tests",
    },
    COMMAND_LINE,
];

const BENCHMARK: &[Programs] = &[
    Programs { cargo: &["build", "--package", "beamstream-benches", "--bin", "gpu"], folder: "bin" },
    COMMAND_LINE,
];

/// Both scripts also ask `beamstream doctor` what the machine has.
const COMMAND_LINE: Programs =
    Programs { cargo: &["build", "--package", "beamstream-cli", "--bin", "beamstream"], folder: "bin" };

/// Recorded scans that the tests read where they are given, below the folder of test data.
const SCANS: [&str; 2] = ["tomo/aps_tooth", "tomo/dls_i13_24737"];

/// Packs the tests of everything that computes on a GPU, and runs them where there is one.
pub(crate) fn test(arguments: &[String]) -> ExitCode {
    // Tests that were packed before may be gone by now, and copies of read-only scans cannot be written over.
    for folder in ["tests", "data"] {
        drop(fs::remove_dir_all(packed().join(folder)));
    }
    pack(TESTS, "run-tests.sh")
        .and_then(|()| pack_scans())
        .map_or_else(|reason| failed(&reason), |()| run("run-tests.sh", arguments))
}

/// Packs the benchmark of the GPU, and runs it where there is one.
pub(crate) fn bench(arguments: &[String]) -> ExitCode {
    pack(BENCHMARK, "run-bench.sh").map_or_else(|reason| failed(&reason), |()| run("run-bench.sh", arguments))
}

fn failed(reason: &str) -> ExitCode {
    eprintln!("error: {reason}");
    ExitCode::FAILURE
}

/// The folder that holds all that is needed to run on another machine.
fn packed() -> PathBuf {
    target().join("gpu")
}

/// Builds programs, strips them, and lays them beside the script that runs them.
fn pack(programs: &[Programs], script: &str) -> Result<(), String> {
    for Programs { cargo: arguments, folder } in programs {
        let folder = packed().join(folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for program in build(arguments)? {
            strip(&program, &folder.join(plain_name(&program)))?;
        }
    }
    copy(&root().join("xtask/gpu").join(script), &packed().join(script))?;
    let commit = packed().join("commit");
    fs::write(&commit, commit_name()).map_err(|error| format!("{}: {error}", commit.display()))
}

/// Runs cargo; gives the programs that it made.
fn build(arguments: &[&str]) -> Result<Vec<PathBuf>, String> {
    const KEY: &str = "\"executable\":\"";
    let mut command = cargo();
    command.args(arguments).args(["--release", "--message-format", "json-render-diagnostics"]);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {} failed", arguments.join(" ")));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let program = |line: &str| Some(PathBuf::from(line.split_once(KEY)?.1.split_once('"')?.0));
    Ok(text.lines().filter_map(program).collect())
}

/// The name of a program without the mark that cargo puts behind the names of tests.
fn plain_name(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-') {
        Some((plain, mark)) if mark.len() == 16 && mark.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            plain.into()
        }
        _ => name.into_owned(),
    }
}

/// Copies a program without its symbols, which are nine tenths of it.
fn strip(from: &Path, to: &Path) -> Result<(), String> {
    if !is_installed("strip", "--version") {
        return copy(from, to);
    }
    let status = Command::new("strip").arg("-o").arg(to).arg(from).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => copy(from, to),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

/// Copies the recorded scans, if there are any.
fn pack_scans() -> Result<(), String> {
    let beside = || root().join("../shared/data");
    let data = std::env::var_os("BEAMSTREAM_TEST_DATA").map_or_else(beside, PathBuf::from);
    for scan in SCANS {
        let from = data.join(scan);
        if from.is_dir() {
            copy_folder(&from, &packed().join("data").join(scan))?;
        } else {
            println!("skipped: no recorded scan at {}", from.display());
        }
    }
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    let failure = |error: std::io::Error| format!("{}: {error}", from.display());
    fs::create_dir_all(to).map_err(failure)?;
    for entry in fs::read_dir(from).map_err(failure)? {
        let entry = entry.map_err(failure)?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            copy(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// The commit that was built, marked where files differ from it.
fn commit_name() -> String {
    let mut command = Command::new("git");
    command.current_dir(root()).args(["describe", "--always", "--dirty"]);
    let text = command.output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".into())
}

/// Runs a packed script if this machine has a GPU; else tells how it is run where there is one.
fn run(script: &str, arguments: &[String]) -> ExitCode {
    let path = packed().join(script);
    if is_installed("nvidia-smi", "--list-gpus") {
        return foreground(Command::new("bash").arg(path).args(arguments));
    }
    println!(
        "skipped: this machine has no GPU that nvidia-smi lists. On one that has, with a copy of {folder}:\n  \
         bash {script} [ARGUMENTS]",
        folder = packed().display()
    );
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_lose_the_mark_of_cargo() {
        assert_eq!(plain_name(Path::new("target/release/deps/kernels-0123456789abcdef")), "kernels");
        assert_eq!(plain_name(Path::new("target/release/beamstream-sim")), "beamstream-sim");
    }
}
