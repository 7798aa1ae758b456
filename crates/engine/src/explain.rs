//! A plan for people and programs: types, placement, memory.

use serde::Serialize;

use crate::budget::show_bytes;
use crate::plan::{NodeSize, Plan, PlannedRunner};
use crate::run::Policy;

/// What a plan says of itself.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// Name of the pipeline.
    pub pipeline: String,
    /// All nodes in the order of the pipeline.
    pub nodes: Vec<NodeExplanation>,
    /// All edges.
    pub edges: Vec<EdgeExplanation>,
    /// Memory of all nodes together.
    pub memory: MemoryExplanation,
}

/// One node of an [`Explanation`].
#[derive(Debug, Clone, Serialize)]
pub struct NodeExplanation {
    /// The node.
    pub id: String,
    /// Its kind.
    pub kind: &'static str,
    /// Where it runs.
    pub device: String,
    /// Worker threads of the engine.
    pub threads: usize,
    /// What it hands on, once the header of the series is known.
    pub output: Option<String>,
    /// Buffers of its pool.
    pub buffers: Option<usize>,
    /// Bytes of its pool.
    pub pool_bytes: Option<u64>,
    /// Bytes that it takes for itself.
    pub memory_bytes: Option<u64>,
}

/// One edge of an [`Explanation`].
#[derive(Debug, Clone, Serialize)]
pub struct EdgeExplanation {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// `block` or `latest`.
    pub when_full: &'static str,
    /// Blocks that may wait in it.
    pub capacity_blocks: usize,
    /// Bytes that may wait in it.
    pub capacity_bytes: usize,
}

/// Memory of an [`Explanation`]. Unit: bytes; `None` while a source waits for its header.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryExplanation {
    /// Ordinary host memory.
    pub host_bytes: Option<u64>,
    /// Pinned host memory.
    pub pinned_bytes: Option<u64>,
    /// Memory of devices.
    pub device_bytes: Option<u64>,
    /// Host memory that the run may take.
    pub limit_bytes: u64,
}

impl Plan {
    /// Says what the plan is: types, placement, memory, as far as the headers of the series are known.
    pub fn explain(&self) -> Explanation {
        let sizes = self.known_sizes();
        let nodes = self.nodes.iter().enumerate().map(|(at, node)| {
            let size = sizes.get(&at);
            NodeExplanation {
                id: node.id.clone(),
                kind: node.kind,
                device: node.device.to_string(),
                threads: 1,
                output: size.filter(|size| size.slots > 0).map(|size| size.output.format.to_string()),
                buffers: size.map(|size| size.slots),
                pool_bytes: size.map(|size| size.pool_bytes),
                memory_bytes: size.map(|size| size.memory_bytes),
            }
        });
        let edges = self.edges.iter().map(|edge| EdgeExplanation {
            from: self.nodes[edge.from].id.clone(),
            to: self.nodes[edge.to].id.clone(),
            when_full: if edge.policy == Policy::Latest { "latest" } else { "block" },
            capacity_blocks: edge.capacity.blocks,
            capacity_bytes: edge.capacity.bytes,
        });
        let total = |sizes: &mut dyn Iterator<Item = &NodeSize>| {
            sizes.map(|size| size.pool_bytes.saturating_add(size.memory_bytes)).fold(0, u64::saturating_add)
        };
        let known = self.all_headers_known();
        Explanation {
            pipeline: self.name.clone(),
            nodes: nodes.collect(),
            edges: edges.collect(),
            memory: MemoryExplanation {
                host_bytes: known.then(|| total(&mut sizes.values())),
                pinned_bytes: known.then_some(0),
                device_bytes: known.then_some(0),
                limit_bytes: self.limit_bytes,
            },
        }
    }

    /// Gives a source the header of its first series, as if it had announced it: for explaining a live pipeline.
    pub fn assume_header(&mut self, header: &beamstream_core::SeriesHeader) {
        for node in &mut self.nodes {
            if let PlannedRunner::Source { header: known @ None, .. } = &mut node.built {
                *known = Some(Box::new(header.clone()));
            }
        }
    }
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unknown = || "known when the series begins".to_owned();
        writeln!(f, "{}", self.pipeline)?;
        for node in &self.nodes {
            writeln!(f, "  {} ({}) on {}", node.id, node.kind, node.device)?;
            if let (Some(buffers), Some(pool), Some(own)) = (node.buffers, node.pool_bytes, node.memory_bytes)
            {
                if let Some(output) = &node.output {
                    writeln!(f, "      gives {output}; {buffers} buffers, {}", show_bytes(pool))?;
                }
                if own > 0 {
                    writeln!(f, "      keeps {} for itself", show_bytes(own))?;
                }
            } else {
                writeln!(f, "      blocks: {}", unknown())?;
            }
        }
        for edge in &self.edges {
            writeln!(
                f,
                "  {} -> {}: {}, at most {} blocks or {}",
                edge.from,
                edge.to,
                edge.when_full,
                edge.capacity_blocks,
                show_bytes(edge.capacity_bytes as u64)
            )?;
        }
        let host = self.memory.host_bytes.map_or_else(unknown, show_bytes);
        writeln!(f, "  host memory: {host}, of {} that the run may take", show_bytes(self.memory.limit_bytes))
    }
}
