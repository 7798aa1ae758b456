//! Transfers: nodes that carry blocks between the host and devices, put in where an edge goes from one place to
//! another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use beamstream_buffer::{Allocator, Block, DeviceId, HostAllocator};
use beamstream_core::{SeriesHeader, SeriesSummary};
use beamstream_node::{BuildContext, KindClass, Negotiated, Node, NodeError, NodeErrorKind, Outlet};
use beamstream_ops::{Device, OpError, Transfer};

use super::{DEFAULT_CAPACITY, Draft, PlannedEdge, PlannedNode, PlannedRunner};
use crate::run::{Capacity, Policy};

/// The kind under which transfers are shown. It is no kind for pipeline files.
pub(crate) const TRANSFER: &str = "transfer";

/// One in so many copies is looked at: the driver takes as long to answer as to enqueue a copy. A prime, because nodes
/// hand blocks on in bursts.
const LOOKED_AT: u64 = 13;

/// How the copies of a transfer went.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    enqueued: AtomicU64,
    looked_at: AtomicU64,
    early: AtomicU64,
}

impl Copies {
    /// Counts a copy; an early one is enqueued before a device has written what it reads or read what it overwrites.
    fn count(&self, is_early: impl FnOnce() -> bool) {
        if self.enqueued.fetch_add(1, Ordering::Relaxed) % LOOKED_AT == LOOKED_AT / 2 {
            self.looked_at.fetch_add(1, Ordering::Relaxed);
            self.early.fetch_add(u64::from(is_early()), Ordering::Relaxed);
        }
    }

    /// Whether most of the copies have to wait for other work of a device, rather than that for them.
    pub(crate) fn wait_for_others(&self) -> bool {
        2 * self.early.load(Ordering::Relaxed) > self.looked_at.load(Ordering::Relaxed)
    }
}

/// Copies every block into a buffer on the other side; enqueues the copy and waits for none.
struct TransferNode {
    counts: Arc<Copies>,
    /// `None` in the one that is only asked, never run.
    copies: Option<Box<dyn Transfer>>,
    /// Whether blocks go to the host.
    to_host: bool,
    /// Whether the series is over with this pass.
    is_last_pass: bool,
}

impl TransferNode {
    /// One that is only asked what it would make of a series.
    fn asked(counts: &Arc<Copies>) -> Self {
        Self { counts: counts.clone(), copies: None, to_host: false, is_last_pass: false }
    }
}

impl Node for TransferNode {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header).ahead())
    }

    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        self.is_last_pass = header.pass.is_last();
        Ok(())
    }

    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(copies) = &mut self.copies else { return Ok(()) };
        let mut lease = out.lease(block.format())?;
        self.counts.count(|| block.written().is_some_and(|written| !written.is_done()) || lease.is_read());
        copies.copy(&block, &mut lease).map_err(copy_failed)?;
        let copied = lease.freeze(block.meta);
        if copied.meta.preview { out.preview(copied) } else { out.push(copied) }
    }

    /// Before a series that comes from a device counts as complete, the device has to have made all of it: the only
    /// wait, when nothing more is to be enqueued for it.
    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        match &mut self.copies {
            Some(copies) if self.to_host && self.is_last_pass => copies.finish().map_err(copy_failed),
            _ => Ok(()),
        }
    }
}

/// A device may fail; a copy that refuses its blocks is the program's fault.
fn copy_failed(error: OpError) -> NodeError {
    let is_device = matches!(error, OpError::Device { .. });
    let kind = if is_device { NodeErrorKind::Io } else { NodeErrorKind::Internal };
    NodeError::because(kind, "a copy failed", error)
}

/// A device could not do for a node what a plan needs.
pub(super) struct Refusal {
    pub(super) node: String,
    pub(super) error: OpError,
}

