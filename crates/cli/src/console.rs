//! Everything that is written to the terminal: results on stdout, all else on stderr.

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::args::{GlobalArgs, LogFormat};
use crate::failure::Failure;

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const PLAIN: &str = "\x1b[0m";

/// How this program talks to its user.
#[derive(Clone)]
pub(crate) struct Console {
    quiet: bool,
    format: LogFormat,
    /// Bars and lines share stderr through this.
    bars: MultiProgress,
}

impl Console {
    /// Sets the log up by the global arguments.
    pub(crate) fn start(args: &GlobalArgs) -> Self {
        let people = args.log_format == LogFormat::Text && io::stderr().is_terminal() && !args.quiet;
        let target = if people { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let console = Self {
            quiet: args.quiet,
            format: args.log_format,
            bars: MultiProgress::with_draw_target(target),
        };
        let level = match (args.quiet, args.verbose) {
            (true, _) => "error",
            (_, 0) => "warn",
            (_, 1) => "info",
            (_, 2) => "debug",
            _ => "trace",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_not_set| EnvFilter::new(level));
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(LogWriter(console.bars.clone()))
            .with_target(false);
        match args.log_format {
            LogFormat::Text => log.with_ansi(colours()).without_time().init(),
            LogFormat::Json => log.json().init(),
        }
        console
    }

    /// Whether somebody watches.
    pub(crate) fn is_watched(&self) -> bool {
        !self.bars.is_hidden()
    }

    /// Writes a result to stdout.
    ///
    /// # Errors
    /// If stdout takes no more, unless its reader has simply gone.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        let mut out = io::stdout().lock();
        let written = self.bars.suspend(|| write!(out, "{text}{end}").and_then(|()| out.flush()));
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::system("cannot write to standard output", &error))
            }
            _ => Ok(()),
        }
    }

    /// Writes a result to stdout as JSON.
    ///
    /// # Errors
    /// As [`Self::print`].
    pub(crate) fn print_json(&self, value: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value);
        let text = text.map_err(|error| Failure::new(beamstream::ExitCode::Internal, error.to_string()))?;
        self.print(&text)
    }

    /// Tells something that people want to know, unless they want quiet.
    pub(crate) fn say(&self, text: &str) {
        if !self.quiet {
            self.line("INFO", "", "", text);
        }
    }

    /// Tells something that people should look at, unless they want quiet.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            self.line("WARN", "warning: ", YELLOW, text);
        }
    }

    /// Tells what went wrong for good.
    pub(crate) fn error(&self, text: &str) {
        self.line("ERROR", "error: ", RED, text);
    }

    /// Tells why a command ends early.
    pub(crate) fn fail(&self, failure: &Failure) {
        for line in failure.lines() {
            self.error(line);
        }
    }

    fn line(&self, level: &str, label: &str, colour: &str, text: &str) {
        self.bars.suspend(|| match self.format {
            LogFormat::Json => json_line(level, text),
            LogFormat::Text => {
                let (on, off) = if colours() && !label.is_empty() { (colour, PLAIN) } else { ("", "") };
                // Where stderr is closed nobody reads it.
                writeln!(io::stderr(), "{on}{label}{off}{text}").ok();
            }
        });
    }

    /// A bar on a terminal, nothing elsewhere. `template` is that of [`ProgressStyle`].
    pub(crate) fn bar(&self, template: &str, length: Option<u64>) -> ProgressBar {
        let bar = self.bars.add(length.map_or_else(ProgressBar::no_length, ProgressBar::new));
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_plain_will_do) => bar,
        }
    }
}

/// A line of the log as `tracing-subscriber` writes it.
pub(crate) fn json_line(level: &str, text: &str) {
    let mut timestamp = String::new();
    // Writing into a text cannot fail; a line without its time is better than none.
    SystemTime.format_time(&mut Writer::new(&mut timestamp)).ok();
    let line = json!({
        "timestamp": timestamp,
        "level": level,
        "fields": { "message": text },
    });
    writeln!(io::stderr(), "{line}").ok();
}

/// Whether stderr shows colours (`NO_COLOR`: <https://no-color.org>).
fn colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes log lines above the bars.
struct LogWriter(MultiProgress);

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> LogLine<'a> {
        LogLine(&self.0)
    }
}

struct LogLine<'a>(&'a MultiProgress);

impl Write for LogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
