//! A run from its start to its end: signals, figures, the page, the report.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use beamstream::{ExitCode, Plan, Report};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::console::Console;
use crate::failure::Failure;
use crate::figures::Figures;
use crate::view::{Page, SharedRun, Show};

/// How often a run is looked at; a run that ends is noticed after this at the latest.
const TICK: Duration = Duration::from_millis(20);
/// Stop signals that may wait to be seen; further ones say nothing new.
const WAITING_STOPS: usize = 8;

/// What a run leaves and shows.
pub(crate) struct Drive<'a> {
    /// Where the report goes.
    pub(crate) report: Option<&'a Path>,
    /// Whether and where the run is shown.
    pub(crate) show: Show,
}

/// A run that has ended. Its page goes down when this is dropped.
pub(crate) struct Driven {
    pub(crate) report: Report,
    page: Option<Page>,
    stops: Receiver<()>,
}

/// Starts a plan and stays with it until it has ended. What went wrong is told; the report says how it ended.
///
/// # Errors
/// [`Failure`] if it cannot be started or shown, or if the report cannot be written.
pub(crate) fn drive(
    plan: Plan,
    console: &Console,
    figures: &dyn Figures,
    how: &Drive<'_>,
) -> Result<Driven, Failure> {
    let stops = stop_signals()?;
    let handle = plan.start().map_err(|error| Failure::system("the run cannot be started", &error))?;
    let run = SharedRun::new(handle);
    let page = Page::open(how.show, &run)?;
    if let Some(page) = &page {
        console.say(&format!("live view: http://{}/", page.address()));
    }
    let report = watch(&run, &stops, console, figures);
    figures.finish();
    tell(&report, console);
    if let Some(path) = how.report {
        write_report(&report, path)?;
    }
    Ok(Driven { report, page, stops })
}

impl Driven {
    /// Keeps the page up until the user ends it, if there is one and somebody watches.
    pub(crate) fn stay_on_show(&self, console: &Console) {
        if self.page.is_some() && console.is_watched() && self.report.exit != ExitCode::Stopped {
            console.say("the volume stays on show; Ctrl-C ends");
            // An error would mean that nobody can send a signal any more.
            self.stops.recv().ok();
        }
    }
}

/// Looks at the run until it has ended: the first signal drains it, the second halts it.
fn watch(run: &SharedRun, stops: &Receiver<()>, console: &Console, figures: &dyn Figures) -> Report {
    let mut stopped = false;
    loop {
        if let Some(report) = run.report() {
            return report;
        }
        let signal = stops.recv_timeout(TICK);
        let handle = run.handle();
        match signal {
            Ok(()) if stopped => handle.halt(),
            Ok(()) => {
                stopped = true;
                console.say("stopping: what is under way is finished; once more stops at once");
                handle.drain();
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        figures.update(&handle.status());
    }
}

/// Ctrl-C and SIGTERM, from now on.
fn stop_signals() -> Result<Receiver<()>, Failure> {
    let failure = |error: std::io::Error| Failure::system("signals cannot be listened to", &error);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failure)?;
    let (sender, receiver) = sync_channel(WAITING_STOPS);
    let listen = move || {
        for _ in &mut signals {
            // Full: the run is told already. Closed: it has ended.
            sender.try_send(()).ok();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(failure)?;
    Ok(receiver)
}

/// Tells how a run ended.
fn tell(report: &Report, console: &Console) {
    for error in &report.errors {
        console.error(&format!("node '{}': {}", error.node, error.message));
    }
    match report.exit {
        ExitCode::Stopped => console.say("stopped by the user"),
        ExitCode::Incomplete => console.warn("the data are incomplete (exit code 3)"),
        ExitCode::Internal if report.errors.is_empty() => {
            console.error("the program is at fault: see the log");
        }
        _ => {}
    }
}

/// Writes the report; it appears under its name only when it is whole.
fn write_report(report: &Report, path: &Path) -> Result<(), Failure> {
    let failure = |error: std::io::Error| {
        Failure::new(ExitCode::Io, format!("the report cannot be written to {}: {error}", path.display()))
    };
    let text = serde_json::to_string_pretty(report).map_err(|error| failure(error.into()))?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failure)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".partial-{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let written = std::fs::write(&unfinished, text + "\n").and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        // What is left of it is of no use; the error that counts is the first.
        std::fs::remove_file(&unfinished).ok();
    }
    written.map_err(failure)
}
