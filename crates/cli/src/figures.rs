//! Live figures of a run: one line, on a terminal only.

use std::cell::Cell;
use std::fmt::Write;
use std::time::Duration;

use beamstream::{Report, SeriesReport, Status, show_bytes};
use indicatif::ProgressBar;

use crate::console::Console;

/// Shows how a run goes.
pub(crate) trait Figures {
    /// Looks at the run; called some ten times a second.
    fn update(&self, status: &Status);

    /// Takes the figures down.
    fn finish(&self);
}

/// Progress over a recorded scan: its frames, then its slices.
pub(crate) struct ReconFigures {
    bar: ProgressBar,
    frames: usize,
    slices: usize,
}

impl ReconFigures {
    pub(crate) fn new(console: &Console, frames: usize, slices: usize) -> Self {
        let bar = console.bar("{wide_bar} {percent} %  {msg}  {eta} left", Some((frames + slices) as u64));
        Self { bar, frames, slices }
    }
}

impl Figures for ReconFigures {
    fn update(&self, status: &Status) {
        let frames = sent_by(status, is_source).min(self.frames as u64);
        let slices = taken_by(status, is_sink).min(self.slices as u64);
        self.bar.set_position(frames + slices);
        self.bar.set_message(format!("frame {frames}/{}, slice {slices}/{}", self.frames, self.slices));
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// What a stream does: nobody knows how long it is.
pub(crate) struct StreamFigures<'a> {
    console: &'a Console,
    bar: ProgressBar,
    /// How often a line is told where nobody sees the bar.
    every: Option<Duration>,
    told: Cell<Duration>,
}

impl<'a> StreamFigures<'a> {
    pub(crate) fn new(console: &'a Console) -> Self {
        let bar = console.bar("{spinner} {msg}", None);
        Self { console, bar, every: None, told: Cell::default() }
    }

    /// The same, but where nobody sees the bar a line is told from time to time.
    pub(crate) fn telling(console: &'a Console, every: Duration) -> Self {
        Self { every: Some(every), ..Self::new(console) }
    }
}

impl Figures for StreamFigures<'_> {
    fn update(&self, status: &Status) {
        if self.console.is_watched() {
            self.bar.tick();
            self.bar.set_message(stream_line(status));
        } else if self.every.is_some_and(|every| status.elapsed >= self.told.get() + every) {
            self.told.set(status.elapsed);
            self.console.say(&stream_line(status));
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The state of a stream in a line.
fn stream_line(status: &Status) -> String {
    let Some(series) = status.series.last() else {
        return "waiting for the first series".to_owned();
    };
    let counts = &series.counts;
    // What has not come yet of the series at hand is not lost.
    let lost: u64 = status.series.iter().rev().skip(1).map(|earlier| earlier.counts.lost).sum();
    let expected = counts.expected.map_or_else(String::new, |expected| format!(" of {expected}"));
    let bytes = status.nodes.iter().filter(|node| is_source(node.kind)).map(|node| node.bytes_out).sum();
    let seconds = series.first_frame.map_or(Duration::ZERO, |first| first.elapsed()).as_secs_f64();
    let rate = if seconds > 0.0 { counts.received as f64 / seconds } else { 0.0 };
    let slices =
        status.nodes.iter().filter(|node| node.kind == "recon").map(|node| node.blocks_out).sum::<u64>();
    format!(
        "series {}: {} frames{expected}, {rate:.0} frames/s, {} in all, {lost} lost before, {slices} slices",
        series.id,
        counts.received,
        show_bytes(bytes)
    )
}

/// Tells what became of a stream, a line for each of its last series.
pub(crate) fn tell_series(report: &Report, console: &Console) {
    const SHOWN: usize = 10;
    let earlier = report.series.len().saturating_sub(SHOWN);
    if earlier > 0 {
        console.say(&format!("{earlier} earlier series are listed in --report"));
    }
    for series in &report.series[earlier..] {
        console.say(&series_line(series));
    }
}

/// Where a run was computed, and the energy that it took where a device tells.
pub(crate) fn work(report: &Report) -> String {
    let mut devices: Vec<&str> = report.nodes.iter().map(|node| node.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    // The ends of a pipeline are on the CPU always.
    if devices.len() > 1 {
        devices.retain(|device| *device != "cpu");
    }
    let energy = report.energy_joules.map_or_else(String::new, |joules| format!(", {joules:.0} J"));
    format!("on {}{energy}", devices.join(", "))
}

/// Tells who limited a run.
pub(crate) fn tell_pace(report: &Report, console: &Console) {
    if let Some(limit) = &report.limit {
        console.say(&limit.to_string());
    }
}

fn series_line(series: &SeriesReport) -> String {
    let frames = &series.frames;
    // Writing into a text cannot fail.
    let mut line = format!("series {}: {} frames", series.id, frames.processed);
    if let Some(expected) = frames.expected.filter(|expected| *expected != frames.processed) {
        write!(line, " of {expected}").ok();
    }
    for (count, what) in [
        (frames.lost, "lost"),
        (frames.duplicate, "double"),
        (frames.late, "late"),
        (frames.rejected, "rejected"),
    ] {
        if count > 0 {
            write!(line, ", {count} {what}").ok();
        }
    }
    if let Some(seconds) = series.seconds.total {
        write!(line, " in {seconds:.2} s").ok();
    }
    if let Some(seconds) = series.seconds.last_frame_to_volume {
        write!(line, ", volume {seconds:.2} s after the last frame").ok();
    }
    if series.aborted {
        line += ", cut short";
    }
    line
}

fn is_source(kind: &str) -> bool {
    kind.ends_with("_source")
}

fn is_sink(kind: &str) -> bool {
    kind.ends_with("_sink")
}

fn sent_by(status: &Status, wanted: fn(&str) -> bool) -> u64 {
    status.nodes.iter().filter(|node| wanted(node.kind)).map(|node| node.blocks_out).sum()
}

fn taken_by(status: &Status, wanted: fn(&str) -> bool) -> u64 {
    status.nodes.iter().filter(|node| wanted(node.kind)).map(|node| node.blocks_in).sum()
}
