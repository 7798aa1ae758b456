//! Starting other programs.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Lines of a program's output that are kept to be shown again.
const KEPT_LINES: usize = 60;

/// How a program ended.
pub(crate) struct Finished {
    /// Whether it exited with 0.
    pub(crate) success: bool,
    /// The last lines that it wrote.
    pub(crate) tail: VecDeque<String>,
    /// Lines by which tests say that they skipped something.
    pub(crate) skips: Vec<String>,
}

/// The folder of the workspace.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// The folder that cargo builds in.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Cargo, in the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    if io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    command
}

/// Whether a program can be started.
pub(crate) fn is_installed(program: &str, argument: &str) -> bool {
    let started = Command::new(program).arg(argument).stdin(Stdio::null()).output();
    started.is_ok_and(|output| output.status.success())
}

/// Whether cargo has a subcommand.
pub(crate) fn has_subcommand(name: &str) -> bool {
    cargo()
        .args([name, "--version"])
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Runs a program in the foreground and ends as it does.
pub(crate) fn foreground(command: &mut Command) -> ExitCode {
    match command.status() {
        Ok(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Err(error) => {
            eprintln!("error: {} cannot be started: {error}", command.get_program().display());
            ExitCode::FAILURE
        }
    }
}

/// Runs a program to its end, shows what it writes, but for lines that are `idle`, and keeps the last lines of it.
pub(crate) fn watch(mut command: Command, idle: fn(&str) -> bool) -> io::Result<Finished> {
    // One pipe for both, so that errors stay between the lines that they belong to.
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // The command holds the ends that are written to: without this the reader would wait for ever.
    drop(command);

    let mut finished = Finished { success: false, tail: VecDeque::new(), skips: Vec::new() };
    let mut out = io::stdout().lock();
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if idle(line.trim()) {
            continue;
        }
        writeln!(out, "{line}")?;
        if let Some(reason) = line.trim_start().strip_prefix("skipped: ") {
            finished.skips.push(reason.to_owned());
        }
        if finished.tail.len() == KEPT_LINES {
            finished.tail.pop_front();
        }
        finished.tail.push_back(line);
    }
    finished.success = child.wait()?.success();
    Ok(finished)
}
