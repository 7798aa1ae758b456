//! Figures with their bars and ceilings, as a table and as JSON.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use beamstream_engine::Report;
use serde::Serialize;

use crate::Outcome;
use crate::settings::{Section, Settings};

/// What a figure is to reach.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    AtMost(f64),
    AtLeast(f64),
    /// Nothing was promised.
    None,
}

/// The best that the hardware allows, and what sets it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Ceiling {
    pub(crate) value: f64,
    pub(crate) by: &'static str,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) bar: Bar,
    pub(crate) ceiling: Option<Ceiling>,
    /// Where the figure is a median: all values in the order in which they were measured.
    pub(crate) all: Vec<f64>,
    /// What else is to be known.
    pub(crate) note: String,
    /// The engine's report of the run, where there was one.
    pub(crate) report: Option<Report>,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        let what = what.into();
        Self {
            what,
            value,
            unit,
            bar: Bar::None,
            ceiling: None,
            all: Vec::new(),
            note: String::new(),
            report: None,
        }
    }

    /// The median of several values.
    pub(crate) fn median(what: impl Into<String>, all: &[f64], unit: &'static str) -> Self {
        Self { all: all.to_vec(), ..Self::new(what, beamstream_benches::median(all), unit) }
    }

    pub(crate) fn bar(self, bar: Bar) -> Self {
        Self { bar, ..self }
    }

    /// A ceiling; none where no device sets one.
    pub(crate) fn ceiling(self, value: f64, by: &'static str) -> Self {
        let is_set = value.is_finite() && value > 0.0;
        Self { ceiling: is_set.then_some(Ceiling { value, by }), ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// The report of the run, with where its nodes spent their time.
    pub(crate) fn report(self, report: Report) -> Self {
        Self { report: Some(report), ..self }
    }

    /// A line of the table.
    fn line(&self) -> String {
        let number = |value: f64| match value.abs() {
            small if small < 1e-3 => format!("{value:.1e}"),
            small if small < 10.0 => format!("{value:.4}"),
            _ => format!("{value:.0}"),
        };
        let (bar, verdict) = match self.bar {
            Bar::AtMost(most) => {
                (format!("<= {}", number(most)), if self.value <= most { "yes" } else { "**no**" })
            }
            Bar::AtLeast(least) => {
                (format!(">= {}", number(least)), if self.value >= least { "yes" } else { "**no**" })
            }
            Bar::None => (String::new(), ""),
        };
        let ceiling = self.ceiling.as_ref().map_or_else(String::new, |Ceiling { value, by }| {
            // A time is good when it is short, a rate when it is high.
            let part = if self.unit == "s" { value / self.value } else { self.value / value };
            format!("{} {by}, {:.0} %", number(*value), 100.0 * part)
        });
        format!(
            "| {} | {} {} | {bar} | {verdict} | {ceiling} | {} |",
            self.what,
            number(self.value),
            self.unit,
            self.note
        )
    }
}

/// All that was measured.
#[derive(Serialize)]
pub(crate) struct Results {
    device: String,
    date: String,
    commit: String,
    command: String,
    figures: Vec<Figure>,
    /// Sections that failed, and why.
    failures: Vec<[String; 2]>,
    #[serde(skip)]
    folder: std::path::PathBuf,
}

impl Results {
    pub(crate) fn new(device: String, settings: &Settings) -> Self {
        Self {
            device,
            date: date(),
            commit: settings.commit.clone(),
            command: settings.command.clone(),
            figures: Vec::new(),
            failures: Vec::new(),
            folder: settings.out.clone(),
        }
    }

    #[allow(clippy::print_stderr, reason = "a program for the terminal")]
    pub(crate) fn add(&mut self, figure: Figure) {
        eprintln!("{}", figure.line());
        for node in figure.report.iter().flat_map(|report| &report.nodes) {
            eprintln!(
                "   {:<24} {:>6} blocks, s: busy {:.3}, waited for input {:.3}, output {:.3}, device {:.3}",
                node.id,
                node.blocks,
                node.seconds_busy,
                node.seconds_waiting_input,
                node.seconds_waiting_output,
                node.seconds_waiting_device
            );
        }
        self.figures.push(figure);
    }

    /// The value of a figure that was measured before.
    pub(crate) fn value_of(&self, what: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.what == what).map(|figure| figure.value)
    }

    #[allow(clippy::print_stderr, reason = "a program for the terminal")]
    pub(crate) fn failed(&mut self, section: Section, why: &str) {
        eprintln!("failed: {}: {why}", section.name());
        self.failures.push([section.name().to_owned(), why.to_owned()]);
    }

    /// Writes `gpu-bench.md` and `gpu-bench.json`.
    ///
    /// # Errors
    /// If they cannot be written, or if a section failed.
    pub(crate) fn write(&self) -> Outcome<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.folder.join("gpu-bench.json"), serde_json::to_string_pretty(self)? + "\n")?;
        fs::write(self.folder.join("gpu-bench.md"), self.table()?)?;
        match self.failures.as_slice() {
            [] => Ok(()),
            [[section, why], ..] => {
                Err(format!("{} sections failed, first {section}: {why}", self.failures.len()).into())
            }
        }
    }

    fn table(&self) -> Result<String, std::fmt::Error> {
        let Self { device, date, commit, command, figures, failures, .. } = self;
        let mut text = String::new();
        writeln!(text, "# The engine on a GPU\n\n{device}; {date}; commit {commit}; `{command}`.\n")?;
        writeln!(
            text,
            "Medians. A ceiling is what the hardware allows, measured in the same run, and how near we are.\n"
        )?;
        writeln!(text, "| what | measured | bar | met | ceiling | note |\n|---|---|---|---|---|---|")?;
        for figure in figures {
            writeln!(text, "{}", figure.line())?;
        }
        for [section, why] in failures {
            writeln!(text, "\nFailed: {section}: {why}")?;
        }
        Ok(text)
    }
}

/// Now, as the system's own `date` tells it.
fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]).output();
    output.map_or_else(
        |_none| String::from("unknown"),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
