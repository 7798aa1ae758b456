//! The source of a pipeline that receives from detectors.

mod buffers;
mod config;

use std::sync::Arc;
use std::time::{Duration, Instant};

use beamstream_core::SeriesHeader;
use beamstream_node::{Earlier, EarlierStep, NodeError, NodeErrorKind, Outlet, Source};
use crossbeam_channel::{Receiver as Line, Select};

use crate::assembler::{Action, Assembler, Rules};
use crate::fill::{FillError, fill};
use crate::protocol::{Decoder, Protocol};
use crate::zmtp::{Endpoint, MAX_PARTS, Message, Mode, Options, Receiver, SocketKind};

pub use config::{AnglesSetting, ModeSetting, OneOrMany, SocketSetting, ZmqSourceConfig};

pub(crate) use buffers::{FrameBuffers, Lent};

/// Messages that may wait, however small they are.
const WAITING_MESSAGES: usize = 256;
/// How often the accounts of the series go into the journal.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// Receives the frames of detectors, sorts them into series and sends them on.
pub struct ZmqSource {
    endpoints: Vec<(Endpoint, Mode)>,
    socket: Option<SocketKind>,
    protocol: Protocol,
    channel: Option<String>,
    buffer_bytes: u64,
    rules: Rules,
    /// What a run that was killed has left.
    earlier: Option<Box<dyn Earlier>>,
}

impl ZmqSource {
    pub(crate) fn new(
        endpoints: Vec<(Endpoint, Mode)>,
        socket: Option<SocketKind>,
        protocol: Protocol,
        channel: Option<String>,
        buffer_bytes: u64,
        rules: Rules,
    ) -> Self {
        Self { endpoints, socket, protocol, channel, buffer_bytes, rules, earlier: None }
    }

    /// Buffers that frames can wait in, and one more for each connection that is just receiving.
    fn waiting_buffers(&self, frame_bytes: usize) -> usize {
        let waiting = usize::try_from(self.buffer_bytes).unwrap_or(usize::MAX) / frame_bytes.max(1);
        waiting.clamp(2, WAITING_MESSAGES) + self.endpoints.len()
    }

    fn receiver(&self, out: &Outlet, buffers: &FrameBuffers) -> Result<Receiver<Lent>, NodeError> {
        let mut options = Options::new(self.socket, WAITING_MESSAGES, self.buffer_bytes);
        let journal = out.journal().clone();
        options.notify = Arc::new(move |text| journal.warn(text));
        Receiver::start(&self.endpoints, &options, buffers)
            .map_err(|error| NodeError::because(NodeErrorKind::Io, "cannot receive", error))
    }
}

impl Source for ZmqSource {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        Ok(None)
    }

    fn buffers(&self, header: &SeriesHeader) -> usize {
        self.waiting_buffers(header.format.bytes()) + 1
    }

    fn memory_bytes(&self) -> usize {
        // Compressed frames wait in memory besides the pool.
        usize::try_from(self.buffer_bytes).unwrap_or(usize::MAX)
    }

    fn go_on(&mut self, earlier: Box<dyn Earlier>) {
        self.earlier = Some(earlier);
    }

    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        let earlier = self.earlier.take();
        let buffers = FrameBuffers::default();
        let mut receiver = self.receiver(out, &buffers)?;
        let mut run = Run {
            source: self,
            out,
            buffers,
            decoder: Decoder::new(self.protocol, self.channel.clone()),
            assembler: Assembler::new(self.rules.clone(), Instant::now()),
        };
        if let Some(earlier) = earlier {
            run.resume(earlier)?;
        }
        run.until_done(receiver.messages())?;
        receiver.stop();
        // What had arrived before the stop is still used.
        for mut message in receiver.messages().try_iter() {
            run.message(&mut message)?;
        }
        run.assembler.abort();
        run.work(None)?;
        run.report();
        Ok(())
    }
}

/// One run of the source.
struct Run<'a> {
    source: &'a ZmqSource,
    out: &'a mut Outlet,
    buffers: FrameBuffers,
    decoder: Decoder,
    assembler: Assembler,
}