/// Puts a transfer between a producer and all its consumers that work in one other place.
///
/// The edge into it makes its sender wait, as the pipeline file says; those behind it are as their consumers asked.
pub(super) fn insert(
    draft: Draft,
    devices: &[Arc<dyn Device>],
    context: impl Fn(&str) -> BuildContext,
) -> Result<Draft, Refusal> {
    let Draft { mut nodes, mut probes, mut edges, spills } = draft;
    let mut crossings: BTreeMap<(usize, DeviceId), Vec<usize>> = BTreeMap::new();
    for (at, edge) in edges.iter().enumerate() {
        let place = nodes[edge.to].device;
        if nodes[edge.from].device != place {
            crossings.entry((edge.from, place)).or_default().push(at);
        }
    }
    for ((from, place), crossing) in crossings {
        let transfer = nodes.len();
        let from_device = nodes[from].device;
        let by = if place == DeviceId::Cpu { from_device } else { place };
        let Some(device) = devices.iter().find(|device| device.id() == by) else { continue };
        let id = match place {
            DeviceId::Cpu => format!("{}.to_host", nodes[from].id),
            DeviceId::Cuda(_) => format!("{}.to_{place}", nodes[from].id),
        };
        let copies = device.transfer(&id).map_err(|error| Refusal { node: id.clone(), error })?;
        let previews = crossing.iter().any(|&edge| nodes[edges[edge].to].previews);
        let capacity = crossing.iter().map(|&edge| &edges[edge]).filter(|edge| edge.policy != Policy::Latest);
        // Spilling is done on the host, before the copy.
        let spill =
            crossing.iter().find_map(|&edge| edges[edge].spill).filter(|_| from_device == DeviceId::Cpu);
        edges.push(PlannedEdge {
            from,
            to: transfer,
            policy: if spill.is_some() { Policy::Spill } else { Policy::Block },
            capacity: capacity.map(|edge| edge.capacity).reduce(Capacity::or).unwrap_or(DEFAULT_CAPACITY),
            // Until the plan looks where the sender works.
            follows_pool: spill.is_none(),
            spill,
        });
        for edge in crossing {
            edges[edge].from = transfer;
            if spill.is_some() && edges[edge].spill.take().is_some() {
                edges[edge].policy = Policy::Block;
            }
        }
        let counts = Arc::new(Copies::default());
        nodes.push(PlannedNode {
            kind: TRANSFER,
            class: KindClass::Step,
            previews,
            device: by,
            pool: if place == DeviceId::Cpu { device.pinned() } else { device.allocator() },
            parameters: serde_json::Value::Null,
            cx: context(&id),
            built: PlannedRunner::Node(Box::new(TransferNode {
                copies: Some(copies),
                to_host: place == DeviceId::Cpu,
                ..TransferNode::asked(&counts)
            })),
            copies: Some(counts.clone()),
            id,
        });
        probes.push(Some(Box::new(TransferNode::asked(&counts))));
    }
    Ok(in_order_of_flow(Draft { nodes, probes, edges, spills }))
}

/// Each transfer right behind its producer, so that people read a plan in the order in which blocks flow.
fn in_order_of_flow(draft: Draft) -> Draft {
    let Draft { nodes, probes, mut edges, spills } = draft;
    let is_transfer = |at: usize| nodes[at].kind == TRANSFER;
    let mut order = Vec::with_capacity(nodes.len());
    for at in (0..nodes.len()).filter(|&at| !is_transfer(at)) {
        order.push(at);
        order.extend(edges.iter().filter(|edge| edge.from == at && is_transfer(edge.to)).map(|edge| edge.to));
    }
    let mut place = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        place[old] = new;
    }
    for edge in &mut edges {
        (edge.from, edge.to) = (place[edge.from], place[edge.to]);
    }
    let mut sorted: Vec<_> = place.into_iter().zip(nodes.into_iter().zip(probes)).collect();
    sorted.sort_by_key(|(place, _)| *place);
    let (nodes, probes) = sorted.into_iter().map(|(_, pair)| pair).unzip();
    Draft { nodes, probes, edges, spills }
}

/// Lets the pools of host nodes lie in pinned memory where a device reads them.
pub(super) fn pin_pools(draft: &mut Draft, devices: &[Arc<dyn Device>]) {
    for at in 0..draft.nodes.len() {
        if draft.nodes[at].device == DeviceId::Cpu
            && let Some(reader) = device_that_reads(draft, at)
            && let Some(device) = devices.iter().find(|device| device.id() == reader)
        {
            draft.nodes[at].pool = device.pinned();
        }
    }
}

/// The device that reads the buffers of a host node, directly or behind nodes that hand their input on.
fn device_that_reads(draft: &Draft, node: usize) -> Option<DeviceId> {
    draft.edges.iter().filter(|edge| edge.from == node).find_map(|edge| {
        let receiver = &draft.nodes[edge.to];
        if receiver.kind == TRANSFER {
            return Some(receiver.device);
        }
        let forwards = draft.probes[edge.to].as_ref().is_some_and(|probe| probe.forwards());
        if forwards { device_that_reads(draft, edge.to) } else { None }
    })
}

/// Memory for a node that works there, before it is known who reads it.
pub(super) fn allocator(device: Option<&Arc<dyn Device>>) -> Arc<dyn Allocator> {
    device.map_or_else(|| Arc::new(HostAllocator) as Arc<dyn Allocator>, |device| device.allocator())
}
