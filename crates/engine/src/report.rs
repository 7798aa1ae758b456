//! The report of a run: what came, what became of it, where the time went.

use std::sync::atomic::Ordering;
use std::time::Instant;

use beamstream_core::FrameCounts;
use beamstream_node::{SeriesRecord, Warning};
use serde::Serialize;

use crate::budget::peak_rss_bytes;
use crate::limit::Limit;
use crate::run::{Outcome, ParameterChange, RunShared};

/// What a run tells the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCode {
    /// Done and complete.
    Done,
    /// Finished, but the data are incomplete.
    Incomplete,
    /// Stopped by the user.
    Stopped,
    /// A source or sink failed for good.
    Io,
    /// Wrong usage, configuration or unreadable input.
    Config,
    /// The program is at fault.
    Internal,
}

impl ExitCode {
    /// The code by the contract.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Internal => 1,
            Self::Config => 2,
            Self::Incomplete => 3,
            Self::Io => 4,
            Self::Stopped => 130,
        }
    }
}

/// The report of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of the program.
    pub version: &'static str,
    /// Name of the pipeline.
    pub pipeline: String,
    /// How the run ended.
    pub exit: ExitCode,
    /// What went wrong for good, in words.
    pub errors: Vec<Warning>,
    /// All series, in the order in which they began.
    pub series: Vec<SeriesReport>,
    /// Complete series that are not listed because there were so many.
    pub series_not_listed: u64,
    /// All nodes.
    pub nodes: Vec<NodeReport>,
    /// All edges.
    pub edges: Vec<EdgeReport>,
    /// Parameters that were changed on the way.
    pub changes: Vec<ParameterChange>,
    /// Memory.
    pub memory: MemoryReport,
    /// Who limited the run.
    pub limit: Option<Limit>,
    /// Energy, where the hardware tells. Unit: joules.
    pub energy_joules: Option<f64>,
    /// What a user should know of, though the run went on.
    pub warnings: Vec<Warning>,
}

/// One series of a [`Report`].
#[derive(Debug, Clone, Serialize)]
pub struct SeriesReport {
    /// The detector's number, or the count on arrival.
    pub id: u64,
    /// The account of its frames.
    pub frames: FrameCounts,
    /// Rotation axis used, in detector columns.
    pub rotation_axis_px: Option<f64>,
    /// Projections and the range of their angles.
    pub angles: AngleReport,
    /// Times.
    pub seconds: SeriesSeconds,
    /// What was moved.
    pub bytes: SeriesBytes,
    /// Whether it was cut short.
    pub aborted: bool,
}

/// Projections of a series.
#[derive(Debug, Clone, Serialize)]
pub struct AngleReport {
    /// Number of projections used.
    pub projections: Option<u64>,
    /// Smallest angle. Unit: degrees.
    pub first_deg: Option<f64>,
    /// Largest angle. Unit: degrees.
    pub last_deg: Option<f64>,
}

/// What was moved of a series. Unit: bytes.
#[derive(Debug, Clone, Serialize)]
pub struct SeriesBytes {
    /// Blocks that its source sent, in all passes.
    #[serde(rename = "in")]
    pub taken_in: u64,
    /// Blocks that its sinks took, each sink counted; what is only looked at is not.
    pub out: u64,
    /// Blocks that were copied as they are, from one memory to another, by transfer nodes.
    pub copied: u64,
}

/// Times of a series. Unit: seconds.
#[derive(Debug, Clone, Serialize)]
pub struct SeriesSeconds {
    /// From the first to the last frame.
    pub first_frame_to_last: Option<f64>,
    /// From the last frame to the last slice; where a device makes it, until that slice was in host memory.
    pub last_frame_to_volume: Option<f64>,
    /// From the last frame until a device had made the last slice.
    pub last_frame_to_volume_on_device: Option<f64>,
    /// From the first frame to the last slice.
    pub total: Option<f64>,
}

/// One node of a [`Report`].
#[derive(Debug, Clone, Serialize)]
pub struct NodeReport {
    /// The node.
    pub id: String,
    /// Its kind.
    pub kind: &'static str,
    /// Where it ran.
    pub device: String,
    /// Blocks taken in.
    pub blocks_in: u64,
    /// Blocks handed on; for a sink, taken in.
    pub blocks: u64,
    /// Bytes handed on.
    pub bytes_out: u64,
    /// Blocks or series that it could not use.
    pub rejected: u64,
    /// Time spent without waiting. On a device that is the time in which work was enqueued, not that in which the
    /// device did it.
    pub seconds_busy: f64,
    /// Time spent waiting for input.
    pub seconds_waiting_input: f64,
    /// Time spent waiting for room behind it: in an edge, or for a free buffer.
    pub seconds_waiting_output: f64,
    /// Time spent waiting until a device had written its input, or had read the buffers of its output.
    pub seconds_waiting_device: f64,
}

/// One edge of a [`Report`].
#[derive(Debug, Clone, Serialize)]
pub struct EdgeReport {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// Most bytes that waited at once.
    pub peak_bytes: u64,
    /// Blocks that fell out, by the policy `latest`.
    pub dropped: u64,
    /// Blocks that went over disk, by the policy `spill`.
    pub spilled: u64,
    /// Of these, blocks that could not be read back.
    pub damaged: u64,
    /// Time that the sender waited for room.
    pub seconds_waited: f64,
}

