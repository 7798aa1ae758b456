//! Where a node's results leave it.

use std::sync::Arc;
use std::time::Instant;

use beamstream_buffer::{Block, LeaseMut, Pool};
use beamstream_core::{Format, SeriesHeader, SeriesSummary};

use crate::{Closed, Event, Journal, NodeError, NodeErrorKind, Stop};

/// The engine's side of an [`Outlet`]: the edges behind a node.
pub trait Emit: Send {
    /// Sends to every edge; waits where an edge is full and its policy says so.
    ///
    /// # Errors
    /// [`NodeErrorKind::Stopped`] if the run is halted or nobody is left to receive.
    fn emit(&mut self, event: Event) -> Result<(), NodeError>;

    /// Sends to those who welcome unfinished work.
    ///
    /// # Errors
    /// As [`Self::emit`].
    fn preview(&mut self, block: Block) -> Result<(), NodeError>;

    /// Whether anybody welcomes unfinished work.
    fn wants_previews(&self) -> bool;

    /// Buffers for the blocks of a series that begins, `own` of them for the node itself besides those that
    /// the edges hold, up to `likes` where memory allows; `None` behind a node that hands nothing on.
    ///
    /// # Errors
    /// [`NodeErrorKind::Config`] if they do not fit the memory that the plan may use.
    fn pool(&mut self, header: &SeriesHeader, own: usize, likes: usize) -> Result<Option<Pool>, NodeError>;
}

/// Where a node's results leave it, and all it may ask of the engine while it runs.
pub struct Outlet {
    emit: Box<dyn Emit>,
    stop: Stop,
    journal: Journal,
    pool: Option<Pool>,
    header: Option<Arc<SeriesHeader>>,
    epoch: u32,
}

impl Outlet {
    /// An outlet over the edges of a node; called by the engine and by test harnesses.
    pub fn new(emit: Box<dyn Emit>, stop: Stop, journal: Journal) -> Self {
        Self { emit, stop, journal, pool: None, header: None, epoch: 0 }
    }

    /// Begins a series: sets up its buffers, `own` of them for the node itself, and tells everybody behind.
    /// The engine does it for steps; sources call it themselves.
    ///
    /// # Errors
    /// If the buffers cannot be had or the run is halted.
    pub fn begin(&mut self, header: SeriesHeader, own: usize) -> Result<(), NodeError> {
        self.begin_with(header, own, own)
    }

    /// As [`Self::begin`], with up to `likes` buffers for the node itself where memory allows.
    ///
    /// # Errors
    /// If the buffers cannot be had or the run is halted.
    pub fn begin_with(
        &mut self,
        mut header: SeriesHeader,
        own: usize,
        likes: usize,
    ) -> Result<(), NodeError> {
        header.epoch = header.epoch.max(self.epoch);
        let header = Arc::new(header);
        self.header = Some(header.clone());
        // Those behind hear of it first: what they keep of the series before may be the room that the buffers need.
        self.emit.emit(Event::Begin(header.clone()))?;
        self.pool = self.emit.pool(&header, own, likes)?;
        Ok(())
    }

    /// Ends the series. The engine does it for steps; sources call it themselves.
    ///
    /// # Errors
    /// If the run is halted.
    pub fn end(&mut self, summary: SeriesSummary) -> Result<(), NodeError> {
        self.header = None;
        self.emit.emit(Event::End(Arc::new(summary)))
    }

    /// The header of the series that is being sent.
    pub fn header(&self) -> Option<&Arc<SeriesHeader>> {
        self.header.as_ref()
    }

    /// The buffers of the series, for sources that fill them in other threads.
    ///
    /// # Errors
    /// If no series was begun.
    pub fn pool(&self) -> Result<&Pool, NodeError> {
        self.pool
            .as_ref()
            .ok_or_else(|| NodeError::new(NodeErrorKind::Internal, "a buffer was asked for outside a series"))
    }

    /// Takes a buffer for the next block; waits until one is free.
    ///
    /// # Errors
    /// If the run is halted, or `format` is larger than what was negotiated.
    pub fn lease(&self, format: Format) -> Result<LeaseMut, NodeError> {
        Ok(self.pool()?.lease(format)?)
    }

    /// Sends a block to everybody behind; waits where an edge is full.
    ///
    /// # Errors
    /// If the run is halted or nobody is left to receive.
    pub fn push(&mut self, mut block: Block) -> Result<(), NodeError> {
        block.meta.epoch = block.meta.epoch.max(self.epoch);
        self.emit.emit(Event::Block(block))
    }

    /// Sends a look at unfinished work to those who welcome it; never waits for them.
    ///
    /// # Errors
    /// If the run is halted.
    pub fn preview(&mut self, mut block: Block) -> Result<(), NodeError> {
        block.meta.epoch = block.meta.epoch.max(self.epoch);
        block.meta.preview = true;
        self.emit.preview(block)
    }

    /// Whether anybody welcomes looks at unfinished work.
    pub fn wants_previews(&self) -> bool {
        self.emit.wants_previews()
    }

    /// Whether a source should end its series and return.
    pub fn is_draining(&self) -> bool {
        self.stop.is_draining()
    }

    /// The stop signal, for sources that wait for several things at once.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Waits until `deadline`.
    ///
    /// # Errors
    /// [`Closed`] as soon as the run is halted.
    pub fn sleep_until(&self, deadline: Instant) -> Result<(), Closed> {
        self.stop.sleep_until(deadline)
    }

    /// Where what happened is written down.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The epoch that blocks are stamped with, unless a node before has stamped a later one; set by the engine.
    pub fn set_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }
}
