//! The handle of a run: start it, look at it, change it, stop it, wait for its report.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use actix::prelude::*;
use beamstream_buffer::DeviceId;
use beamstream_node::{Board, Journal, KindClass, Outlet, SeriesRecord, SetError, Stop, StopController};
use crossbeam_channel::{Receiver, bounded};
use serde::Serialize;
use serde_json::Value;

use super::account::SeriesAccount;
use super::actor::{NodeActor, Recipe, Work};
use super::edge::{EdgeReceiver, EdgeStats, edge};
use super::emit::{EdgeSet, OutEdge, Ties};
use super::energy::Energy;
use super::shelf::PoolShelf;
use super::stats::{NodeStats, WorkerState};
use super::supervisor::{Nodes, SetParameter, Supervisor};
use super::trace::Tracer;
use super::worker::Seat;
use crate::plan::{Copies, Plan, PlannedRunner, SeriesSizer};
use crate::report::{ExitCode, Report};

/// Parameter changes that may wait for one node.
const WAITING_COMMANDS: usize = 16;
/// Parameter changes that are kept for the report.
const MAX_CHANGES: usize = 1000;
/// How long a parameter change may take before the caller is told that it is still waiting.
const SET_TIMEOUT: Duration = Duration::from_secs(10);

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
    tracer: Option<Tracer>,
    changes: Mutex<Vec<ParameterChange>>,
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

    fn halt(&self) {
        self.stop.halt();
        for node in &self.nodes {
            node.pools.close();
        }
    }
}

/// Whether a run still works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// At least one node works.
    Running,
    /// Sources were asked to end; what is under way is finished.
    Draining,
    /// All nodes have ended.
    Ended,
}

/// One node of a [`Status`].
#[derive(Debug, Clone, Serialize)]
pub struct NodeStatus {
    /// The node.
    pub id: String,
    /// Its kind.
    pub kind: &'static str,
    /// What it does now.
    pub state: WorkerState,
    /// Blocks taken in.
    pub blocks_in: u64,
    /// Blocks handed on.
    pub blocks_out: u64,
    /// Bytes handed on.
    pub bytes_out: u64,
}

/// A look at a run while it works.
#[derive(Debug, Clone)]
pub struct Status {
    /// Whether it works.
    pub state: RunState,
    /// Seconds since its start.
    pub elapsed: Duration,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
    /// All series so far.
    pub series: Vec<SeriesRecord>,
}

/// Why a parameter was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetFailure {
    /// The node refused it.
    #[error(transparent)]
    Refused(#[from] SetError),
    /// The node works on a block for so long that it has not looked yet; the change still waits.
    #[error("the node has not answered yet; the change takes effect after the block it works on")]
    Waiting,
}

/// A run that was started.
pub struct RunHandle {
    shared: Arc<RunShared>,
    board: Board,
    supervisor: Addr<Supervisor>,
    done: Receiver<Outcome>,
    control: Option<JoinHandle<()>>,
}

impl Plan {
    /// Starts the run: every node gets an actor, a worker thread and its edges.
    ///
    /// # Errors
    /// If the control thread cannot be started.
    pub fn start(self) -> std::io::Result<RunHandle> {
        let (controller, stop) = StopController::new();
        let board = self.board.clone();
        let Wired { shared, works } = wire(self, controller, &stop);
        let shared = Arc::new(shared);
        let (done_sender, done) = bounded(1);
        let (address_sender, address) = bounded(1);
        let for_control = shared.clone();
        let control = thread::Builder::new().name("control".to_owned()).spawn(move || {
            let system = System::new();
            system.block_on(async move {
                let supervisor = Supervisor::new(for_control, done_sender).start();
                let actors = works.into_iter().map(|prepared| prepared.start(supervisor.clone())).collect();
                supervisor.do_send(Nodes(actors));
                drop(address_sender.send(supervisor));
            });
            if let Err(error) = system.run() {
                tracing::error!(%error, "the control system failed");
            }
        })?;
        let supervisor =
            address.recv().map_err(|_gone| std::io::Error::other("the control thread did not start"))?;
        Ok(RunHandle { shared, board, supervisor, done, control: Some(control) })
    }
}

/// A node with everything that its worker needs.
struct Prepared {
    index: usize,
    id: String,
    work: Work,
    recipe: Recipe,
    commands: Option<crossbeam_channel::Sender<super::worker::Command>>,
}

impl Prepared {
    fn start(self, supervisor: Addr<Supervisor>) -> Addr<NodeActor> {
        let Self { index, id, work, recipe, commands } = self;
        NodeActor { index, id, commands, supervisor, recipe, work: Some(work), restarts: 0 }.start()
    }
}

struct Wired {
    shared: RunShared,
    works: Vec<Prepared>,
}

