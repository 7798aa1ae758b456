//! An outlet for tests, whose events go into a channel.

use beamstream_buffer::{Block, Pool};
use beamstream_core::SeriesHeader;
use beamstream_node::{Emit, Event, Journal, NodeError, NodeErrorKind, Outlet, StopController};
use crossbeam_channel::{Receiver, Sender, bounded};

struct Channel {
    events: Sender<Event>,
    pool: Pool,
}

impl Emit for Channel {
    fn emit(&mut self, event: Event) -> Result<(), NodeError> {
        let gone = |_| NodeError::new(NodeErrorKind::Stopped, "nobody receives");
        self.events.send(event).map_err(gone)
    }

    fn preview(&mut self, _: Block) -> Result<(), NodeError> {
        Ok(())
    }

    fn wants_previews(&self) -> bool {
        false
    }

    fn pool(&mut self, _: &SeriesHeader, _: usize, _: usize) -> Result<Option<Pool>, NodeError> {
        Ok(Some(self.pool.clone()))
    }
}

/// An outlet with `slots` buffers of `slot_bytes`, its events, and how to stop the run.
pub(crate) fn open(slots: usize, slot_bytes: usize) -> (Outlet, Receiver<Event>, StopController) {
    let (sender, events) = bounded(10_000);
    let (controller, stop) = StopController::new();
    let pool = Pool::host("frames", slots, slot_bytes).unwrap();
    let outlet = Outlet::new(Box::new(Channel { events: sender, pool }), stop, Journal::new("source"));
    (outlet, events, controller)
}
