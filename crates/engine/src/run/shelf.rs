//! The pool of a node from series to series.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beamstream_buffer::{Allocator, Pool, PoolError};
use beamstream_core::SeriesHeader;
use beamstream_node::{NodeError, Stop};

use crate::plan::Slots;

/// How long a new pool waits for the memory that blocks of the one before still take.
const WAIT_FOR_MEMORY: Duration = Duration::from_secs(5);
/// How often it tries.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// The pool of a node, kept from series to series while the blocks stay the same.
#[derive(Clone)]
pub(crate) struct PoolShelf {
    name: Arc<str>,
    allocator: Arc<dyn Allocator>,
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Default)]
struct Shelf {
    pool: Option<Pool>,
    closed: bool,
    waits: Waits,
}

/// How long threads waited for buffers, all together. Unit: nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waits {
    /// Until one was free.
    pub(crate) for_room_ns: u64,
    /// Until a device had read it.
    pub(crate) for_device_ns: u64,
}

impl Waits {
    fn and(self, pool: &Pool) -> Self {
        let stats = pool.stats();
        Self {
            for_room_ns: self.for_room_ns + stats.waited_ns,
            for_device_ns: self.for_device_ns + stats.waited_for_device_ns,
        }
    }
}

impl PoolShelf {
    pub(crate) fn new(name: &str, allocator: Arc<dyn Allocator>) -> Self {
        Self { name: name.into(), allocator, shelf: Arc::default() }
    }

    /// The pool of the series before if it fits, else a new one.
    pub(crate) fn fitting(
        &self,
        slots: Slots,
        header: &SeriesHeader,
        stop: &Stop,
    ) -> Result<Pool, NodeError> {
        let slot_bytes = header.format.bytes();
        let mut shelf = self.lock();
        if let Some(pool) = &shelf.pool {
            let stats = pool.stats();
            let exact = stats.slot_bytes == slot_bytes && (slots.least..=slots.most).contains(&stats.slots);
            // The passes of a series differ only in their rows, and memory of devices is slow to get.
            let next_pass =
                !header.pass.is_first() && stats.slot_bytes >= slot_bytes && stats.slots >= slots.least;
            if exact || next_pass {
                return Ok(pool.clone());
            }
            shelf.waits = shelf.waits.and(pool);
        }
        // The old pool goes with the last of its blocks.
        let replaces = shelf.pool.take().is_some();
        drop(shelf);
        let pool = self.allocate(slots.most, slot_bytes, replaces, stop)?;
        let mut shelf = self.lock();
        if shelf.closed {
            pool.close();
        }
        shelf.pool = Some(pool.clone());
        Ok(pool)
    }

    /// A new pool; where one is replaced whose blocks are still on their way, it waits a little for their memory.
    fn allocate(
        &self,
        slots: usize,
        slot_bytes: usize,
        replaces: bool,
        stop: &Stop,
    ) -> Result<Pool, NodeError> {
        let give_up = Instant::now() + WAIT_FOR_MEMORY;
        loop {
            match Pool::new(&self.name, &*self.allocator, slots, slot_bytes) {
                Err(PoolError::Memory { .. }) if replaces && Instant::now() < give_up => {
                    stop.sleep_until(Instant::now() + TRY_AGAIN)?;
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// How long threads waited for buffers so far.
    pub(crate) fn waits(&self) -> Waits {
        let shelf = self.lock();
        shelf.pool.as_ref().map_or(shelf.waits, |pool| shelf.waits.and(pool))
    }

    /// Frees whoever waits for a buffer, now and later.
    pub(crate) fn close(&self) {
        let mut shelf = self.lock();
        shelf.closed = true;
        if let Some(pool) = &shelf.pool {
            pool.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
