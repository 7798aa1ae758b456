//! Sizes: how many buffers every pool needs, and whether all of it fits.
//!
//! A graph cannot deadlock over buffers when each pool holds at least what its edges hold, what its
//! consumers keep, and what its node writes at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use beamstream_buffer::Pool;
use beamstream_core::SeriesHeader;
use beamstream_node::{Negotiated, Node, NodeError, NodeErrorKind};

use super::PlannedEdge;
use crate::budget::show_bytes;

/// What one node needs for a series.
#[derive(Debug, Clone)]
pub(crate) struct NodeSize {
    /// Header of what the node hands on.
    pub(crate) output: SeriesHeader,
    /// Buffers of its pool.
    pub(crate) slots: usize,
    /// Bytes of its pool.
    pub(crate) pool_bytes: u64,
    /// Bytes that it takes for itself.
    pub(crate) memory_bytes: u64,
}

/// Sizes the pools of a graph for a series, by asking a second set of its nodes what they would make of it.
pub(crate) struct SeriesSizer {
    names: Vec<String>,
    edges: Vec<PlannedEdge>,
    /// Nodes that are asked and never run, by index; `None` for sources.
    probes: Mutex<Probes>,
    limit_bytes: u64,
    /// Memory that sources take for themselves, by index.
    source_bytes: BTreeMap<usize, u64>,
    /// What the series at hand of each source needs, by index.
    needs: Mutex<BTreeMap<usize, u64>>,
}

type Probes = Vec<Option<Box<dyn Node>>>;

/// How many buffers the consumers of a node hold, and the sizes of all nodes from it on.
struct Branch {
    held: usize,
    sizes: BTreeMap<usize, NodeSize>,
}

impl SeriesSizer {
    pub(crate) fn new(
        names: Vec<String>,
        edges: Vec<PlannedEdge>,
        probes: Probes,
        limit_bytes: u64,
        source_bytes: BTreeMap<usize, u64>,
    ) -> Self {
        Self { names, edges, probes: Mutex::new(probes), limit_bytes, source_bytes, needs: Mutex::default() }
    }

    /// Buffers of the pool of `node` for a series that leaves it with `header`.
    ///
    /// For a source it proves that all pools from there on, and those of other sources, fit the limit, before the
    /// first frame is taken.
    pub(crate) fn slots(&self, node: usize, header: &SeriesHeader, own: usize) -> Result<usize, NodeError> {
        let probes = self.probes();
        if probes[node].is_some() {
            let branch = self.branch(&probes, node, header);
            return Ok(branch.held + own.max(1));
        }
        drop(probes);
        let sizes = self.sizes(node, header, own);
        self.prove(node, &sizes)?;
        Ok(sizes[&node].slots)
    }

    /// The sizes of all nodes from a source on.
    pub(crate) fn sizes(
        &self,
        source: usize,
        header: &SeriesHeader,
        own: usize,
    ) -> BTreeMap<usize, NodeSize> {
        let probes = self.probes();
        let mut branch = self.branch(&probes, source, header);
        let slots = branch.held + own.max(1);
        let memory_bytes = self.source_bytes.get(&source).copied().unwrap_or(0);
        let size =
            NodeSize { output: header.clone(), slots, pool_bytes: pool_bytes(slots, header), memory_bytes };
        branch.sizes.insert(source, size);
        branch.sizes
    }

    /// What the series would be refused for, node by node: the reasons that negotiation gives.
    pub(crate) fn refusals(&self, source: usize, header: &SeriesHeader) -> Vec<(usize, NodeError)> {
        let probes = self.probes();
        let mut refusals = Vec::new();
        let mut pending = vec![(source, header.clone())];
        while let Some((node, header)) = pending.pop() {
            for edge in self.edges.iter().filter(|edge| edge.from == node) {
                let Some(probe) = &probes[edge.to] else { continue };
                match probe.negotiate(&header) {
                    Ok(agreed) => pending.push((edge.to, agreed.output)),
                    Err(error) => refusals.push((edge.to, error)),
                }
            }
        }
        refusals
    }

    fn probes(&self) -> MutexGuard<'_, Probes> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn branch(&self, probes: &[Option<Box<dyn Node>>], node: usize, header: &SeriesHeader) -> Branch {
        let mut branch = Branch { held: 0, sizes: BTreeMap::new() };
        for edge in self.edges.iter().filter(|edge| edge.from == node) {
            let Some(probe) = &probes[edge.to] else { continue };
            branch.held += edge.blocks_held(header.format.bytes()) + 1;
            // A node that refuses the series lets its blocks pass and keeps none; the refusal comes when it begins.
            let Ok(agreed) = probe.negotiate(header) else { continue };
            let below = self.branch(probes, edge.to, &agreed.output);
            branch.held += agreed.keeps_blocks;
            if probe.forwards() {
                branch.held += below.held;
            }
            let size = node_size(&agreed, below.held);
            branch.sizes.extend(below.sizes);
            branch.sizes.insert(edge.to, size);
        }
        branch
    }

    fn prove(&self, source: usize, sizes: &BTreeMap<usize, NodeSize>) -> Result<(), NodeError> {
        let need = |size: &NodeSize| size.pool_bytes.saturating_add(size.memory_bytes);
        let own = sizes.values().map(need).fold(0, u64::saturating_add);
        let mut needs = self.needs.lock().unwrap_or_else(PoisonError::into_inner);
        let others = needs.iter().filter(|(other, _)| **other != source).map(|(_, bytes)| *bytes);
        let total = others.fold(own, u64::saturating_add);
        needs.insert(source, own);
        if total <= self.limit_bytes {
            return Ok(());
        }
        let most = sizes.iter().max_by_key(|(_, size)| need(size));
        let most = most.map_or_else(String::new, |(&node, size)| {
            format!(", most of it ({}) in node '{}'", show_bytes(need(size)), self.names[node])
        });
        Err(NodeError::new(
            NodeErrorKind::Config,
            format!(
                "the series needs {} of host memory{most}; the run may take {}: take fewer rows, bin, \
                 make the buffers smaller, or allow more with --memory",
                show_bytes(total),
                show_bytes(self.limit_bytes),
            ),
        ))
    }
}

fn node_size(agreed: &Negotiated, held: usize) -> NodeSize {
    // A sink holds no buffers of its own: nothing behind it takes any.
    let slots = if held == 0 { 0 } else { held + agreed.writes_blocks.max(1) };
    NodeSize {
        slots,
        pool_bytes: pool_bytes(slots, &agreed.output),
        memory_bytes: agreed.memory_bytes as u64,
        output: agreed.output.clone(),
    }
}

fn pool_bytes(slots: usize, header: &SeriesHeader) -> u64 {
    slots as u64 * Pool::stride(header.format.bytes()) as u64
}