/// Makes the edges and outlets of a plan.
fn wire(plan: Plan, controller: StopController, stop: &Stop) -> Wired {
    let ids: Vec<String> = plan.nodes.iter().map(|node| node.id.clone()).collect();
    let mut outgoing: Vec<Vec<OutEdge>> = ids.iter().map(|_| Vec::new()).collect();
    let mut incoming: Vec<Option<EdgeReceiver>> = ids.iter().map(|_| None).collect();
    let mut edges = Vec::new();
    let started = Instant::now();
    let tracer = plan.trace.as_deref().map(|path| Tracer::start(path, &plan.devices));
    let track = |name: &str| tracer.as_ref().map(|tracer| tracer.track(name));
    for planned in &plan.edges {
        let names = format!("{} -> {}", ids[planned.from], ids[planned.to]);
        let (mut sender, receiver) = edge(&names, planned.policy, planned.room());
        sender.track = track(&names);
        let (from, to) = (ids[planned.from].clone(), ids[planned.to].clone());
        edges.push(SharedEdge { from, to, stats: sender.stats.clone() });
        outgoing[planned.from].push(OutEdge::new(sender, plan.nodes[planned.to].previews));
        incoming[planned.to] = Some(receiver);
    }
    let mut nodes = Vec::new();
    let mut works = Vec::new();
    for (index, planned) in plan.nodes.into_iter().enumerate() {
        let stats = Arc::new(NodeStats::new(started, track(&planned.id)));
        let journal = planned.cx.journal.clone();
        let pools = PoolShelf::new(&planned.id, planned.pool.clone());
        let out = std::mem::take(&mut outgoing[index]);
        let ties = Ties {
            stop: stop.clone(),
            stats: stats.clone(),
            sizer: plan.sizer.clone(),
            pools: pools.clone(),
            account: SeriesAccount::new(&planned),
            is_source: planned.class == KindClass::Source,
        };
        let emit = EdgeSet::new(index, out, ties);
        let outlet = Outlet::new(Box::new(emit), stop.clone(), journal.clone());
        let (commands, commands_receiver) = bounded(WAITING_COMMANDS);
        let is_source = matches!(planned.built, PlannedRunner::Source { .. });
        nodes.push(SharedNode {
            id: planned.id.clone(),
            kind: planned.kind,
            device: planned.device,
            is_source,
            stats: stats.clone(),
            pools,
            journal,
            copies: planned.copies.clone(),
        });
        let on_host = planned.device == DeviceId::Cpu;
        let account = SeriesAccount::new(&planned);
        let work = match (planned.built, incoming[index].take()) {
            (PlannedRunner::Source { source, .. }, _) => Work::Source { source, outlet, stats },
            (PlannedRunner::Node(node), Some(input)) => Work::Node {
                node,
                seat: Seat {
                    input,
                    outlet,
                    commands: commands_receiver,
                    stop: stop.clone(),
                    stats,
                    on_host,
                    // What a sink takes is its result; that of other nodes is counted where it leaves them.
                    account: (planned.class == KindClass::Sink).then_some(account),
                },
            },
            // The graph check has refused nodes without an input.
            (PlannedRunner::Node(_), None) => continue,
        };
        let recipe = Recipe {
            registry: plan.registry.clone(),
            kind: planned.kind,
            parameters: planned.parameters,
            cx: planned.cx,
        };
        let commands = (!is_source).then_some(commands);
        works.push(Prepared { index, id: planned.id, work, recipe, commands });
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
    Wired { shared, works }
}

impl RunHandle {
    /// A look at the run.
    pub fn status(&self) -> Status {
        let node = |node: &SharedNode| NodeStatus {
            id: node.id.clone(),
            kind: node.kind,
            state: node.stats.state(),
            blocks_in: node.stats.blocks_in(),
            blocks_out: node.stats.blocks_out(),
            bytes_out: node.stats.bytes_out(),
        };
        let nodes: Vec<NodeStatus> = self.shared.nodes.iter().map(node).collect();
        let state = if nodes.iter().all(|node| node.state == WorkerState::Done) {
            RunState::Ended
        } else if self.shared.stopped_by_user.load(Ordering::Relaxed) {
            RunState::Draining
        } else {
            RunState::Running
        };
        Status {
            state,
            elapsed: self.shared.started.elapsed(),
            nodes,
            series: self.shared.journal.all_series(),
        }
    }

    /// What the `view` nodes show.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Asks the sources to end; what is under way is finished and files are closed properly.
    pub fn drain(&self) {
        self.shared.stopped_by_user.store(true, Ordering::Relaxed);
        self.shared.stop.drain();
    }

    /// Ends everything at once; unfinished files are removed.
    pub fn halt(&self) {
        self.shared.stopped_by_user.store(true, Ordering::Relaxed);
        self.shared.halt();
    }

    /// Changes a parameter of a node; it takes effect between two blocks. Gives the epoch that it begins.
    ///
    /// # Errors
    /// [`SetFailure`] if the node refuses it or does not answer in time.
    pub fn set(&self, node: &str, key: &str, value: Value) -> Result<u32, SetFailure> {
        let (reply, answer) = bounded(1);
        // Asked by people, one change at a time: the mailbox cannot fill.
        self.supervisor.do_send(SetParameter { node: node.to_owned(), key: key.to_owned(), value, reply });
        match answer.recv_timeout(SET_TIMEOUT) {
            Ok(outcome) => Ok(outcome?),
            Err(_timeout) => Err(SetFailure::Waiting),
        }
    }

    /// Waits until the run has ended, at most for `timeout`; gives its report, once.
    pub fn wait_timeout(&mut self, timeout: Duration) -> Option<Report> {
        let outcome = match self.done.recv_timeout(timeout) {
            Ok(outcome) => outcome,
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => return None,
            // The control thread died without a word.
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => {
                Outcome { failures: Vec::new(), panics: 1 }
            }
        };
        if let Some(control) = self.control.take() {
            // A panic there was counted above.
            drop(control.join());
        }
        if let Some(Err(error)) = self.shared.tracer.as_ref().map(Tracer::finish) {
            self.shared.journal.warn(error);
        }
        Some(Report::of(&self.shared, &outcome))
    }

    /// Waits until the run has ended and gives its report.
    pub fn wait(&mut self) -> Report {
        loop {
            if let Some(report) = self.wait_timeout(Duration::from_hours(1)) {
                return report;
            }
        }
    }
}

impl Drop for RunHandle {
    fn drop(&mut self) {
        if self.control.is_some() {
            self.shared.halt();
        }
    }
}
