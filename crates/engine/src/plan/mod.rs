//! Plan: a graph that is checked, typed, placed on devices and sized in bytes, before anything starts.

mod earlier;
mod limits;
mod sizer;
mod transfers;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use beamstream_buffer::{Allocator, DeviceId};
use beamstream_core::SeriesHeader;
use beamstream_graph::{Errors, Graph, GraphError, WhenFull};
use beamstream_node::{
    Board, BuildContext, Built, ImageReader, Journal, KindClass, KindInfo, Node, NodeError, NodeErrorKind,
    Registry, RegistryError, Source,
};
use beamstream_ops::{Backend, Device, OpError};

pub(crate) use limits::{Limits, MemoryUse};
use sizer::SizedNode;
pub(crate) use sizer::{NodeSize, SeriesSizer, Slots, memory_of};
pub(crate) use transfers::{Copies, TRANSFER};

use crate::run::{Capacity, Policy, SpillSettings, default_folder};

/// What waits in an edge at most, unless the pipeline says otherwise.
const DEFAULT_CAPACITY: Capacity = Capacity { blocks: 16, bytes: 64 << 20 };
/// Blocks that an edge of policy `latest` keeps, unless the pipeline says otherwise.
const DEFAULT_LATEST_BLOCKS: usize = 4;
/// Blocks that may wait in an edge that holds whatever the pool before it gives.
const MOST_BLOCKS: usize = 4096;

/// What a plan is made with besides the graph.
#[derive(Clone)]
pub struct PlanOptions {
    /// The computations of the host.
    pub ops: Arc<dyn Backend>,
    /// Devices; nodes that compute are placed on the first. Without any, all nodes work on the host.
    pub devices: Vec<Arc<dyn Device>>,
    /// Reads reference images from files.
    pub images: Arc<dyn ImageReader>,
    /// Host memory that the run may take, in bytes.
    pub memory_bytes: u64,
    /// Memory of each device that the run may take, in bytes; by default nearly all that is free.
    pub device_memory_bytes: Option<u64>,
    /// Whether sinks may replace files that exist.
    pub overwrite: bool,
    /// Start of the run, for paths: `YYYYMMDD-HHMMSS`.
    pub date: String,
    /// File for a trace of the run: what each node and device did when, for Perfetto or `chrome://tracing`.
    pub trace: Option<PathBuf>,
}

impl PlanOptions {
    /// The host alone, with all the memory that there is.
    pub fn new(ops: Arc<dyn Backend>, images: Arc<dyn ImageReader>) -> Self {
        Self {
            ops,
            devices: Vec::new(),
            images,
            memory_bytes: u64::MAX,
            device_memory_bytes: None,
            overwrite: false,
            date: String::new(),
            trace: None,
        }
    }

    /// Where a node of a kind works; `None` for the host.
    fn device_for(&self, kind: &KindInfo) -> Option<&Arc<dyn Device>> {
        self.devices.first().filter(|_| kind.computes)
    }

    fn context(&self, node: &str, ops: Arc<dyn Backend>, journal: &Journal, board: &Board) -> BuildContext {
        BuildContext {
            node: node.to_owned(),
            ops,
            images: self.images.clone(),
            journal: journal.signed(node),
            board: board.clone(),
            date: self.date.clone(),
            overwrite: self.overwrite,
        }
    }
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
    /// The series that a source announces needs more memory than there is.
    #[error("node '{node}': {}", error.full_text())]
    Memory {
        /// The source.
        node: String,
        /// Which memory, how much of it, and what to do.
        error: NodeError,
    },
}

pub(crate) struct PlannedNode {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) class: KindClass,
    pub(crate) previews: bool,
    /// Where it works.
    pub(crate) device: DeviceId,
    /// Memory for what it hands on.
    pub(crate) pool: Arc<dyn Allocator>,
    pub(crate) parameters: serde_json::Value,
    pub(crate) cx: BuildContext,
    pub(crate) built: PlannedRunner,
    /// How the copies go; `None` for all but transfers.
    pub(crate) copies: Option<Arc<Copies>>,
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
    /// Whether it holds more than its capacity where the pool before it has more.
    pub(crate) follows_pool: bool,
    /// Where it spills, by position in the plan.
    pub(crate) spill: Option<usize>,
}

