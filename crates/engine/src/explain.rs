//! A plan for people and programs: types, placement, memory.

use serde::Serialize;

use crate::budget::show_bytes;
use crate::plan::{MemoryUse, NodeSize, Plan, PlannedRunner, memory_of};
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
    /// Memory that its pool lies in.
    pub pool_memory: String,
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
    /// `block`, `latest` or `spill`.
    pub when_full: &'static str,
    /// Blocks that may wait in it.
    pub capacity_blocks: usize,
    /// Bytes that may wait in it.
    pub capacity_bytes: usize,
    /// Whether more waits in it where the pool of the sender, on a device, has more.
    pub follows_pool: bool,
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
    /// Host memory, ordinary and pinned, that the run may take.
    pub limit_bytes: u64,
    /// Memory of devices that the run may take; `None` without a device.
    pub device_limit_bytes: Option<u64>,
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
                pool_bytes: size.map(NodeSize::pool_bytes),
                pool_memory: node.pool.kind().to_string(),
                memory_bytes: size.map(|size| size.memory_bytes),
            }
        });
        let edges = self.edges.iter().map(|edge| EdgeExplanation {
            from: self.nodes[edge.from].id.clone(),
            to: self.nodes[edge.to].id.clone(),
            when_full: match edge.policy {
                Policy::Block => "block",
                Policy::Latest => "latest",
                Policy::Spill => "spill",
            },
            capacity_blocks: edge.capacity.blocks,
            capacity_bytes: edge.capacity.bytes,
            follows_pool: edge.follows_pool,
        });
        let memory = self.all_headers_known().then(|| memory_of(sizes.values()));
        let limits = self.sizer.limits();
        let on_devices = limits.devices.values().copied().reduce(u64::saturating_add);
        Explanation {
            pipeline: self.name.clone(),
            nodes: nodes.collect(),
            edges: edges.collect(),
            memory: MemoryExplanation {
                host_bytes: memory.as_ref().map(|memory| memory.host),
                pinned_bytes: memory.as_ref().map(|memory| memory.pinned),
                device_bytes: memory.as_ref().map(MemoryUse::on_devices),
                limit_bytes: limits.host,
                device_limit_bytes: on_devices,
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
                    let (pool, memory) = (show_bytes(pool), &node.pool_memory);
                    writeln!(f, "      gives {output}; {buffers} buffers, {pool} of {memory} memory")?;
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
                "  {} -> {}: {}, at most {} blocks or {}{}",
                edge.from,
                edge.to,
                edge.when_full,
                edge.capacity_blocks,
                show_bytes(edge.capacity_bytes as u64),
                if edge.follows_pool { ", more where the sender has more buffers" } else { "" }
            )?;
        }
        let show = |bytes: Option<u64>| bytes.map_or_else(unknown, show_bytes);
        let memory = &self.memory;
        let (host, pinned) = (show(memory.host_bytes), show(memory.pinned_bytes));
        let limit = show_bytes(memory.limit_bytes);
        let Some(device_limit) = memory.device_limit_bytes.map(show_bytes) else {
            return writeln!(f, "  host memory: {host}, of {limit} that the run may take");
        };
        writeln!(f, "  host memory: {host} and {pinned} pinned, of {limit} that the run may take")?;
        let device = show(memory.device_bytes);
        writeln!(f, "  device memory: {device}, of {device_limit} that the run may take")
    }
}
