//! The actor of one node: starts its worker, carries parameter changes to it, replaces it when it panics.

use std::sync::Arc;
use std::thread;

use actix::prelude::*;
use beamstream_node::{BuildContext, Built, Node, Outlet, Registry, SetError, Source};
use crossbeam_channel::{Sender, TrySendError};
use serde_json::Value;
use tokio::sync::oneshot;

use super::stats::NodeStats;
use super::supervisor::{NodeExited, Supervisor};
use super::worker::{Command, Exit, Seat, run_node, run_source};

/// How often a node that panics is replaced before the run ends.
const MAX_RESTARTS: u32 = 3;

/// What a worker is started with.
pub(crate) enum Work {
    Source { source: Box<dyn Source>, outlet: Outlet, stats: Arc<NodeStats> },
    Node { node: Box<dyn Node>, seat: Seat },
}

/// Builds a node anew: its kind, parameters and context.
pub(crate) struct Recipe {
    pub(crate) registry: Arc<Registry>,
    pub(crate) kind: &'static str,
    pub(crate) parameters: Value,
    pub(crate) cx: BuildContext,
}

impl Recipe {
    fn build(&self) -> Option<Box<dyn Node>> {
        match self.registry.get(self.kind)?.build(&self.parameters, &self.cx) {
            Ok(Built::Node(node)) => Some(node),
            Ok(Built::Source(_)) | Err(_) => None,
        }
    }
}

/// The control plane of one node. It never touches a block and never waits.
pub(crate) struct NodeActor {
    pub(crate) index: usize,
    pub(crate) id: String,
    pub(crate) commands: Sender<Command>,
    pub(crate) supervisor: Addr<Supervisor>,
    pub(crate) recipe: Recipe,
    pub(crate) work: Option<Work>,
    pub(crate) restarts: u32,
}

impl Actor for NodeActor {
    type Context = Context<Self>;

    fn started(&mut self, cx: &mut Self::Context) {
        if let Some(work) = self.work.take() {
            self.launch(work, cx.address());
        }
    }
}

impl NodeActor {
    fn launch(&self, work: Work, myself: Addr<Self>) {
        let spawned = thread::Builder::new().name(self.id.clone()).spawn(move || {
            let (exit, seat) = match work {
                Work::Source { mut source, mut outlet, stats } => (run_source(&mut *source, &mut outlet, &stats), None),
                Work::Node { node, seat } => run_node(node, seat),
            };
            // Sent once per worker, so the mailbox cannot grow.
            myself.do_send(WorkerEnded { exit, seat });
        });
        if let Err(error) = spawned {
            let text = format!("no thread could be started: {error}");
            self.supervisor.do_send(NodeExited { index: self.index, exit: Exit::Panicked(text) });
        }
    }
}

/// The worker has ended; its seat comes back if the node panicked.
#[derive(Message)]
#[rtype(result = "()")]
struct WorkerEnded {
    exit: Exit,
    seat: Option<Seat>,
}

impl Handler<WorkerEnded> for NodeActor {
    type Result = ();

    fn handle(&mut self, ended: WorkerEnded, cx: &mut Self::Context) {
        if let (Exit::Panicked(text), Some(seat)) = (&ended.exit, ended.seat)
            && self.restarts < MAX_RESTARTS
            && let Some(node) = self.recipe.build()
        {
            self.restarts += 1;
            let message = format!("the node panicked ({text}) and was replaced; its series is incomplete");
            self.recipe.cx.journal.warn(message);
            self.supervisor.do_send(NodeRestarted);
            self.launch(Work::Node { node, seat }, cx.address());
            return;
        }
        self.supervisor.do_send(NodeExited { index: self.index, exit: ended.exit });
    }
}

/// A node was replaced after a panic.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct NodeRestarted;

/// Changes a parameter of the node between two blocks.
#[derive(Message)]
#[rtype(result = "Result<(), SetError>")]
pub(crate) struct Set {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) epoch: u32,
}

impl Handler<Set> for NodeActor {
    type Result = ResponseFuture<Result<(), SetError>>;

    fn handle(&mut self, set: Set, _cx: &mut Self::Context) -> Self::Result {
        let (reply, answer) = oneshot::channel();
        let key = set.key.clone();
        let busy = move |what: &str| SetError::Value { key, message: what.to_owned() };
        let command = Command { key: set.key, value: set.value, epoch: set.epoch, reply };
        match self.commands.try_send(command) {
            Ok(()) => Box::pin(async move { answer.await.unwrap_or_else(|_gone| Err(busy("the node has ended"))) }),
            Err(TrySendError::Full(_)) => Box::pin(async move { Err(busy("too many changes are waiting already")) }),
            Err(TrySendError::Disconnected(_)) => Box::pin(async move { Err(busy("the node has ended")) }),
        }
    }
}
