//! From a plan to what runs: edges, outlets, counters, and all that each worker is started with.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use actix::prelude::*;
use beamstream_buffer::DeviceId;
use beamstream_node::{KindClass, Outlet, Registry, Stop, StopController};
use crossbeam_channel::{Sender, bounded};

use super::account::SeriesAccount;
use super::actor::{NodeActor, Recipe, Work};
use super::edge::{EdgeReceiver, SpillPlace, edge};
use super::emit::{EdgeSet, OutEdge, Ties};
use super::energy::Energy;
use super::shared::{RunShared, SharedEdge, SharedNode};
use super::shelf::PoolShelf;
use super::stats::NodeStats;
use super::supervisor::Supervisor;
use super::trace::Tracer;
use super::worker::{Command, Seat};
use crate::plan::{Plan, PlannedNode, PlannedRunner, SeriesSizer};

/// Parameter changes that may wait for one node.
const WAITING_COMMANDS: usize = 16;

/// A node with everything that its worker needs.
pub(super) struct Prepared {
    index: usize,
    id: String,
    work: Work,
    recipe: Recipe,
    commands: Option<Sender<Command>>,
}

impl Prepared {
    /// Starts the actor, and with it the worker.
    pub(super) fn start(self, supervisor: Addr<Supervisor>) -> Addr<NodeActor> {
        let Self { index, id, work, recipe, commands } = self;
        NodeActor { index, id, commands, supervisor, recipe, work: Some(work), restarts: 0 }.start()
    }
}

/// What all nodes are joined by.
struct Joints<'a> {
    stop: &'a Stop,
    started: Instant,
    tracer: Option<&'a Tracer>,
    sizer: Arc<SeriesSizer>,
    registry: Arc<Registry>,
}

/// The ends of the edges of one node.
#[derive(Default)]
struct Ends {
    input: Option<EdgeReceiver>,
    outputs: Vec<OutEdge>,
}

/// Makes the edges and outlets of a plan.
pub(super) fn wire(plan: Plan, controller: StopController, stop: &Stop) -> (RunShared, Vec<Prepared>) {
    let started = Instant::now();
    let tracer = plan.trace.as_deref().map(|path| Tracer::start(path, &plan.devices));
    let (edges, ends) = make_edges(&plan, tracer.as_ref());
    let joints =
        Joints { stop, started, tracer: tracer.as_ref(), sizer: plan.sizer.clone(), registry: plan.registry };
    let mut nodes = Vec::new();
    let mut works = Vec::new();
    for (index, (planned, ends)) in plan.nodes.into_iter().zip(ends).enumerate() {
        let (node, work) = joints.prepare(index, planned, ends);
        nodes.push(node);
        works.extend(work);
    }
    let shared = RunShared {
        name: plan.name,
        started,
        nodes,
        edges,
        journal: plan.journal,
        stop: controller,
        stopped_by_user: AtomicBool::new(false),
        sizer: plan.sizer,
        energy: Energy::begin(&plan.devices),
        tracer,
        changes: Mutex::default(),
    };
    (shared, works)
}

fn make_edges(plan: &Plan, tracer: Option<&Tracer>) -> (Vec<SharedEdge>, Vec<Ends>) {
    let nodes = &plan.nodes;
    let mut edges = Vec::new();
    let mut ends: Vec<Ends> = nodes.iter().map(|_| Ends::default()).collect();
    for planned in &plan.edges {
        let (from, to) = (&nodes[planned.from], &nodes[planned.to]);
        let names = format!("{} -> {}", from.id, to.id);
        let settings = planned.spill.and_then(|at| plan.spills.get(at));
        let spill = settings.map(|settings| SpillPlace { settings, journal: plan.journal.signed(&from.id) });
        let (mut sender, receiver) = edge(&names, planned.policy, planned.room(), spill);
        sender.track = tracer.map(|tracer| tracer.track(&names));
        edges.push(SharedEdge { from: from.id.clone(), to: to.id.clone(), stats: sender.stats.clone() });
        ends[planned.from].outputs.push(OutEdge::new(sender, to.previews));
        ends[planned.to].input = Some(receiver);
    }
    (edges, ends)
}

impl Joints<'_> {
    /// What everybody sees of a node, and what its worker needs.
    fn prepare(&self, index: usize, planned: PlannedNode, ends: Ends) -> (SharedNode, Option<Prepared>) {
        let stats =
            Arc::new(NodeStats::new(self.started, self.tracer.map(|tracer| tracer.track(&planned.id))));
        let journal = planned.cx.journal.clone();
        let pools = PoolShelf::new(&planned.id, planned.pool.clone());
        let is_source = planned.class == KindClass::Source;
        let ties = Ties {
            stop: self.stop.clone(),
            stats: stats.clone(),
            sizer: self.sizer.clone(),
            pools: pools.clone(),
            account: SeriesAccount::new(&planned),
            is_source,
        };
        let emit = Box::new(EdgeSet::new(index, ends.outputs, ties));
        let outlet = Outlet::new(emit, self.stop.clone(), journal.clone());
        let shared = SharedNode {
            id: planned.id.clone(),
            kind: planned.kind,
            device: planned.device,
            is_source,
            stats: stats.clone(),
            pools,
            journal,
            copies: planned.copies.clone(),
        };
        let on_host = planned.device == DeviceId::Cpu;
        // What a sink takes is its result; that of other nodes is counted where it leaves them.
        let account = (planned.class == KindClass::Sink).then(|| SeriesAccount::new(&planned));
        let (sender, commands) = bounded(WAITING_COMMANDS);
        let work = match (planned.built, ends.input) {
            (PlannedRunner::Source { source, .. }, _) => Work::Source { source, outlet, stats },
            (PlannedRunner::Node(node), Some(input)) => {
                let stop = self.stop.clone();
                Work::Node {
                    node,
                    seat: Box::new(Seat {
                        input,
                        outlet,
                        commands,
                        stop,
                        stats,
                        on_host,
                        account,
                        next: None,
                    }),
                }
            }
            // The graph check has refused nodes without an input.
            (PlannedRunner::Node(_), None) => return (shared, None),
        };
        let recipe = Recipe {
            registry: self.registry.clone(),
            kind: planned.kind,
            parameters: planned.parameters,
            cx: planned.cx,
        };
        let commands = (!is_source).then_some(sender);
        (shared, Some(Prepared { index, id: planned.id, work, recipe, commands }))
    }
}
