//! Tests against the libraries of others, which live in Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{is_installed, root, target};
use crate::steps::Outcome;

/// Runs `tests/interop` in an environment of its own below the target folder.
pub(crate) fn run_tests() -> Outcome {
    if !is_installed("python3", "--version") {
        return Outcome::Skipped("python3 is not installed".into());
    }
    let tests = root().join("tests").join("interop");
    let python = match environment(&tests.join("requirements.txt")) {
        Ok(python) => python,
        Err(reason) => return Outcome::Skipped(reason),
    };
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]).arg(tests);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("BEAMSTREAM_TARGET", target().join("release"));
    Outcome::of(command)
}

/// The interpreter of an environment that holds the requirements; made anew when they have changed.
fn environment(requirements: &Path) -> Result<PathBuf, String> {
    let folder = target().join("interop");
    let python = folder.join("bin").join("python");
    let installed = folder.join("requirements.txt");
    let wanted = fs::read(requirements).map_err(|error| format!("{}: {error}", requirements.display()))?;
    if python.exists() && fs::read(&installed).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    quietly(make, "a Python environment cannot be made")?;
    let mut install = Command::new(&python);
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(requirements);
    quietly(install, "the Python packages cannot be installed")?;
    fs::write(&installed, wanted).map_err(|error| format!("{}: {error}", installed.display()))?;
    Ok(python)
}

/// Runs a program; where it fails, gives its last line.
fn quietly(mut command: Command, what: &str) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{what}: {}",
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason was given")
    ))
}
