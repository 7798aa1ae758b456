//! Plan: a graph that is checked, typed, placed on devices and sized in bytes, before anything starts.

mod sizer;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use beamstream_buffer::DeviceId;
use beamstream_core::SeriesHeader;
use beamstream_graph::{Errors, Graph, GraphError, WhenFull};
use beamstream_node::{
    Board, BuildContext, Built, ImageReader, Journal, KindInfo, Node, NodeError, Registry, RegistryError,
    Source,
};
use beamstream_ops::Backend;

pub(crate) use sizer::{NodeSize, SeriesSizer};

use crate::run::{Capacity, Policy};

/// Blocks that wait in an edge at most, unless the pipeline says otherwise.
const DEFAULT_CAPACITY_BLOCKS: usize = 16;
/// Bytes that wait in an edge at most, unless the pipeline says otherwise.
const DEFAULT_CAPACITY_BYTES: usize = 64 << 20;
/// Blocks that an edge of policy `latest` keeps, unless the pipeline says otherwise.
const DEFAULT_LATEST_BLOCKS: usize = 4;

/// What a plan is made with besides the graph.
#[derive(Clone)]
pub struct PlanOptions {
    /// The computations of the device on which the nodes are placed.
    pub ops: Arc<dyn Backend>,
    /// Reads reference images from files.
    pub images: Arc<dyn ImageReader>,
    /// Host memory that the run may take, in bytes.
    pub memory_bytes: u64,
    /// Whether sinks may replace files that exist.
    pub overwrite: bool,
    /// Start of the run, for paths: `YYYYMMDD-HHMMSS`.
    pub date: String,
}

/// A graph cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The pipeline is wrong; every place is named.
    #[error(transparent)]
    Graph(#[from] Errors),
    /// A node cannot take the series that its source announces.
    #[error("node '{node}': {}", error.full_text())]
    Node {
        /// The node.
        node: String,
        /// Why.
        error: NodeError,
    },
}

pub(crate) struct PlannedNode {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) previews: bool,
    pub(crate) device: DeviceId,
    pub(crate) parameters: serde_json::Value,
    pub(crate) cx: BuildContext,
    pub(crate) built: PlannedRunner,
}

/// What will run.
pub(crate) enum PlannedRunner {
    Source { source: Box<dyn Source>, header: Option<Box<SeriesHeader>> },
    Node(Box<dyn Node>),
}

/// An edge with its bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlannedEdge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) policy: Policy,
    pub(crate) capacity: Capacity,
}

impl PlannedEdge {
    /// Blocks of `block_bytes` that the edge holds at most.
    pub(crate) fn blocks_held(&self, block_bytes: usize) -> usize {
        match self.policy {
            Policy::Latest => self.capacity.blocks,
            Policy::Block => self.capacity.blocks.min((self.capacity.bytes / block_bytes.max(1)).max(1)),
        }
    }
}

/// A checked graph, ready to run.
pub struct Plan {
    pub(crate) name: String,
    pub(crate) nodes: Vec<PlannedNode>,
    pub(crate) edges: Vec<PlannedEdge>,
    pub(crate) sizer: Arc<SeriesSizer>,
    pub(crate) journal: Journal,
    pub(crate) board: Board,
    pub(crate) limit_bytes: u64,
    pub(crate) registry: Arc<Registry>,
}

impl Plan {
    /// Builds the nodes, sizes their pools and proves their memory as far as headers are known.
    ///
    /// # Errors
    /// [`PlanError`] naming every place that is wrong.
    pub fn new(graph: &Graph, registry: &Arc<Registry>, options: &PlanOptions) -> Result<Self, PlanError> {
        let journal = Journal::new("");
        let board = Board::default();
        let mut errors = Vec::new();
        let mut nodes = Vec::new();
        let mut probes = Vec::new();
        for spec in graph.nodes() {
            let Some(info) = registry.get(&spec.kind) else { continue };
            let cx = BuildContext {
                node: spec.id.clone(),
                ops: options.ops.clone(),
                images: options.images.clone(),
                journal: journal.signed(&spec.id),
                board: board.clone(),
                date: options.date.clone(),
                overwrite: options.overwrite,
            };
            let parameters = serde_json::Value::Object(spec.parameters.clone());
            match build(graph, &spec.id, info, &parameters, &cx) {
                Ok((runner, probe)) => {
                    probes.push(probe);
                    nodes.push(PlannedNode {
                        id: spec.id.clone(),
                        kind: info.kind,
                        previews: info.previews,
                        device: options.ops.device(),
                        parameters,
                        cx,
                        built: runner,
                    });
                }
                Err(error) => errors.push(error),
            }
        }
        errors.extend(unsupported(graph));
        if !errors.is_empty() {
            return Err(Errors::new(errors).into());
        }
        let edges = edges(graph, &nodes);
        let names: Vec<String> = nodes.iter().map(|node| node.id.clone()).collect();
        let source_bytes = source_bytes(&nodes);
        let sizer = SeriesSizer::new(names, edges.clone(), probes, options.memory_bytes, source_bytes);
        let mut plan = Self {
            name: graph.place().name().to_owned(),
            nodes,
            edges,
            sizer: Arc::new(sizer),
            journal,
            board,
            limit_bytes: options.memory_bytes,
            registry: registry.clone(),
        };
        plan.ask_sources()?;
        Ok(plan)
    }

