//! Who limited a run: the node or the copies that the others waited for.

use beamstream_buffer::DeviceId;
use serde::Serialize;

use crate::run::{RunShared, SharedNode};

/// What limited a run, and for how much of it.
///
/// It is told from waiting times on the host. A node that waits neither for input, nor for room, nor for a device is
/// busy; a source is busy, too, while it waits for a detector or a disk. Where the host waits for a device, it is the
/// transfer beside that node which is at work, or, where most of its copies are enqueued before what they read is
/// computed or what they write is used up, the node on the device at its other end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// The node.
    pub node: String,
    /// Where it works.
    pub device: String,
    /// What it does.
    pub work: Work,
    /// Part of the time, from the first to the last block of the run, for which it was at work. 0 to 1.
    pub busy: f64,
}

/// What a node that limits does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Brings frames from outside.
    Source,
    /// Computes, or writes files.
    Node,
    /// Copies between the host and a device.
    Copies,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, device, work, busy } = self;
        let what = match work {
            Work::Source => "the source",
            Work::Node => "the node",
            Work::Copies => "the copies of",
        };
        write!(f, "{what} {node} on {device} set the pace, busy for {:.0} % of the time", busy * 100.0)
    }
}

impl Limit {
    /// The limit of a run that has ended; `None` if no block moved.
    pub(crate) fn of(shared: &RunShared) -> Option<Self> {
        let nodes = &shared.nodes;
        let began = nodes.iter().filter_map(|node| node.stats.began_secs()).reduce(f64::min)?;
        let ended = nodes.iter().filter_map(|node| node.stats.last_secs()).fold(began, f64::max);
        let on_host = nodes.iter().filter(|node| node.device == DeviceId::Cpu);
        let busy = on_host.map(|node| (node, node.seconds_at_work()));
        let waited =
            nodes.iter().filter_map(|node| Some((at_work_for(shared, node)?, node.seconds_waiting_device())));
        let (node, seconds) = busy.chain(waited).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let work = match (node.is_source, node.copies.is_some()) {
            (true, _) => Work::Source,
            (_, true) => Work::Copies,
            _ => Work::Node,
        };
        let busy = (seconds / (ended - began).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        Some(Self { node: node.id.clone(), device: node.device.to_string(), work, busy })
    }
}

/// Who is at work on a device while this node of the host waits for one.
fn at_work_for<'a>(shared: &'a RunShared, node: &SharedNode) -> Option<&'a SharedNode> {
    let find = |id: &str| shared.nodes.iter().find(|node| node.id == id);
    let is_neighbor = |from: &str, to: &str| (from == node.id) != (to == node.id);
    let beside = shared.edges.iter().filter(|edge| is_neighbor(&edge.from, &edge.to)).filter_map(|edge| {
        let is_behind = edge.from == node.id;
        Some((find(if is_behind { &edge.to } else { &edge.from })?, is_behind))
    });
    let (transfer, is_behind) = beside.into_iter().find(|(other, _)| other.copies.is_some())?;
    if !transfer.copies.as_ref()?.wait_for_others() {
        return Some(transfer);
    }
    let mut other_end = shared.edges.iter().filter_map(|edge| {
        let (near, far) = if is_behind { (&edge.from, &edge.to) } else { (&edge.to, &edge.from) };
        if *near == transfer.id { find(far) } else { None }
    });
    Some(other_end.next().unwrap_or(transfer))
}