/// Memory of a [`Report`]. Unit: bytes.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryReport {
    /// Most that the process had resident.
    pub peak_rss_bytes: u64,
    /// Pinned host memory that the plan gave out, the most at once.
    pub pinned_bytes: u64,
    /// Memory of devices that the plan gave out, the most at once.
    pub device_bytes: u64,
}

impl Report {
    /// Gathers the report of a run that has ended.
    pub(crate) fn of(shared: &RunShared, outcome: &Outcome) -> Self {
        let records = shared.journal.all_series();
        let errors = outcome.failures.iter().map(|failure| Warning {
            node: failure.node.clone(),
            message: failure.message.clone(),
            count: 1,
        });
        let memory = shared.sizer.peak();
        let nodes: Vec<NodeReport> = shared.nodes.iter().map(node_report).collect();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            pipeline: shared.name.clone(),
            exit: exit(shared, outcome, &records, &nodes),
            errors: errors.collect(),
            series: records.iter().map(series_report).collect(),
            series_not_listed: shared.journal.forgotten_series(),
            nodes,
            edges: shared.edges.iter().map(edge_report).collect(),
            changes: shared.changes(),
            memory: MemoryReport {
                peak_rss_bytes: peak_rss_bytes(),
                pinned_bytes: memory.pinned,
                device_bytes: memory.on_devices(),
            },
            limit: Limit::of(shared),
            energy_joules: shared.energy.used_joules(),
            warnings: shared.journal.warnings(),
        }
    }

    /// What the run tells the shell.
    pub fn exit_code(&self) -> u8 {
        self.exit.code()
    }
}

/// The gravest thing that happened.
fn exit(shared: &RunShared, outcome: &Outcome, records: &[SeriesRecord], nodes: &[NodeReport]) -> ExitCode {
    let mut exit = outcome.failures.iter().map(|failure| failure.code).max().unwrap_or(ExitCode::Done);
    if outcome.panics > 0 {
        exit = ExitCode::Internal;
    }
    if shared.stopped_by_user.load(Ordering::Relaxed) {
        exit = exit.max(ExitCode::Stopped);
    }
    let incomplete = |record: &SeriesRecord| record.aborted || !record.counts.is_complete();
    let damaged = shared.edges.iter().any(|edge| edge.stats.damaged() > 0);
    if damaged || records.iter().any(incomplete) || nodes.iter().any(|node| node.rejected > 0) {
        exit = exit.max(ExitCode::Incomplete);
    }
    exit
}

fn series_report(record: &SeriesRecord) -> SeriesReport {
    let between =
        |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?).as_secs_f64());
    SeriesReport {
        id: record.id.number,
        frames: FrameCounts {
            // Several edges may spill the same frame, and a scan may pass one several times.
            spilled: record.spilled.min(record.counts.processed),
            ..record.counts.clone()
        },
        rotation_axis_px: record.rotation_axis_px,
        angles: AngleReport {
            projections: record.projections,
            first_deg: record.angle_range_rad.map(|[first, _]| first.to_degrees()),
            last_deg: record.angle_range_rad.map(|[_, last]| last.to_degrees()),
        },
        seconds: SeriesSeconds {
            first_frame_to_last: between(record.first_frame, record.last_frame),
            last_frame_to_volume: between(record.last_frame, record.volume_done),
            last_frame_to_volume_on_device: between(record.last_frame, record.volume_on_device),
            total: between(record.first_frame, record.volume_done.or(record.last_frame)),
        },
        bytes: SeriesBytes { taken_in: record.bytes_in, out: record.bytes_out, copied: record.bytes_copied },
        aborted: record.aborted,
    }
}

fn node_report(node: &crate::run::SharedNode) -> NodeReport {
    let stats = &node.stats;
    NodeReport {
        id: node.id.clone(),
        kind: node.kind,
        device: node.device.to_string(),
        blocks_in: stats.blocks_in(),
        blocks: stats.blocks_out().max(stats.blocks_in()),
        bytes_out: stats.bytes_out(),
        rejected: stats.rejected(),
        seconds_busy: node.seconds_busy(),
        seconds_waiting_input: stats.seconds_waiting_input(),
        seconds_waiting_output: node.seconds_waiting_output(),
        seconds_waiting_device: node.seconds_waiting_device(),
    }
}

fn edge_report(edge: &crate::run::SharedEdge) -> EdgeReport {
    EdgeReport {
        from: edge.from.clone(),
        to: edge.to.clone(),
        peak_bytes: edge.stats.peak_bytes(),
        dropped: edge.stats.dropped(),
        spilled: edge.stats.spilled(),
        damaged: edge.stats.damaged(),
        seconds_waited: edge.stats.waited_ns() as f64 * 1e-9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_exit_wins() {
        let order = [
            ExitCode::Done,
            ExitCode::Incomplete,
            ExitCode::Stopped,
            ExitCode::Io,
            ExitCode::Config,
            ExitCode::Internal,
        ];
        assert!(order.is_sorted());
        assert_eq!(order.map(ExitCode::code), [0, 3, 130, 4, 2, 1]);
    }
}