impl Run<'_> {
    /// Works until the series asked for are through, or the run is to end.
    fn until_done(&mut self, messages: &Line<Message<Lent>>) -> Result<(), NodeError> {
        let mut next_report = Instant::now() + REPORT_EVERY;
        while !self.assembler.is_finished() && !self.out.is_draining() {
            let wake = self.assembler.deadline().map_or(next_report, |deadline| deadline.min(next_report));
            let message = next(messages, self.out, wake);
            let now = Instant::now();
            if let Some(mut message) = message {
                self.message(&mut message)?;
            } else {
                // Silence counts only while nothing waits in line: a slow pipeline is not a silent detector.
                self.assembler.poll(now);
                self.work(None)?;
            }
            if now >= next_report {
                self.report();
                next_report = now + REPORT_EVERY;
            }
        }
        Ok(())
    }

    /// Sends what an earlier run has left, and goes on within the series in which that was killed.
    fn resume(&mut self, mut earlier: Box<dyn Earlier>) -> Result<(), NodeError> {
        self.assembler.resume_after(earlier.projection_series());
        while let Some(step) = earlier.step()? {
            match step {
                EarlierStep::Begin(header) => {
                    self.assembler.resume(&header, Instant::now());
                    self.begin(*header)?;
                }
                EarlierStep::Block { meta, format } => {
                    let mut lease = self.out.lease(format)?;
                    match earlier.read(lease.bytes_mut()) {
                        Ok(()) => {
                            self.out.push(lease.freeze(meta))?;
                            self.assembler.resumed(&meta, Instant::now());
                        }
                        Err(error) if error.kind() == NodeErrorKind::Block => {
                            self.out.journal().warn(error.full_text());
                        }
                        Err(error) => return Err(error),
                    }
                }
                EarlierStep::End(_) => self.assembler.resumed_end(),
            }
            self.work(None)?;
        }
        Ok(())
    }

    fn message(&mut self, message: &mut Message<Lent>) -> Result<(), NodeError> {
        if message.discarded_parts > 0 {
            let text = format!("a message of more than {MAX_PARTS} parts: further parts were left out");
            self.out.journal().warn(text);
        }
        let (peer, received) = (message.peer, message.received);
        let mut slices = [[].as_slice(); MAX_PARTS];
        let said = self.decoder.decode(message.parts(&mut slices));
        self.assembler.receive(said, peer, received);
        self.work(Some(message))
    }

    /// Does what the assembler asks for.
    fn work(&mut self, mut message: Option<&mut Message<Lent>>) -> Result<(), NodeError> {
        while let Some(action) = self.assembler.next_action() {
            match action {
                Action::Begin(header) => self.begin(*header)?,
                Action::End(summary) => {
                    self.report();
                    self.out.end(*summary)?;
                }
                Action::Warn(text) => self.out.journal().warn(text),
                Action::Frame(ticket) => {
                    // A frame is only asked for while its message is at hand.
                    let Some(message) = message.as_deref_mut() else {
                        continue;
                    };
                    let out = &*self.out;
                    match fill(&ticket, message, |format| out.lease(format)) {
                        Ok(lease) => {
                            self.out.push(lease.freeze(ticket.meta))?;
                            self.assembler.filled(&ticket, Ok(()));
                        }
                        Err(FillError::Damaged(reason)) => self.assembler.filled(&ticket, Err(reason)),
                        Err(FillError::NoBuffer(error)) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, header: SeriesHeader) -> Result<(), NodeError> {
        let (format, own) = (header.format, self.source.buffers(&header));
        self.out.begin(header, own)?;
        let pool = self.out.pool()?;
        self.buffers.aim(pool, format, own - 1);
        Ok(())
    }

    /// Writes the accounts that changed into the journal.
    fn report(&mut self) {
        for account in self.assembler.take_changed() {
            self.out.journal().series(account.id, |record| {
                record.counts = account.counts;
                record.first_frame = account.first_frame;
                record.last_frame = account.last_frame;
                record.aborted = account.aborted;
            });
        }
    }
}

/// The next message, or `None` at `wake` or when the run is to end.
fn next(messages: &Line<Message<Lent>>, out: &Outlet, wake: Instant) -> Option<Message<Lent>> {
    if let Ok(message) = messages.try_recv() {
        return Some(message);
    }
    let stop = out.stop();
    let mut select = Select::new();
    let arrived = select.recv(messages);
    stop.select_drain(&mut select);
    let operation = select.select_deadline(wake).ok()?;
    if operation.index() == arrived {
        return operation.recv(messages).ok();
    }
    stop.complete_drain(operation);
    None
}

#[cfg(test)]
mod tests;
