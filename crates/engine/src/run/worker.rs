//! Workers: the threads that call the nodes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use beamstream_core::{SeriesHeader, SeriesSummary};
use beamstream_node::{Event, Node, NodeError, NodeErrorKind, Outlet, SetError, Source, Stop, TakesEffect};
use crossbeam_channel::{Receiver, Select, TryRecvError};
use crossbeam_utils::Backoff;
use serde_json::Value;
use tokio::sync::oneshot;

use super::edge::EdgeReceiver;
use super::stats::{NodeStats, WorkerState};

/// Why a worker ended.
#[derive(Debug)]
pub enum Exit {
    /// The input is over and everything was handed on.
    Finished,
    /// The run was halted.
    Stopped,
    /// Nobody is left to receive what the node makes.
    DownstreamClosed,
    /// The node failed.
    Failed(NodeError),
    /// The program is at fault.
    Panicked(String),
}

/// A parameter that is to change, and where the answer goes.
pub(crate) struct Command {
    pub(crate) key: String,
    pub(crate) value: Value,
    /// The epoch that the change begins, if it is accepted.
    pub(crate) epoch: u32,
    pub(crate) reply: oneshot::Sender<Result<TakesEffect, SetError>>,
}

/// What outlives a node that panicked: with it a new one can take the place.
pub(crate) struct Seat {
    pub(crate) input: EdgeReceiver,
    pub(crate) outlet: Outlet,
    pub(crate) commands: Receiver<Command>,
    pub(crate) stop: Stop,
    pub(crate) stats: Arc<NodeStats>,
}

/// Runs a source to its end.
pub(crate) fn run_source(source: &mut dyn Source, outlet: &mut Outlet, stats: &NodeStats) -> Exit {
    stats.set_state(WorkerState::Working);
    let outcome = catch_unwind(AssertUnwindSafe(|| source.run(outlet)));
    let exit = match outcome {
        Ok(Ok(())) => Exit::Finished,
        Ok(Err(error)) => exit_of(error, outlet.stop()),
        Err(panic) => Exit::Panicked(panic_text(&*panic)),
    };
    if outlet.header().is_some() && !matches!(exit, Exit::Stopped) {
        // What is behind gets a well-formed series even from a source that failed in the middle.
        drop(outlet.end(SeriesSummary { aborted: true, ..SeriesSummary::default() }));
    }
    stats.set_state(WorkerState::Done);
    exit
}

/// Runs a step or sink until its input is over; gives the seat back if the node panicked.
pub(crate) fn run_node(node: Box<dyn Node>, seat: Seat) -> (Exit, Option<Seat>) {
    let Seat { input, outlet, commands, stop, stats } = seat;
    let mut worker =
        Worker { node, outlet, stop: stop.clone(), stats, series: Series::None, next_epoch: None };
    let exit = worker.run(&Inputs { input: &input, commands: &commands, stop: &stop });
    if let Exit::Panicked(_) = exit {
        worker.abort_series();
        let Worker { outlet, stats, .. } = worker;
        return (exit, Some(Seat { input, outlet, commands, stop, stats }));
    }
    worker.stats.set_state(WorkerState::Done);
    (exit, None)
}

/// All that a worker waits for.
struct Inputs<'a> {
    input: &'a EdgeReceiver,
    commands: &'a Receiver<Command>,
    stop: &'a Stop,
}

/// Where in the series protocol the node stands.
enum Series {
    None,
    /// The node works on it.
    Active(Arc<SeriesHeader>),
    /// The node refused it; its blocks pass unused.
    Skipped,
}

struct Worker {
    node: Box<dyn Node>,
    outlet: Outlet,
    stop: Stop,
    stats: Arc<NodeStats>,
    series: Series,
    /// The epoch that begins with the next series.
    next_epoch: Option<u32>,
}

impl Worker {
    fn run(&mut self, inputs: &Inputs<'_>) -> Exit {
        // One selection for the whole run: making one allocates.
        let mut any = Select::new();
        inputs.input.select(&mut any);
        any.recv(inputs.commands);
        inputs.stop.select_halt(&mut any);
        loop {
            self.obey(inputs.commands);
            let event = match inputs.input.try_recv() {
                Ok(event) => event,
                Err(TryRecvError::Empty) => match self.wait(inputs, &mut any) {
                    Ok(Some(event)) => event,
                    Ok(None) => continue,
                    Err(exit) => return exit,
                },
                Err(TryRecvError::Disconnected) => return self.finish(),
            };
            if let Err(exit) = self.handle(event) {
                return exit;
            }
        }
    }

