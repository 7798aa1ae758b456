//! A node's edges, as its outlet sees them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use beamstream_buffer::{Block, Pool};
use beamstream_core::SeriesHeader;
use beamstream_node::{Emit, Event, NodeError, NodeErrorKind, Stop};

use super::account::SeriesAccount;
use super::edge::{EdgeSender, SendError};
use super::shelf::PoolShelf;
use super::stats::{NodeStats, WorkerState};
use super::trace::Doing;
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
    account: SeriesAccount,
    is_source: bool,
    /// When a source began to make its next block, if the run is traced.
    made_since: Option<Instant>,
}

/// What the edges of a node share with the rest of the run.
pub(crate) struct Ties {
    pub(crate) stop: Stop,
    pub(crate) stats: Arc<NodeStats>,
    pub(crate) sizer: Arc<SeriesSizer>,
    pub(crate) pools: PoolShelf,
    pub(crate) account: SeriesAccount,
    pub(crate) is_source: bool,
}

impl EdgeSet {
    pub(crate) fn new(node: usize, edges: Vec<OutEdge>, ties: Ties) -> Self {
        let Ties { stop, stats, sizer, pools, account, is_source } = ties;
        let had_edges = !edges.is_empty();
        Self { node, edges, had_edges, stop, stats, sizer, pools, account, is_source, made_since: None }
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
                Ok(waited_ns) => {
                    self.stats.count_output_wait(waited_ns);
                    let now = self.stats.span_begins();
                    let since = now.and_then(|now| now.checked_sub(Duration::from_nanos(waited_ns)));
                    self.stats.span(Doing::WaitForRoom, since);
                }
                Err(SendError::Closed) => {
                    edge.gone = true;
                    gone = true;
                }
                Err(SendError::Spill(message)) => return Err(NodeError::io(message)),
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
            if self.is_source {
                self.stats.span(Doing::Block(block.meta.frame.number), self.made_since);
            }
        }
        self.account.note(&event);
        let is_end = matches!(event, Event::End(_));
        self.send(event, |_edge| true)?;
        if is_end {
            self.account.close();
            self.stats.series_ended();
        }
        if self.is_source {
            self.made_since = self.stats.span_begins();
        }
        Ok(())
    }

    fn preview(&mut self, block: Block) -> Result<(), NodeError> {
        self.send(Event::Block(block), |edge| edge.previews)
    }

    fn wants_previews(&self) -> bool {
        self.edges.iter().any(|edge| edge.previews)
    }

    fn pool(&mut self, header: &SeriesHeader, own: usize, likes: usize) -> Result<Option<Pool>, NodeError> {
        if !self.had_edges {
            return Ok(None);
        }
        let slots = self.sizer.slots(self.node, header, own, likes)?;
        let pool = self.pools.fitting(slots, header, &self.stop)?;
        for edge in &self.edges {
            edge.sender.set_pool(&pool);
        }
        Ok(Some(pool))
    }
}
