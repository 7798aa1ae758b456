//! Sizes: how many buffers every pool needs, and whether all of it fits.
//!
//! A graph cannot deadlock over buffers when each pool holds at least what its edges hold, what its
//! consumers keep, and what its node writes at once. Nodes on a device get more where memory is left, so that what they
//! made can leave while they work on.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use beamstream_buffer::{DeviceId, MemoryKind, Pool};
use beamstream_core::SeriesHeader;
use beamstream_node::{Negotiated, Node, NodeError, NodeErrorKind};

use super::PlannedEdge;
use super::limits::{Limits, MemoryUse, kind_at, place_of};
use crate::budget::show_bytes;

/// What one node needs for a series.
#[derive(Debug, Clone)]
pub(crate) struct NodeSize {
    /// Header of what the node hands on.
    pub(crate) output: SeriesHeader,
    /// Buffers of its pool.
    pub(crate) slots: usize,
    /// Buffers that it would like besides.
    likes: usize,
    /// Where its pool lies.
    pub(crate) pool: MemoryKind,
    /// Where it works.
    device: DeviceId,
    /// Bytes that it takes for itself.
    pub(crate) memory_bytes: u64,
}

impl NodeSize {
    fn slot_bytes(&self) -> u64 {
        Pool::stride(self.output.format.bytes()) as u64
    }

    /// Bytes of its pool.
    pub(crate) fn pool_bytes(&self) -> u64 {
        (self.slots as u64).saturating_mul(self.slot_bytes())
    }

    fn bytes_of(&self, place: DeviceId) -> u64 {
        self.memory().of(place)
    }

    fn memory(&self) -> MemoryUse {
        let mut memory = MemoryUse::default();
        memory.add(self.pool, self.pool_bytes());
        memory.add(kind_at(self.device), self.memory_bytes);
        memory
    }
}

/// Memory of several nodes together.
pub(crate) fn memory_of<'a>(sizes: impl Iterator<Item = &'a NodeSize>) -> MemoryUse {
    sizes.fold(MemoryUse::default(), |mut sum, size| {
        sum.add_all(&size.memory());
        sum
    })
}

/// How many buffers a pool gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Fewer could deadlock.
    pub(crate) least: usize,
    /// More is not granted.
    pub(crate) most: usize,
}

/// What the sizer knows of a node.
pub(super) struct SizedNode {
    pub(super) name: String,
    pub(super) device: DeviceId,
    pub(super) pool: MemoryKind,
    /// Host memory that a source takes for itself. Unit: bytes.
    pub(super) source_bytes: u64,
    /// Is asked and never runs; `None` for sources.
    pub(super) probe: Option<Box<dyn Node>>,
}

/// Sizes the pools of a graph for a series, by asking a second set of its nodes what they would make of it.
pub(crate) struct SeriesSizer {
    nodes: Mutex<Vec<SizedNode>>,
    edges: Vec<PlannedEdge>,
    limits: Limits,
    granted: Mutex<Granted>,
}

#[derive(Default)]
struct Granted {
    /// What the series at hand of each source takes, by index.
    needs: BTreeMap<usize, MemoryUse>,
    /// Bytes beyond the least for the pool of each node that likes more, by index.
    more: BTreeMap<usize, u64>,
    /// Most that was taken at once.
    peak: MemoryUse,
}

/// How many buffers the consumers of a node hold, and the sizes of all nodes from it on.
struct Branch {
    held: usize,
    sizes: BTreeMap<usize, NodeSize>,
}

impl SeriesSizer {
    pub(super) fn new(nodes: Vec<SizedNode>, edges: Vec<PlannedEdge>, limits: Limits) -> Self {
        Self { nodes: Mutex::new(nodes), edges, limits, granted: Mutex::default() }
    }

    /// Memory that the run may take.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Most memory that the series took so far.
    pub(crate) fn peak(&self) -> MemoryUse {
        self.granted().peak.clone()
    }

    /// Buffers of the pool of `node` for a series that leaves it with `header`, `own` of them for itself, `likes` if
    /// memory allows.
    ///
    /// For a source it proves that all pools from there on, and those of other sources, fit the limits, before the
    /// first frame is taken.
    pub(crate) fn slots(
        &self,
        node: usize,
        header: &SeriesHeader,
        own: usize,
        likes: usize,
    ) -> Result<Slots, NodeError> {
        let nodes = self.nodes();
        if nodes[node].probe.is_some() {
            let least = self.branch(&nodes, node, header).held + own.max(1);
            let more = self.granted().more.get(&node).copied().unwrap_or(0);
            let more = more / Pool::stride(header.format.bytes()) as u64;
            let more = likes.saturating_sub(own).min(usize::try_from(more).unwrap_or(usize::MAX));
            return Ok(Slots { least, most: least + more });
        }
        drop(nodes);
        let sizes = self.prove(node, header, own)?;
        let slots = sizes[&node].slots;
        Ok(Slots { least: slots, most: slots })
    }

    /// The sizes of all nodes from a source on, with what is granted beyond the least.
    pub(crate) fn sizes(
        &self,
        source: usize,
        header: &SeriesHeader,
        own: usize,
    ) -> BTreeMap<usize, NodeSize> {
        let mut sizes = self.least(source, header, own);
        let others = self.granted().others(source);
        self.grant(&mut sizes, &others);
        sizes
    }

    /// The least sizes of all nodes from a source on.
    fn least(&self, source: usize, header: &SeriesHeader, own: usize) -> BTreeMap<usize, NodeSize> {
        let nodes = self.nodes();
        let Branch { held, mut sizes } = self.branch(&nodes, source, header);
        let size = NodeSize {
            output: header.clone(),
            slots: held + own.max(1),
            likes: 0,
            pool: nodes[source].pool,
            device: nodes[source].device,
            memory_bytes: nodes[source].source_bytes,
        };
        sizes.insert(source, size);
        sizes
    }