    /// What the nodes show to people while the plan runs.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The nodes of a kind.
    pub fn nodes_of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        self.nodes.iter().filter(move |node| node.kind == kind).map(|node| node.id.as_str())
    }

    /// Asks the sources for the headers that they know already, and the nodes behind for what they would refuse.
    fn ask_sources(&mut self) -> Result<(), PlanError> {
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let PlannedRunner::Source { source, header } = &mut node.built else { continue };
            let known = source.header().map_err(|error| PlanError::Node { node: node.id.clone(), error })?;
            *header = known.map(Box::new);
            let (Some(header), own) = (header.clone(), header.as_ref().map_or(0, |h| source.buffers(h)))
            else {
                continue;
            };
            if let Some((refuser, error)) = self.sizer.refusals(at, &header).into_iter().next() {
                return Err(PlanError::Node { node: self.nodes[refuser].id.clone(), error });
            }
            if let Err(error) = self.sizer.slots(at, &header, own) {
                return Err(PlanError::Node { node: self.nodes[at].id.clone(), error });
            }
        }
        Ok(())
    }

    /// The sizes of all nodes behind sources whose header is known.
    pub(crate) fn known_sizes(&self) -> BTreeMap<usize, NodeSize> {
        let mut sizes = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if let PlannedRunner::Source { source, header: Some(header) } = &node.built {
                sizes.extend(self.sizer.sizes(at, header, source.buffers(header)));
            }
        }
        sizes
    }

    /// Whether every source knows its header.
    pub(crate) fn all_headers_known(&self) -> bool {
        self.nodes.iter().all(|node| !matches!(node.built, PlannedRunner::Source { header: None, .. }))
    }
}

type Probe = Option<Box<dyn Node>>;

/// Builds a node twice: one to run, one to ask.
fn build(
    graph: &Graph,
    id: &str,
    info: &KindInfo,
    parameters: &serde_json::Value,
    cx: &BuildContext,
) -> Result<(PlannedRunner, Probe), GraphError> {
    let place = |error: RegistryError| match error {
        RegistryError::Parse { path, message } => graph.error_at(id, &path, &message),
        RegistryError::Build(error) => {
            let path: Vec<String> = error.key.iter().map(ToString::to_string).collect();
            graph.error_at(id, &path, &error.message)
        }
        other => graph.error_at(id, &[], &other.to_string()),
    };
    match info.build(parameters, cx).map_err(place)? {
        Built::Source(source) => Ok((PlannedRunner::Source { source, header: None }, None)),
        Built::Node(node) => match info.build(parameters, cx).map_err(place)? {
            Built::Node(probe) => Ok((PlannedRunner::Node(node), Some(probe))),
            Built::Source(_) => Ok((PlannedRunner::Node(node), None)),
        },
    }
}

/// What the data model can say and this engine cannot do.
fn unsupported(graph: &Graph) -> Vec<GraphError> {
    let mut errors = Vec::new();
    for spec in graph.nodes() {
        let input = ["input".to_owned()];
        if spec.inputs.len() > 1 {
            let message = format!("node '{}' has {} inputs, expected one", spec.id, spec.inputs.len());
            errors.push(graph.error_at(&spec.id, &input, &message));
        }
        if spec.inputs.iter().any(|input| input.when_full == WhenFull::Spill) {
            let message = "edges cannot spill to disk yet: use when_full: block, or latest for viewers";
            errors.push(graph.error_at(&spec.id, &input, message));
        }
    }
    errors
}

fn edges(graph: &Graph, nodes: &[PlannedNode]) -> Vec<PlannedEdge> {
    let index = |id: &str| nodes.iter().position(|node| node.id == id);
    let mut edges = Vec::new();
    for spec in graph.nodes() {
        for input in &spec.inputs {
            let (Some(from), Some(to)) = (index(&input.from_node), index(&spec.id)) else { continue };
            let policy = match input.when_full {
                WhenFull::Latest => Policy::Latest,
                // `unsupported` has refused `spill` before.
                WhenFull::Block | WhenFull::Spill => Policy::Block,
            };
            let default_blocks =
                if policy == Policy::Latest { DEFAULT_LATEST_BLOCKS } else { DEFAULT_CAPACITY_BLOCKS };
            let capacity = Capacity {
                blocks: input.capacity_blocks.map_or(default_blocks, NonZero::get),
                bytes: input.capacity_bytes.map_or(DEFAULT_CAPACITY_BYTES, NonZero::get),
            };
            edges.push(PlannedEdge { from, to, policy, capacity });
        }
    }
    edges
}

fn source_bytes(nodes: &[PlannedNode]) -> BTreeMap<usize, u64> {
    let of = |node: &PlannedNode| match &node.built {
        PlannedRunner::Source { source, .. } => Some(source.memory_bytes() as u64),
        PlannedRunner::Node(_) => None,
    };
    nodes.iter().enumerate().filter_map(|(at, node)| Some((at, of(node)?))).collect()
}
