//! What comes as Python packages: libraries of others to test against, and the compiler of the GPU kernels.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{is_installed, root, target};
use crate::steps::Outcome;

/// Runs `tests/interop` in an environment of its own below the target folder.
pub(crate) fn run_tests() -> Outcome {
    let tests = root().join("tests").join("interop");
    let folder = match environment("interop", &tests.join("requirements.txt")) {
        Ok(folder) => folder,
        Err(reason) => return Outcome::Skipped(reason),
    };
    let mut command = Command::new(interpreter(&folder));
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]).arg(tests);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("BEAMSTREAM_TARGET", target().join("release"));
    Outcome::of(command)
}

/// An environment below the target folder that holds the requirements; made anew when they have changed.
pub(crate) fn environment(name: &str, requirements: &Path) -> Result<PathBuf, String> {
    if !is_installed("python3", "--version") {
        return Err("python3 is not installed".into());
    }
    let folder = target().join(name);
    let installed = folder.join("requirements.txt");
    let wanted = fs::read(requirements).map_err(|error| format!("{}: {error}", requirements.display()))?;
    if interpreter(&folder).exists() && fs::read(&installed).is_ok_and(|have| have == wanted) {
        return Ok(folder);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    quietly(make, "a Python environment cannot be made")?;
    let mut install = Command::new(interpreter(&folder));
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(requirements);
    quietly(install, "the Python packages cannot be installed")?;
    fs::write(&installed, wanted).map_err(|error| format!("{}: {error}", installed.display()))?;
    Ok(folder)
}

/// The interpreter of an environment.
fn interpreter(environment: &Path) -> PathBuf {
    environment.join("bin").join("python")
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
