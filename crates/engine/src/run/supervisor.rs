//! The supervisor: knows all nodes of a run, decides what their exits mean, watches for those that stall.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::fut::wrap_future;
use actix::prelude::*;
use beamstream_node::{NodeErrorKind, SetError};
use crossbeam_channel::Sender;
use serde_json::Value;

use super::actor::{NodeActor, NodeRestarted, Set};
use super::shared::{Failure, Outcome, RunShared};
use super::stats::WorkerState;
use super::worker::Exit;
use crate::report::ExitCode;

/// How often the supervisor looks at the nodes.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// A node that works on one block for this long is named in a warning.
const STALL_AFTER: Duration = Duration::from_mins(1);

/// What the supervisor remembers of a node.
struct Watched {
    progress: u64,
    since: Instant,
    told: bool,
}

/// One per run.
pub(crate) struct Supervisor {
    shared: Arc<RunShared>,
    nodes: Vec<Addr<NodeActor>>,
    running: usize,
    watched: Vec<Watched>,
    failures: Vec<Failure>,
    panics: u64,
    epoch: u32,
    done: Sender<Outcome>,
}

impl Supervisor {
    pub(crate) fn new(shared: Arc<RunShared>, done: Sender<Outcome>) -> Self {
        let count = shared.nodes.len();
        let watched =
            (0..count).map(|_| Watched { progress: 0, since: Instant::now(), told: false }).collect();
        Self {
            shared,
            nodes: Vec::new(),
            running: count,
            watched,
            failures: Vec::new(),
            panics: 0,
            epoch: 0,
            done,
        }
    }

    fn watch(&mut self) {
        for (node, watched) in self.shared.nodes.iter().zip(&mut self.watched) {
            let progress = node.stats.progress();
            let stuck =
                node.stats.state() == WorkerState::Working && !node.is_source && progress == watched.progress;
            if !stuck {
                *watched = Watched { progress, since: Instant::now(), told: watched.told };
            } else if !watched.told && watched.since.elapsed() >= STALL_AFTER {
                watched.told = true;
                let seconds = watched.since.elapsed().as_secs();
                node.journal.warn(format!("the node has worked on one block for {seconds} s"));
            }
        }
        self.shared.publish_metrics();
    }

    fn finish_if_all_ended(&mut self) {
        if self.running > 0 {
            return;
        }
        self.shared.publish_metrics();
        let outcome = Outcome { failures: std::mem::take(&mut self.failures), panics: self.panics };
        // The handle may have been dropped; then nobody wants to know.
        drop(self.done.try_send(outcome));
        System::current().stop();
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, cx: &mut Self::Context) {
        cx.run_interval(WATCH_INTERVAL, |supervisor, _cx| supervisor.watch());
    }
}

/// The actors of all nodes, in their order.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Nodes(pub(crate) Vec<Addr<NodeActor>>);

impl Handler<Nodes> for Supervisor {
    type Result = ();

    fn handle(&mut self, nodes: Nodes, _cx: &mut Self::Context) {
        self.nodes = nodes.0;
        self.finish_if_all_ended();
    }
}

/// A node has ended for good.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct NodeExited {
    pub(crate) index: usize,
    pub(crate) exit: Exit,
}

impl Handler<NodeExited> for Supervisor {
    type Result = ();

    fn handle(&mut self, exited: NodeExited, _cx: &mut Self::Context) {
        let node = self.shared.nodes[exited.index].id.clone();
        self.shared.nodes[exited.index].stats.set_state(WorkerState::Done);
        tracing::debug!(%node, exit = ?exited.exit, "node ended");
        let failure = match exited.exit {
            Exit::Finished | Exit::Stopped | Exit::DownstreamClosed => None,
            Exit::Failed(error) => {
                let code = match error.kind() {
                    NodeErrorKind::Config => ExitCode::Config,
                    NodeErrorKind::Io => ExitCode::Io,
                    _ => ExitCode::Internal,
                };
                Some(Failure { node, code, message: error.full_text() })
            }
            Exit::Panicked(message) => Some(Failure { node, code: ExitCode::Internal, message }),
        };
        if let Some(failure) = failure {
            // What is under way elsewhere is finished; nothing new is taken in.
            self.failures.push(failure);
            self.shared.stop.drain();
        }
        self.running = self.running.saturating_sub(1);
        self.finish_if_all_ended();
    }
}

impl Handler<NodeRestarted> for Supervisor {
    type Result = ();

    fn handle(&mut self, _restarted: NodeRestarted, _cx: &mut Self::Context) {
        self.panics += 1;
    }
}

/// Changes a parameter of a node, as a new epoch.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct SetParameter {
    pub(crate) node: String,
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) reply: Sender<Result<u32, SetError>>,
}

impl Handler<SetParameter> for Supervisor {
    type Result = ();

    fn handle(&mut self, change: SetParameter, cx: &mut Self::Context) {
        let at = self.shared.nodes.iter().position(|node| node.id == change.node);
        let Some(actor) = at.and_then(|at| self.nodes.get(at)) else {
            let message = format!("no node is named '{}'", change.node);
            drop(change.reply.try_send(Err(SetError::Value { key: change.key, message })));
            return;
        };
        self.epoch += 1;
        let epoch = self.epoch;
        let asked = actor.send(Set { key: change.key.clone(), value: change.value.clone(), epoch });
        let shared = self.shared.clone();
        cx.spawn(wrap_future(async move {
            let gone = |_closed| SetError::Value {
                key: change.key.clone(),
                message: "the node has ended".to_owned(),
            };
            let outcome = asked.await.map_err(gone).and_then(|outcome| outcome);
            if outcome.is_ok() {
                shared.note_change(epoch, &change.node, &change.key, &change.value);
            }
            // Whoever asked may have stopped waiting.
            drop(change.reply.try_send(outcome.map(|_effect| epoch)));
        }));
    }
}