    /// What the series would be refused for, node by node: the reasons that negotiation gives.
    pub(crate) fn refusals(&self, source: usize, header: &SeriesHeader) -> Vec<(usize, NodeError)> {
        let nodes = self.nodes();
        let mut refusals = Vec::new();
        let mut pending = vec![(source, header.clone())];
        while let Some((node, header)) = pending.pop() {
            for edge in self.edges.iter().filter(|edge| edge.from == node) {
                let Some(probe) = &nodes[edge.to].probe else { continue };
                match probe.negotiate(&header) {
                    Ok(agreed) => pending.push((edge.to, agreed.output)),
                    Err(error) => refusals.push((edge.to, error)),
                }
            }
        }
        refusals
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<SizedNode>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granted(&self) -> MutexGuard<'_, Granted> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn branch(&self, nodes: &[SizedNode], node: usize, header: &SeriesHeader) -> Branch {
        let mut branch = Branch { held: 0, sizes: BTreeMap::new() };
        for edge in self.edges.iter().filter(|edge| edge.from == node) {
            let Some(probe) = &nodes[edge.to].probe else { continue };
            branch.held += edge.blocks_held(header.format.bytes()) + 1;
            // A node that refuses the series lets its blocks pass and keeps none; the refusal comes when it begins.
            let Ok(agreed) = probe.negotiate(header) else { continue };
            let below = self.branch(nodes, edge.to, &agreed.output);
            branch.held += agreed.keeps_blocks;
            if probe.forwards() {
                branch.held += below.held;
            }
            let size = node_size(&nodes[edge.to], &agreed, below.held);
            branch.sizes.extend(below.sizes);
            branch.sizes.insert(edge.to, size);
        }
        branch
    }

    /// Proves that a series fits besides those of other sources, and grants what is left to those who like more.
    fn prove(
        &self,
        source: usize,
        header: &SeriesHeader,
        own: usize,
    ) -> Result<BTreeMap<usize, NodeSize>, NodeError> {
        let mut sizes = self.least(source, header, own);
        let least = memory_of(sizes.values());
        let mut granted = self.granted();
        let others = granted.others(source);
        let mut total = others.clone();
        total.add_all(&least);
        granted.needs.insert(source, least);
        for place in std::iter::once(DeviceId::Cpu).chain(self.limits.devices.keys().copied()) {
            if total.of(place) > self.limits.of(place) {
                drop(granted);
                return Err(self.too_much(place, total.of(place), &sizes));
            }
        }
        let before: BTreeMap<usize, u64> = sizes.iter().map(|(&at, size)| (at, size.pool_bytes())).collect();
        self.grant(&mut sizes, &others);
        for (&at, size) in &sizes {
            granted.more.insert(at, size.pool_bytes() - before[&at]);
        }
        let need = memory_of(sizes.values());
        let mut total = others;
        total.add_all(&need);
        granted.peak = std::mem::take(&mut granted.peak).max(&total);
        granted.needs.insert(source, need);
        Ok(sizes)
    }

    /// Gives pools on devices what their nodes would like, as far as memory is left; first those at the end, where
    /// blocks leave.
    fn grant(&self, sizes: &mut BTreeMap<usize, NodeSize>, others: &MemoryUse) {
        let mut total = others.clone();
        total.add_all(&memory_of(sizes.values()));
        for size in sizes.values_mut().rev().filter(|size| matches!(size.pool, MemoryKind::Device(_))) {
            let place = place_of(size.pool);
            let left = self.limits.of(place).saturating_sub(total.of(place));
            let more = (left / size.slot_bytes()).min(size.likes as u64);
            total.add(size.pool, more * size.slot_bytes());
            size.slots += more as usize;
        }
    }

    fn too_much(&self, place: DeviceId, total: u64, sizes: &BTreeMap<usize, NodeSize>) -> NodeError {
        let nodes = self.nodes();
        let most = sizes.iter().max_by_key(|(_, size)| size.bytes_of(place));
        let most = most.map_or_else(String::new, |(&node, size)| {
            format!(", most of it ({}) in node '{}'", show_bytes(size.bytes_of(place)), nodes[node].name)
        });
        let (memory, advice) = match place {
            DeviceId::Cpu => ("host memory".to_owned(), "allow more with --memory"),
            DeviceId::Cuda(_) => {
                (format!("memory on {place}"), "take a device with more of it, or the CPU with --device cpu")
            }
        };
        let limit = show_bytes(self.limits.of(place));
        let message = format!(
            "the series needs {} of {memory}{most}; the run may take {limit}: take fewer rows, bin, make the buffers \
             smaller, or {advice}",
            show_bytes(total),
        );
        NodeError::new(NodeErrorKind::Config, message)
    }
}

impl Granted {
    /// What the series of all other sources take.
    fn others(&self, source: usize) -> MemoryUse {
        let others = self.needs.iter().filter(|(other, _)| **other != source);
        others.fold(MemoryUse::default(), |mut sum, (_, need)| {
            sum.add_all(need);
            sum
        })
    }
}

fn node_size(node: &SizedNode, agreed: &Negotiated, held: usize) -> NodeSize {
    let writes = agreed.writes_blocks.max(1);
    // A sink holds no buffers of its own: nothing behind it takes any.
    let (slots, likes) =
        if held == 0 { (0, 0) } else { (held + writes, agreed.likes_blocks.saturating_sub(writes)) };
    NodeSize {
        slots,
        likes,
        pool: node.pool,
        device: node.device,
        memory_bytes: agreed.memory_bytes as u64,
        output: agreed.output.clone(),
    }
}
