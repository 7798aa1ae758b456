//! The steps of `cargo xtask test`. All use one profile, so that dependencies are compiled once.

use std::process::Command;

use crate::command::{cargo, has_subcommand, is_installed, root, target};
use crate::python;
use crate::steps::{Outcome, Step};

/// Everything, cheapest first.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "format", says: "rustfmt finds nothing to change", run: format },
    Step { name: "spelling", says: "typos finds none", run: spelling },
    Step {
        name: "licences",
        says: "cargo-deny: licences, advisories, origins of the dependencies",
        run: licences,
    },
    Step { name: "lints", says: "clippy finds nothing, on all targets", run: lints },
    Step { name: "docs", says: "the API's documentation builds without a warning", run: docs },
    Step { name: "build", says: "the programs, as a release", run: build },
    Step { name: "tests", says: "unit, layer, contract and end-to-end tests of all packages", run: tests },
    Step {
        name: "doctests",
        says: "the examples in the documentation and in CONTRIBUTING.md",
        run: doctests,
    },
    Step { name: "kernels", says: "the GPU kernels compile, for GPUs that need not be here", run: kernels },
    Step { name: "loom", says: "every interleaving of threads in a pool's book-keeping", run: loom },
    VALGRIND,
    Step {
        name: "interop",
        says: "libzmq, h5py, tifffile, zarr and NumPy understand the programs",
        run: interop,
    },
];

/// The step that is also a task of its own.
pub(crate) const VALGRIND: Step = Step {
    name: "valgrind",
    says: "the tests of core and buffer touch no foreign memory and leak none",
    run: valgrind,
};

fn format() -> Outcome {
    let mut command = cargo();
    command.args(["fmt", "--all", "--check"]);
    Outcome::of(command)
}

fn spelling() -> Outcome {
    if !is_installed("typos", "--version") {
        return Outcome::Skipped("typos is not installed (cargo install typos-cli)".into());
    }
    let mut command = Command::new("typos");
    command.current_dir(root());
    Outcome::of(command)
}

fn licences() -> Outcome {
    if !has_subcommand("deny") {
        return Outcome::Skipped("cargo-deny is not installed (cargo install cargo-deny)".into());
    }
    let mut command = cargo();
    command.args(["deny", "--workspace", "check"]);
    Outcome::of(command)
}

fn lints() -> Outcome {
    let mut command = cargo();
    command.args(["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    Outcome::of(command)
}

fn docs() -> Outcome {
    let mut command = cargo();
    command
        .args(["doc", "--release", "--workspace", "--no-deps", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings");
    Outcome::of(command)
}

/// All programs together, so that the demo and the tests share what is compiled.
pub(crate) fn build_command() -> Command {
    let mut command = cargo();
    command.args(["build", "--release", "--workspace", "--bins"]);
    command
}

fn build() -> Outcome {
    Outcome::of(build_command())
}

fn tests() -> Outcome {
    let mut command = cargo();
    if has_subcommand("nextest") {
        // Also the output of tests that pass: by it they say what they had to skip.
        command.args(["nextest", "run", "--release", "--workspace", "--no-fail-fast"]);
        command.args([
            "--success-output",
            "immediate",
            "--status-level",
            "fail",
            "--final-status-level",
            "slow",
        ]);
    } else {
        command.args(["test", "--release", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]);
        command.args(["--", "--show-output"]);
    }
    Outcome::without_lines(command, is_success)
}

/// Whether a line only says that a test passed.
fn is_success(line: &str) -> bool {
    let frame = ["stdout ───", "stderr ───"].iter().any(|frame| line.contains(frame));
    let begins = ["running ", "test result: ok"].iter().any(|begin| line.starts_with(begin));
    let passed = line.starts_with("test ") && line.ends_with("... ok");
    line.is_empty() || frame || begins || passed
}

fn doctests() -> Outcome {
    let mut command = cargo();
    command.args(["test", "--release", "--workspace", "--doc", "--no-fail-fast"]);
    Outcome::of(command)
}

/// NVRTC compiles without a GPU and without a driver; the wheel that holds it needs no toolkit either.
fn kernels() -> Outcome {
    let environment = match python::environment("nvrtc", &root().join("kernels").join("requirements.txt")) {
        Ok(folder) => folder,
        Err(reason) => return Outcome::Skipped(reason),
    };
    let mut command = cargo();
    command.args(["test", "--release", "--package", "beamstream-cuda", "--test", "kernels"]);
    command.args(["--", "--nocapture"]).env("VIRTUAL_ENV", environment);
    match Outcome::of(command) {
        // NVRTC is there: nothing is left that could excuse a test.
        Outcome::Passed { skips } if !skips.is_empty() => Outcome::Failed(skips.join("\n")),
        outcome => outcome,
    }
}

/// Loom needs all of the crate compiled anew, so it has a target folder of its own.
fn loom() -> Outcome {
    let mut command = cargo();
    command.args(["test", "--release", "--package", "beamstream-buffer", "--lib", "slots"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
    Outcome::of(command)
}

fn valgrind() -> Outcome {
    if !is_installed("valgrind", "--version") {
        return Outcome::Skipped("valgrind is not installed".into());
    }
    let Some(host) = host() else {
        return Outcome::Failed("rustc does not say for which machine it compiles".into());
    };
    let runner = format!("CARGO_TARGET_{}_RUNNER", host.to_uppercase().replace('-', "_"));
    let mut command = cargo();
    command.args([
        "test",
        "--release",
        "--package",
        "beamstream-core",
        "--package",
        "beamstream-buffer",
        "--lib",
    ]);
    command.env(
        runner,
        "valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite",
    );
    // Valgrind is slow: few random cases are enough to see a wrong access.
    Outcome::of({
        command.env("PROPTEST_CASES", "8");
        command
    })
}

fn interop() -> Outcome {
    let programs = ["beamstream", "beamstream-sim"].map(|name| target().join("release").join(name));
    if let Some(absent) = programs.iter().find(|program| !program.is_file()) {
        return Outcome::Failed(format!("{} was not built", absent.display()));
    }
    python::run_tests()
}

/// The machine that rustc compiles for, as in `x86_64-unknown-linux-gnu`.
fn host() -> Option<String> {
    let output = Command::new("rustc").arg("-vV").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}
