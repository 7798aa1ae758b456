//! The handle of a run: start it, look at it, change it, stop it, wait for its report.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use actix::prelude::*;
use beamstream_node::{Board, SeriesRecord, SetError, StopController};
use crossbeam_channel::{Receiver, bounded};
use serde::Serialize;
use serde_json::Value;

use super::shared::{Outcome, RunShared, SharedNode};
use super::stats::WorkerState;
use super::supervisor::{Nodes, SetParameter, Supervisor};
use super::trace::Tracer;
use super::wire::wire;
use crate::plan::Plan;
use crate::report::Report;

/// How long a parameter change may take before the caller is told that it is still waiting.
const SET_TIMEOUT: Duration = Duration::from_secs(10);

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
    pub fn start(mut self) -> std::io::Result<RunHandle> {
        self.hand_over_earlier();
        let (controller, stop) = StopController::new();
        let board = self.board.clone();
        let (shared, works) = wire(self, controller, &stop);
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
