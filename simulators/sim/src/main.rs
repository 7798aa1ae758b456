//! `beamstream-sim`: simulated detectors.

mod cli;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use beamstream_sim::{
    FrameSource, Phantom, PhantomError, RowsError, ScanSource, Settings, SimError, Simulator, Stop,
    WriteError, write_nxtomo,
};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::EnvFilter;

use cli::{Cli, Command, LogFormat, PhantomArgs, ReplayArgs};

/// Exit codes of the contract that this program uses beside 0 and clap's own 2 for wrong usage.
const INTERNAL: u8 = 1;
const UNREADABLE: u8 = 2;
const FAILED_FOR_GOOD: u8 = 4;
const STOPPED: u8 = 130;

/// Why the program ends early, and with which exit code.
struct Failure {
    code: u8,
    error: Box<dyn Error>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(&cli);
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&cli, &failure);
            ExitCode::from(failure.code)
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Replay(args) => replay(cli, args),
        Command::Phantom(args) => phantom(cli, args),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "beamstream-sim", &mut std::io::stdout());
            Ok(())
        }
    }
}

fn replay(cli: &Cli, args: &ReplayArgs) -> Result<(), Failure> {
    let settings = args.send.settings().unwrap_or_else(|missing| exit_with_usage("replay", missing));
    let mut scan = ScanSource::open(&args.scan).map_err(|error| Failure::new(UNREADABLE, error))?;
    if let Some((first, end)) = args.rows {
        scan = scan.with_rows(first, end)?;
    }
    for warning in scan.warnings() {
        tracing::warn!("{warning}");
    }
    send(cli, Box::new(scan), settings)
}

fn phantom(cli: &Cli, args: &PhantomArgs) -> Result<(), Failure> {
    if let Some(path) = &args.write {
        return write(cli, path, &Phantom::new(args.shape.config())?, args);
    }
    let missing = |missing| exit_with_usage("phantom", &format!("{missing}, or --write <FILE>"));
    let settings = args.send.settings().unwrap_or_else(missing);
    send(cli, Box::new(Phantom::new(args.shape.config())?), settings)
}

fn write(cli: &Cli, path: &Path, phantom: &Phantom, args: &PhantomArgs) -> Result<(), Failure> {
    if path.exists() && !args.overwrite {
        let text = format!("{} exists; --overwrite replaces it", path.display());
        return Err(Failure { code: UNREADABLE, error: text.into() });
    }
    let bar = progress_bar(cli, phantom.frames().len() as u64);
    let stop = Stop::default();
    stop_on_signals(stop.clone())?;
    let written = write_nxtomo(path, phantom, args.truth, &stop, |ready| bar.set_position(ready));
    bar.finish_and_clear();
    written?;
    tracing::info!(frames = phantom.frames().len(), "wrote {}", path.display());
    Ok(())
}

fn send(cli: &Cli, source: Box<dyn FrameSource>, settings: Settings) -> Result<(), Failure> {
    let repeat = settings.repeat;
    let simulator = Simulator::open(source, settings)?;
    stop_on_signals(simulator.stop())?;
    let per_pass = simulator.frames_per_pass();
    tracing::info!(frames = per_pass, repeat, "sending at {}", simulator.endpoint());
    let bar = progress_bar(cli, per_pass.saturating_mul(repeat));
    let started = Instant::now();
    let sent = simulator.run(|frames| bar.set_position(frames));
    bar.finish_and_clear();
    let sent = sent?;
    let seconds = started.elapsed().as_secs_f64();
    if sent.dropped > 0 {
        tracing::warn!("{} messages were dropped because a subscriber was too slow", sent.dropped);
    }
    tracing::info!(frames = sent.frames, bytes = sent.bytes, seconds, "everything is sent");
    Ok(())
}

/// Stops the simulator at the first Ctrl-C or SIGTERM and ends the program at the second.
fn stop_on_signals(stop: Stop) -> Result<(), Failure> {
    let internal = |error| Failure::new(INTERNAL, error);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(internal)?;
    let wait = move || {
        for _ in &mut signals {
            if stop.is_set() {
                std::process::exit(i32::from(STOPPED));
            }
            stop.set();
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop).map_err(internal)
}

/// A bar on a terminal; nothing elsewhere. `total` is 0 where it is not known.
fn progress_bar(cli: &Cli, total: u64) -> ProgressBar {
    if cli.quiet || cli.log_format == LogFormat::Json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = if total == 0 { ProgressBar::no_length() } else { ProgressBar::new(total) };
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} frames, {per_sec}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_plain_will_do) => bar,
    }
}

fn start_log(cli: &Cli) {
    let level = match (cli.quiet, cli.verbose) {
        (true, _) => "error",
        (_, 0) => "info",
        (_, 1) => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_not_set| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match cli.log_format {
        LogFormat::Text => log.with_ansi(colours).without_time().init(),
        LogFormat::Json => log.json().init(),
    }
}

/// Tells the error and its causes: as a log line where logs are JSON, else for people.
fn report(cli: &Cli, failure: &Failure) {
    let error: &(dyn Error + 'static) = &*failure.error;
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let text = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    if cli.log_format == LogFormat::Json {
        tracing::error!("{text}");
    } else {
        // Where standard error is closed nobody reads it.
        writeln!(std::io::stderr(), "error: {text}").ok();
    }
}

/// Ends the program as clap does where an option is missing.
fn exit_with_usage(command: &str, missing: &str) -> ! {
    let mut root = Cli::command();
    root.build();
    let mut plain = Cli::command();
    let sub = root.find_subcommand_mut(command).unwrap_or(&mut plain);
    sub.error(ErrorKind::MissingRequiredArgument, format!("expected {missing}")).exit()
}

impl Failure {
    fn new(code: u8, error: impl Error + 'static) -> Self {
        Self { code, error: Box::new(error) }
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        let code = match error {
            SimError::Stopped(_) => STOPPED,
            SimError::Sender(_) => FAILED_FOR_GOOD,
            _ => UNREADABLE,
        };
        Self::new(code, error)
    }
}

impl From<PhantomError> for Failure {
    fn from(error: PhantomError) -> Self {
        Self::new(UNREADABLE, error)
    }
}

impl From<RowsError> for Failure {
    fn from(error: RowsError) -> Self {
        Self::new(UNREADABLE, error)
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        let code = match error {
            WriteError::TooLarge { .. } => UNREADABLE,
            WriteError::Stopped(_) => STOPPED,
            _ => FAILED_FOR_GOOD,
        };
        Self::new(code, error)
    }
}
