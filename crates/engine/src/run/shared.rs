//! What all parts of a run look at: nodes and edges with their counters, stops, changes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use beamstream_buffer::DeviceId;
use beamstream_node::{Journal, StopController};
use serde::Serialize;
use serde_json::Value;

use super::edge::EdgeStats;
use super::energy::Energy;
use super::shelf::PoolShelf;
use super::stats::NodeStats;
use super::trace::Tracer;
use crate::plan::{Copies, SeriesSizer};
use crate::report::ExitCode;

/// Parameter changes that are kept for the report.
const MAX_CHANGES: usize = 1000;

/// One node, as everybody may look at it.
pub(crate) struct SharedNode {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) device: DeviceId,
    pub(crate) is_source: bool,
    pub(crate) stats: Arc<NodeStats>,
    pub(crate) pools: PoolShelf,
    pub(crate) journal: Journal,
    /// How the copies of a transfer went.
    pub(crate) copies: Option<Arc<Copies>>,
}

impl SharedNode {
    /// Time spent waiting for room behind it: in edges, or for a free buffer.
    pub(crate) fn seconds_waiting_output(&self) -> f64 {
        self.stats.seconds_waiting_output() + self.pools.waits().for_room_ns as f64 * 1e-9
    }

    /// Time spent waiting until a device had written its input, or had read the buffers of its output.
    pub(crate) fn seconds_waiting_device(&self) -> f64 {
        self.stats.seconds_waiting_device() + self.pools.waits().for_device_ns as f64 * 1e-9
    }

    /// Time spent with none of these waits.
    pub(crate) fn seconds_busy(&self) -> f64 {
        let waited = self.stats.seconds_waiting_input() + self.seconds_waiting_for_others();
        (self.stats.seconds_alive() - waited).max(0.0)
    }

    /// The same from the first block to the end of the last series.
    pub(crate) fn seconds_at_work(&self) -> f64 {
        let (Some(began), Some(last)) = (self.stats.began_secs(), self.stats.last_secs()) else { return 0.0 };
        let waited = self.stats.seconds_waiting_within() + self.seconds_waiting_for_others();
        (last - began - waited).max(0.0)
    }

    fn seconds_waiting_for_others(&self) -> f64 {
        self.seconds_waiting_output() + self.seconds_waiting_device()
    }
}

/// One edge, as everybody may look at it.
pub(crate) struct SharedEdge {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) stats: Arc<EdgeStats>,
}

/// What the control plane and the handle share.
pub(crate) struct RunShared {
    pub(crate) name: String,
    pub(crate) started: Instant,
    pub(crate) nodes: Vec<SharedNode>,
    pub(crate) edges: Vec<SharedEdge>,
    pub(crate) journal: Journal,
    pub(crate) stop: StopController,
    pub(crate) stopped_by_user: AtomicBool,
    pub(crate) sizer: Arc<SeriesSizer>,
    pub(crate) energy: Energy,
    pub(super) tracer: Option<Tracer>,
    pub(super) changes: Mutex<Vec<ParameterChange>>,
}

/// A parameter that was changed while the run went on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterChange {
    /// Blocks made from then on carry this epoch.
    pub epoch: u32,
    /// The node.
    pub node: String,
    /// The parameter.
    pub key: String,
    /// Its new value.
    pub value: Value,
    /// Seconds since the start of the run.
    pub at_secs: f64,
}

/// Why a run did not go as it should.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) node: String,
    pub(crate) code: ExitCode,
    pub(crate) message: String,
}

/// How a run ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) failures: Vec<Failure>,
    pub(crate) panics: u64,
}

impl RunShared {
    pub(crate) fn note_change(&self, epoch: u32, node: &str, key: &str, value: &Value) {
        let at_secs = self.started.elapsed().as_secs_f64();
        let change = ParameterChange {
            epoch,
            node: node.to_owned(),
            key: key.to_owned(),
            value: value.clone(),
            at_secs,
        };
        tracing::info!(node, key, %value, epoch, "parameter changed");
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.len() < MAX_CHANGES {
            changes.push(change);
        }
    }

    pub(crate) fn changes(&self) -> Vec<ParameterChange> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands the counters to whatever recorder of the `metrics` crate is installed.
    pub(crate) fn publish_metrics(&self) {
        for node in &self.nodes {
            let label = [("node", node.id.clone())];
            metrics::counter!("beamstream_node_blocks_total", &label).absolute(node.stats.progress());
            metrics::counter!("beamstream_node_output_bytes_total", &label).absolute(node.stats.bytes_out());
            metrics::gauge!("beamstream_node_busy_seconds", &label).set(node.seconds_busy());
            metrics::gauge!("beamstream_node_waiting_input_seconds", &label)
                .set(node.stats.seconds_waiting_input());
            metrics::gauge!("beamstream_node_waiting_output_seconds", &label)
                .set(node.seconds_waiting_output());
            metrics::gauge!("beamstream_node_waiting_device_seconds", &label)
                .set(node.seconds_waiting_device());
        }
        for edge in &self.edges {
            let label = [("edge", format!("{}->{}", edge.from, edge.to))];
            metrics::gauge!("beamstream_edge_queued_bytes", &label).set(edge.stats.queued_bytes() as f64);
            metrics::counter!("beamstream_edge_dropped_total", &label).absolute(edge.stats.dropped());
        }
    }

    /// Ends everything at once.
    pub(super) fn halt(&self) {
        self.stop.halt();
        for node in &self.nodes {
            node.pools.close();
        }
    }
}
