//! Workers: the threads that call the nodes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use beamstream_buffer::Block;
use beamstream_core::{SeriesHeader, SeriesSummary};
use beamstream_node::{Event, Node, NodeError, NodeErrorKind, Outlet, SetError, Source, Stop, TakesEffect};
use crossbeam_channel::{Receiver, Select, TryRecvError};
use crossbeam_utils::Backoff;
use serde_json::Value;
use tokio::sync::oneshot;

use super::account::SeriesAccount;
use super::edge::EdgeReceiver;
use super::stats::{NodeStats, WorkerState};
use super::trace::Doing;

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
    /// Whether the node looks into its blocks on the host.
    pub(crate) on_host: bool,
    /// Account of what a sink takes.
    pub(crate) account: Option<SeriesAccount>,
    /// What was taken from the edge and not handled yet.
    pub(crate) next: Option<Event>,
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
    let Seat { input, outlet, commands, stop, stats, on_host, account, next } = seat;
    let mut worker = Worker {
        node,
        outlet,
        stop: stop.clone(),
        stats,
        on_host,
        account,
        series: Series::None,
        takes: 1,
        gathered: Vec::new(),
        next,
        next_epoch: None,
    };
    let exit = worker.run(&Inputs { input: &input, commands: &commands, stop: &stop });
    if let Exit::Panicked(_) = exit {
        worker.abort_series();
        let Worker { outlet, stats, on_host, account, next, .. } = worker;
        return (exit, Some(Seat { input, outlet, commands, stop, stats, on_host, account, next }));
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
    on_host: bool,
    account: Option<SeriesAccount>,
    series: Series,
    /// Blocks that the node takes in one go, and those at hand.
    takes: usize,
    gathered: Vec<Block>,
    /// What came after the blocks that were gathered.
    next: Option<Event>,
    /// The epoch that begins with the next series.
    next_epoch: Option<u32>,
}

impl Worker {
    fn run(&mut self, inputs: &Inputs<'_>) -> Exit {
        match self.work(inputs) {
            Ok(()) => self.finish(),
            Err(exit) => exit,
        }
    }

    /// Works until the input is over.
    fn work(&mut self, inputs: &Inputs<'_>) -> Result<(), Exit> {
        // One selection for the whole run: making one allocates.
        let mut any = Select::new();
        inputs.input.select(&mut any);
        any.recv(inputs.commands);
        inputs.stop.select_halt(&mut any);
        loop {
            self.obey(inputs.commands)?;
            let event = match self.next.take().map_or_else(|| inputs.input.try_recv(), Ok) {
                Ok(event) => event,
                Err(TryRecvError::Empty) => match self.wait(inputs, &mut any)? {
                    Some(event) => event,
                    None => continue,
                },
                Err(TryRecvError::Disconnected) => return Ok(()),
            };
            match event {
                Event::Block(first) if self.takes > 1 => self.handle_several(first, inputs.input)?,
                event => self.handle(event)?,
            }
        }
    }

    /// Handles a block with those that wait behind it.
    fn handle_several(&mut self, first: Block, input: &EdgeReceiver) -> Result<(), Exit> {
        let number = first.meta.frame.number;
        self.gathered.push(first);
        while self.gathered.len() < self.takes && self.next.is_none() {
            match input.try_recv() {
                Ok(Event::Block(block)) => self.gathered.push(block),
                Ok(other) => self.next = Some(other),
                Err(_) => break,
            }
        }
        if self.stop.is_halted() {
            return Err(Exit::Stopped);
        }
        if let Some(account) = &mut self.account {
            self.gathered.iter().for_each(|block| account.note(&Event::Block(block.clone())));
        }
        let outcome = self.step(Doing::Block(number), Self::process_gathered);
        self.gathered.clear();
        outcome
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
        self.stats.span(Doing::WaitForInput, Some(since));
        self.stats.set_state(WorkerState::Working);
        if self.stop.is_halted() { Err(Exit::Stopped) } else { Ok(found) }
    }