impl PlannedEdge {
    /// Blocks of `block_bytes` that the edge holds at most.
    pub(crate) fn blocks_held(&self, block_bytes: usize) -> usize {
        match self.policy {
            Policy::Latest => self.capacity.blocks,
            Policy::Block | Policy::Spill => {
                self.capacity.blocks.min((self.capacity.bytes / block_bytes.max(1)).max(1))
            }
        }
    }

    /// What may wait in it.
    pub(crate) fn room(&self) -> Capacity {
        if self.follows_pool {
            Capacity { blocks: self.capacity.blocks.max(MOST_BLOCKS), bytes: usize::MAX }
        } else {
            self.capacity
        }
    }
}

/// Nodes with those that are only asked, and edges, before they are sized.
struct Draft {
    nodes: Vec<PlannedNode>,
    probes: Vec<Probe>,
    edges: Vec<PlannedEdge>,
    spills: Vec<SpillSettings>,
}

/// A checked graph, ready to run.
pub struct Plan {
    pub(crate) name: String,
    pub(crate) nodes: Vec<PlannedNode>,
    pub(crate) edges: Vec<PlannedEdge>,
    pub(crate) spills: Vec<SpillSettings>,
    pub(crate) sizer: Arc<SeriesSizer>,
    pub(crate) journal: Journal,
    pub(crate) board: Board,
    pub(crate) devices: Vec<Arc<dyn Device>>,
    pub(crate) trace: Option<PathBuf>,
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
        let mut draft = build_all(graph, registry, options, &journal, &board)?;
        let host_context = |id: &str| options.context(id, options.ops.clone(), &journal, &board);
        draft = transfers::insert(draft, &options.devices, host_context)
            .map_err(|refusal| device_failed(&refusal.node, refusal.error))?;
        transfers::pin_pools(&mut draft, &options.devices);
        can_spill(&draft)?;
        let Draft { nodes, probes, mut edges, spills } = draft;
        // What a device node was granted beyond the least must find room behind it, or it would wait all the same.
        for edge in &mut edges {
            edge.follows_pool &= nodes[edge.from].device != DeviceId::Cpu;
        }
        let limits = Limits::new(options.memory_bytes, &options.devices, options.device_memory_bytes);
        let sized = nodes.iter().zip(probes).map(|(node, probe)| SizedNode {
            name: node.id.clone(),
            device: node.device,
            pool: node.pool.kind(),
            source_bytes: source_bytes(node),
            probe,
        });
        let sizer = SeriesSizer::new(sized.collect(), edges.clone(), limits);
        let mut plan = Self {
            name: graph.place().name().to_owned(),
            nodes,
            edges,
            spills,
            sizer: Arc::new(sizer),
            journal,
            board,
            devices: options.devices.clone(),
            trace: options.trace.clone(),
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
            if let Err(error) = self.sizer.slots(at, &header, own, own) {
                return Err(PlanError::Memory { node: self.nodes[at].id.clone(), error });
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

/// Builds all nodes, each for the place where it works.
fn build_all(
    graph: &Graph,
    registry: &Registry,
    options: &PlanOptions,
    journal: &Journal,
    board: &Board,
) -> Result<Draft, PlanError> {
    let mut errors = Vec::new();
    let mut nodes = Vec::new();
    let mut probes = Vec::new();
    for spec in graph.nodes() {
        let Some(info) = registry.get(&spec.kind) else { continue };
        let device = options.device_for(info);
        let ops = match device {
            Some(device) => device.backend(&spec.id).map_err(|error| device_failed(&spec.id, error))?,
            None => options.ops.clone(),
        };
        let cx = options.context(&spec.id, ops, journal, board);
        let parameters = serde_json::Value::Object(spec.parameters.clone());
        match build(graph, &spec.id, info, &parameters, &cx) {
            Ok((runner, probe)) => {
                probes.push(probe);
                nodes.push(PlannedNode {
                    id: spec.id.clone(),
                    kind: info.kind,
                    class: info.class,
                    previews: info.previews,
                    device: device.map_or(DeviceId::Cpu, |device| device.id()),
                    pool: transfers::allocator(device),
                    parameters,
                    cx,
                    built: runner,
                    copies: None,
                });
            }
            Err(error) => errors.push(error),
        }
    }
    errors.extend(unsupported(graph));
    if !errors.is_empty() {
        return Err(Errors::new(errors).into());
    }
    let (edges, spills) = edges(graph, &nodes);
    Ok(Draft { nodes, probes, edges, spills })
}

fn device_failed(node: &str, error: OpError) -> PlanError {
    let error = NodeError::because(NodeErrorKind::Io, "the device refused the node", error);
    PlanError::Node { node: node.to_owned(), error }
}

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
        let folders = spec.inputs.iter().filter_map(|input| input.spill_dir.as_ref());
        for folder in folders.filter(|folder| folder.exists() && !folder.is_dir()) {
            let message = format!("spill_dir: expected a folder, found the file {}", folder.display());
            errors.push(graph.error_at(&spec.id, &input, &message));
        }
    }
    errors
}

/// Only what lies in host memory can go to disk.
fn can_spill(draft: &Draft) -> Result<(), PlanError> {
    let on_device =
        |edge: &&PlannedEdge| edge.spill.is_some() && !draft.nodes[edge.from].pool.kind().is_host();
    let Some(edge) = draft.edges.iter().find(on_device) else { return Ok(()) };
    let (from, to) = (&draft.nodes[edge.from], &draft.nodes[edge.to]);
    let text = format!(
        "its input cannot spill: the blocks of '{}' lie on {}, where both work; let an edge before them spill",
        from.id, from.device
    );
    Err(PlanError::Node { node: to.id.clone(), error: NodeError::config(text) })
}

fn edges(graph: &Graph, nodes: &[PlannedNode]) -> (Vec<PlannedEdge>, Vec<SpillSettings>) {
    let index = |id: &str| nodes.iter().position(|node| node.id == id);
    let (mut edges, mut spills) = (Vec::new(), Vec::new());
    for spec in graph.nodes() {
        for input in &spec.inputs {
            let (Some(from), Some(to)) = (index(&input.from_node), index(&spec.id)) else { continue };
            let policy = match input.when_full {
                WhenFull::Latest => Policy::Latest,
                WhenFull::Block => Policy::Block,
                WhenFull::Spill => Policy::Spill,
            };
            let spill = (policy == Policy::Spill).then(|| {
                let folder = input.spill_dir.clone().unwrap_or_else(default_folder);
                spills.push(SpillSettings { folder, most_bytes: input.spill_bytes.map(NonZero::get) });
                spills.len() - 1
            });
            let default_blocks =
                if policy == Policy::Latest { DEFAULT_LATEST_BLOCKS } else { DEFAULT_CAPACITY.blocks };
            let capacity = Capacity {
                blocks: input.capacity_blocks.map_or(default_blocks, NonZero::get),
                bytes: input.capacity_bytes.map_or(DEFAULT_CAPACITY.bytes, NonZero::get),
            };
            let is_told = input.capacity_blocks.is_some() || input.capacity_bytes.is_some();
            edges.push(PlannedEdge {
                from,
                to,
                policy,
                capacity,
                follows_pool: policy == Policy::Block && !is_told,
                spill,
            });
        }
    }
    (edges, spills)
}

fn source_bytes(node: &PlannedNode) -> u64 {
    match &node.built {
        PlannedRunner::Source { source, .. } => source.memory_bytes() as u64,
        PlannedRunner::Node(_) => 0,
    }
}