    /// Waits for input or a command: spins for the time that a thread takes to wake, then sleeps.
    fn wait(&self, inputs: &Inputs<'_>, any: &mut Select<'_>) -> Result<Option<Event>, Exit> {
        let since = Instant::now();
        self.stats.set_state(WorkerState::WaitingInput);
        let backoff = Backoff::new();
        let mut found = None;
        while found.is_none() && !backoff.is_completed() {
            backoff.snooze();
            found = inputs.input.try_recv().ok();
        }
        if found.is_none() {
            // Readiness only: the operation itself is done by `try_recv`, which keeps the edge's account.
            any.ready();
        }
        self.stats.count_input_wait(since.elapsed());
        self.stats.set_state(WorkerState::Working);
        if self.stop.is_halted() { Err(Exit::Stopped) } else { Ok(found) }
    }

    fn obey(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.try_recv() {
            let outcome = self.node.set(&command.key, &command.value);
            match outcome {
                Ok(TakesEffect::WithNextBlock) => self.outlet.set_epoch(command.epoch),
                Ok(TakesEffect::WithNextSeries) => self.next_epoch = Some(command.epoch),
                Err(_) => {}
            }
            // Whoever asked may have stopped waiting for the answer.
            drop(command.reply.send(outcome));
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Exit> {
        if self.stop.is_halted() {
            return Err(Exit::Stopped);
        }
        let step = catch_unwind(AssertUnwindSafe(|| match event {
            Event::Begin(header) => self.begin(&header),
            Event::Block(block) => {
                self.stats.count_in();
                match self.series {
                    Series::Active(_) => self.node.process(block, &mut self.outlet),
                    Series::None | Series::Skipped => Ok(()),
                }
            }
            Event::End(summary) => self.end(&summary),
        }));
        match step {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => self.judge(error),
            Err(panic) => Err(Exit::Panicked(panic_text(&*panic))),
        }
    }

    fn begin(&mut self, header: &Arc<SeriesHeader>) -> Result<(), NodeError> {
        self.series = Series::Skipped;
        if let Some(epoch) = self.next_epoch.take() {
            self.outlet.set_epoch(epoch);
        }
        let agreed = self.node.negotiate(header)?;
        self.outlet.begin(agreed.output, agreed.writes_blocks)?;
        self.series = Series::Active(header.clone());
        self.node.begin(header, &mut self.outlet)
    }

    fn end(&mut self, summary: &SeriesSummary) -> Result<(), NodeError> {
        if let Series::Active(_) = self.series {
            // Until both are done the series stays active, so that a failure is passed on as its end.
            self.node.end(summary, &mut self.outlet)?;
            self.outlet.end(summary.clone())?;
        }
        self.series = Series::None;
        Ok(())
    }

    /// Decides what a failure means.
    fn judge(&mut self, error: NodeError) -> Result<(), Exit> {
        match error.kind() {
            NodeErrorKind::Block => {
                self.stats.count_rejected();
                self.outlet.journal().warn(error.full_text());
                Ok(())
            }
            NodeErrorKind::Series => {
                self.stats.count_rejected();
                self.outlet.journal().warn(error.full_text());
                self.abort_series();
                self.series = Series::Skipped;
                Ok(())
            }
            _ => {
                self.abort_series();
                Err(exit_of(error, &self.stop))
            }
        }
    }

    /// The input is over: what was begun is ended, so that files are closed properly.
    fn finish(&mut self) -> Exit {
        if self.stop.is_halted() {
            return Exit::Stopped;
        }
        let summary = SeriesSummary { aborted: true, ..SeriesSummary::default() };
        let ended = catch_unwind(AssertUnwindSafe(|| self.end(&summary)));
        match ended {
            Ok(Ok(())) => Exit::Finished,
            Ok(Err(error)) => match self.judge(error) {
                Ok(()) => Exit::Finished,
                Err(exit) => exit,
            },
            Err(panic) => Exit::Panicked(panic_text(&*panic)),
        }
    }

    /// Tells those behind that the series ends here.
    fn abort_series(&mut self) {
        if let Series::Active(header) = std::mem::replace(&mut self.series, Series::None) {
            self.outlet.journal().series(header.id, |record| record.aborted = true);
            if self.outlet.header().is_some() && !self.stop.is_halted() {
                let summary = SeriesSummary { aborted: true, ..SeriesSummary::default() };
                drop(self.outlet.end(summary));
            }
        }
    }
}

/// A node that stopped because the run was halted is not at fault; one that nobody listens to ends quietly.
fn exit_of(error: NodeError, stop: &Stop) -> Exit {
    match error.kind() {
        NodeErrorKind::Stopped if stop.is_halted() => Exit::Stopped,
        NodeErrorKind::Stopped => Exit::DownstreamClosed,
        _ => Exit::Failed(error),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
