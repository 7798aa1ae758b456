//! A node's edges, as its outlet sees them.

use std::sync::{Arc, Mutex, PoisonError};

use beamstream_buffer::{Block, Pool};
use beamstream_core::SeriesHeader;
use beamstream_node::{Emit, Event, NodeError, NodeErrorKind, Stop};

use super::edge::{EdgeSender, SendError};
use super::stats::{NodeStats, WorkerState};
use crate::plan::SeriesSizer;

/// One edge behind a node.
pub(crate) struct OutEdge {
    pub(crate) sender: EdgeSender,
    /// Whether looks at unfinished work are sent too.
    pub(crate) previews: bool,
    /// Whether the receiver has gone.
    gone: bool,
}

impl OutEdge {
    pub(crate) fn new(sender: EdgeSender, previews: bool) -> Self {
        Self { sender, previews, gone: false }
    }
}

/// Sends a node's results over its edges, and leases its buffers.
pub(crate) struct EdgeSet {
    node: usize,
    edges: Vec<OutEdge>,
    /// Whether there were edges to begin with.
    had_edges: bool,
    stop: Stop,
    stats: Arc<NodeStats>,
    sizer: Arc<SeriesSizer>,
    pools: PoolShelf,
}

impl EdgeSet {
    pub(crate) fn new(
        node: usize,
        edges: Vec<OutEdge>,
        stop: Stop,
        stats: Arc<NodeStats>,
        sizer: Arc<SeriesSizer>,
        pools: PoolShelf,
    ) -> Self {
        Self { node, had_edges: !edges.is_empty(), edges, stop, stats, sizer, pools }
    }

    /// Sends to the edges that `wanted` chooses; edges whose receiver is gone are taken off.
    fn send(&mut self, event: Event, wanted: impl Fn(&OutEdge) -> bool) -> Result<(), NodeError> {
        self.stats.set_state(WorkerState::WaitingOutput);
        let last = self.edges.iter().rposition(&wanted);
        let mut event = Some(event);
        let mut gone = false;
        for (at, edge) in self.edges.iter_mut().enumerate() {
            if !wanted(edge) {
                continue;
            }
            // The last edge takes the event itself, so that a single edge costs no count.
            let Some(copy) = (if Some(at) == last { event.take() } else { event.clone() }) else { break };
            match edge.sender.send(copy, &self.stop) {
                Ok(0) => {}
                Ok(waited_ns) => self.stats.count_output_wait(waited_ns),
                Err(SendError::Closed) => {
                    edge.gone = true;
                    gone = true;
                }
                Err(SendError::Halted) => {
                    return Err(NodeError::new(NodeErrorKind::Stopped, "the run was halted"));
                }
            }
        }
        self.stats.set_state(WorkerState::Working);
        if gone {
            self.edges.retain(|edge| !edge.gone);
        }
        if self.had_edges && self.edges.is_empty() {
            return Err(NodeError::new(NodeErrorKind::Stopped, "nobody is left to receive"));
        }
        Ok(())
    }
}

impl Emit for EdgeSet {
    fn emit(&mut self, event: Event) -> Result<(), NodeError> {
        if let Event::Block(block) = &event {
            self.stats.count_out(block.format().bytes() as u64);
        }
        self.send(event, |_edge| true)
    }

    fn preview(&mut self, block: Block) -> Result<(), NodeError> {
        self.send(Event::Block(block), |edge| edge.previews)
    }

    fn wants_previews(&self) -> bool {
        self.edges.iter().any(|edge| edge.previews)
    }

    fn pool(&mut self, header: &SeriesHeader, own: usize) -> Result<Option<Pool>, NodeError> {
        if !self.had_edges {
            return Ok(None);
        }
        let slots = self.sizer.slots(self.node, header, own)?;
        self.pools.fitting(slots, header.format.bytes()).map(Some)
    }
}

/// The pool of a node, kept from series to series while the blocks stay the same.
#[derive(Clone)]
pub(crate) struct PoolShelf {
    name: Arc<str>,
    current: Arc<Mutex<Option<Pool>>>,
}

impl PoolShelf {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.into(), current: Arc::default() }
    }

    /// The pool of the series before if it fits exactly, else a new one.
    fn fitting(&self, slots: usize, slot_bytes: usize) -> Result<Pool, NodeError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*current {
            let stats = pool.stats();
            if stats.slots == slots && stats.slot_bytes == slot_bytes {
                return Ok(pool.clone());
            }
        }
        // The old pool goes with the last of its blocks.
        *current = None;
        let pool = Pool::host(&self.name, slots, slot_bytes)?;
        *current = Some(pool.clone());
        Ok(pool)
    }

    /// Frees whoever waits for a buffer.
    pub(crate) fn close(&self) {
        if let Some(pool) = &*self.current.lock().unwrap_or_else(PoisonError::into_inner) {
            pool.close();
        }
    }
}
