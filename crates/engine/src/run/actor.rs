//! The actor of one node: starts its worker, carries parameter changes to it, replaces it when it panics.

use std::sync::Arc;
use std::thread;

use actix::fut::wrap_future;
use actix::prelude::*;
use beamstream_node::{BuildContext, Built, Node, Outlet, Registry, SetError, Source, TakesEffect};
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
    Node { node: Box<dyn Node>, seat: Box<Seat> },
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
    /// `None` for sources, whose parameters are fixed once the run has begun.
    pub(crate) commands: Option<Sender<Command>>,
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
                Work::Source { mut source, mut outlet, stats } => {
                    (run_source(&mut *source, &mut outlet, &stats), None)
                }
                Work::Node { node, seat } => run_node(node, *seat),
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
            self.launch(Work::Node { node, seat: Box::new(seat) }, cx.address());
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
#[rtype(result = "Result<TakesEffect, SetError>")]
pub(crate) struct Set {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) epoch: u32,
}

impl Handler<Set> for NodeActor {
    type Result = ResponseActFuture<Self, Result<TakesEffect, SetError>>;

    fn handle(&mut self, set: Set, _cx: &mut Self::Context) -> Self::Result {
        let Set { key, value, epoch } = set;
        let refuse =
            |key: &str, what: &str| SetError::Value { key: key.to_owned(), message: what.to_owned() };
        let (reply, answer) = oneshot::channel();
        let command = Command { key: key.clone(), value: value.clone(), epoch, reply };
        let sent = match &self.commands {
            None => Err(SetError::Fixed(key.clone())),
            Some(commands) => commands.try_send(command).map_err(|error| match error {
                TrySendError::Full(_) => refuse(&key, "too many changes are waiting already"),
                TrySendError::Disconnected(_) => refuse(&key, "the node has ended"),
            }),
        };
        let outcome = async move {
            sent?;
            answer
                .await
                .unwrap_or_else(|_gone| Err(refuse(&key, "the node has ended")))
                .map(|effect| (key, effect))
        };
        Box::pin(wrap_future(outcome).map(move |outcome, actor: &mut Self, _cx| {
            let (key, effect) = outcome?;
            // A node that takes the place of one that panicked begins with the changed parameter.
            if let Some(parameters) = actor.recipe.parameters.as_object_mut() {
                parameters.insert(key, value);
            }
            Ok(effect)
        }))
    }
}
