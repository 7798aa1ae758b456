//! The queue of an edge that keeps the newest.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use beamstream_node::Event;
use crossbeam_channel::{Sender, TryRecvError};

use super::{SendError, wake};

/// The queue of an edge that keeps the newest.
pub(super) struct Latest {
    inner: Mutex<LatestInner>,
    capacity: usize,
    filled: Sender<()>,
}

#[derive(Default)]
struct LatestInner {
    events: VecDeque<Event>,
    sender_gone: bool,
    receiver_gone: bool,
}

impl Latest {
    pub(super) fn new(capacity: usize, filled: Sender<()>) -> Self {
        Self { inner: Mutex::default(), capacity, filled }
    }

    /// Puts an event in and gives the number of blocks that fell out for it.
    pub(super) fn push(&self, event: Event) -> Result<u64, SendError> {
        let mut inner = self.lock();
        if inner.receiver_gone {
            return Err(SendError::Closed);
        }
        let before = inner.blocks();
        match &event {
            Event::Begin(_) => inner.forget_finished_series(),
            Event::Block(_) if before >= self.capacity => inner.drop_oldest_block(),
            Event::Block(_) | Event::End(_) => {}
        }
        let dropped = before - inner.blocks();
        inner.events.push_back(event);
        drop(inner);
        wake(&self.filled);
        Ok(dropped as u64)
    }

    pub(super) fn pop(&self) -> Result<Event, TryRecvError> {
        let mut inner = self.lock();
        match inner.events.pop_front() {
            Some(event) => {
                let more = !inner.events.is_empty() || inner.sender_gone;
                drop(inner);
                if more {
                    wake(&self.filled);
                }
                Ok(event)
            }
            None if inner.sender_gone => {
                drop(inner);
                // The end stays to be seen, however often it is asked for.
                wake(&self.filled);
                Err(TryRecvError::Disconnected)
            }
            None => Err(TryRecvError::Empty),
        }
    }

    pub(super) fn close_sender(&self) {
        self.lock().sender_gone = true;
        wake(&self.filled);
    }

    pub(super) fn close_receiver(&self) {
        let mut inner = self.lock();
        inner.receiver_gone = true;
        inner.events.clear();
    }

    /// Events that wait.
    pub(super) fn len(&self) -> usize {
        self.lock().events.len()
    }

    fn lock(&self) -> MutexGuard<'_, LatestInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LatestInner {
    fn blocks(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Block(_))).count()
    }

    fn drop_oldest_block(&mut self) {
        if let Some(at) = self.events.iter().position(|event| matches!(event, Event::Block(_))) {
            self.events.remove(at);
        }
    }

    /// Drops the blocks of earlier series, and series of which the receiver has seen nothing yet as a whole.
    fn forget_finished_series(&mut self) {
        let open = matches!(self.events.front(), Some(Event::Block(_) | Event::End(_)));
        let end_of_open = self.events.iter().find(|event| matches!(event, Event::End(_))).cloned();
        self.events.clear();
        if open {
            self.events.extend(end_of_open);
        }
    }
}