    /// Changes parameters; of several changes that take effect now, the last one is made to show.
    fn obey(&mut self, commands: &Receiver<Command>) -> Result<(), Exit> {
        let mut now = false;
        while let Ok(command) = commands.try_recv() {
            let outcome = self.node.set(&command.key, &command.value);
            match outcome {
                Ok(TakesEffect::Now) => {
                    self.outlet.set_epoch(command.epoch);
                    now = true;
                }
                Ok(TakesEffect::WithNextBlock) => self.outlet.set_epoch(command.epoch),
                Ok(TakesEffect::WithNextSeries) => self.next_epoch = Some(command.epoch),
                Err(_) => {}
            }
            // Whoever asked may have stopped waiting for the answer.
            drop(command.reply.send(outcome));
        }
        if !now {
            return Ok(());
        }
        self.step(Doing::Change, |worker| worker.node.changed(&mut worker.outlet))?;
        if !matches!(self.series, Series::Active(_)) {
            // A series that was begun again and failed.
            self.end_what_was_begun();
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Exit> {
        if self.stop.is_halted() {
            return Err(Exit::Stopped);
        }
        if let Some(account) = &mut self.account {
            account.note(&event);
        }
        let doing = match &event {
            Event::Begin(_) => Doing::Begin,
            Event::Block(block) => Doing::Block(block.meta.frame.number),
            Event::End(_) => Doing::End,
        };
        self.step(doing, |worker| match event {
            Event::Begin(header) => worker.begin(&header),
            Event::Block(block) => worker.process(block),
            Event::End(summary) => worker.end(&summary),
        })
    }

    /// Lets the node do something and decides what its failure means.
    fn step(
        &mut self,
        doing: Doing,
        work: impl FnOnce(&mut Self) -> Result<(), NodeError>,
    ) -> Result<(), Exit> {
        let since = self.stats.span_begins();
        let outcome = catch_unwind(AssertUnwindSafe(|| work(self)));
        self.stats.span(doing, since);
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => self.judge(error),
            Err(panic) => Err(Exit::Panicked(panic_text(&*panic))),
        }
    }

    fn process(&mut self, block: Block) -> Result<(), NodeError> {
        self.stats.count_in();
        if !matches!(self.series, Series::Active(_)) {
            return Ok(());
        }
        if self.on_host {
            self.wait_for_device(&block);
        }
        self.node.process(block, &mut self.outlet)
    }

    fn process_gathered(&mut self) -> Result<(), NodeError> {
        self.gathered.iter().for_each(|_| self.stats.count_in());
        if !matches!(self.series, Series::Active(_)) {
            return Ok(());
        }
        if self.on_host {
            self.gathered.iter().for_each(|block| self.wait_for_device(block));
        }
        let count = self.gathered.len();
        self.node.process_all(&mut self.gathered, &mut self.outlet).inspect_err(|error| {
            if error.kind() == NodeErrorKind::Block {
                // None of them was done; `judge` counts one.
                (1..count).for_each(|_| self.stats.count_rejected());
            }
        })
    }

    /// A block in host memory that a device still writes: waits here, where the wait is counted as what it is.
    fn wait_for_device(&self, block: &Block) {
        if let Some(written) = block.written().filter(|written| !written.is_done()) {
            let since = Instant::now();
            self.stats.set_state(WorkerState::WaitingInput);
            written.wait();
            self.stats.count_device_wait(since.elapsed());
            self.stats.span(Doing::WaitForDevice, Some(since));
            self.stats.set_state(WorkerState::Working);
        }
    }

    fn begin(&mut self, header: &Arc<SeriesHeader>) -> Result<(), NodeError> {
        self.series = Series::Skipped;
        if let Some(epoch) = self.next_epoch.take() {
            self.outlet.set_epoch(epoch);
        }
        let agreed = self.node.negotiate(header)?;
        self.takes = agreed.takes_blocks;
        self.node.release();
        self.outlet.begin_with(agreed.output, agreed.writes_blocks, agreed.likes_blocks)?;
        self.series = Series::Active(header.clone());
        self.node.begin(header, &mut self.outlet)
    }

    fn end(&mut self, summary: &SeriesSummary) -> Result<(), NodeError> {
        if let Series::Active(_) = self.series {
            // Until both are done the series stays active, so that a failure is passed on as its end.
            self.node.end(summary, &mut self.outlet)?;
            self.outlet.end(summary.clone())?;
        }
        if let Some(account) = &mut self.account {
            account.close();
        }
        self.stats.series_ended();
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
        match self.step(Doing::End, |worker| worker.end(&summary)) {
            Ok(()) => Exit::Finished,
            Err(exit) => exit,
        }
    }

    /// Tells those behind that the series ends here.
    fn abort_series(&mut self) {
        if let Series::Active(header) = std::mem::replace(&mut self.series, Series::None) {
            self.outlet.journal().series(header.id, |record| record.aborted = true);
        }
        self.end_what_was_begun();
    }

    /// What is behind gets a well-formed series even from a node that failed in the middle.
    fn end_what_was_begun(&mut self) {
        if self.outlet.header().is_some() && !self.stop.is_halted() {
            drop(self.outlet.end(SeriesSummary { aborted: true, ..SeriesSummary::default() }));
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
