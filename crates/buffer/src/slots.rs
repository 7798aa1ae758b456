//! Which slots of a pool are free, and how often each of the others is shared.

use std::collections::VecDeque;
use std::time::Instant;

use crate::sync::{AtomicU32, Condvar, Mutex, MutexGuard, Ordering, fence};

/// The pool was closed: its run ends, and whoever waits for a buffer should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// Which of the free slots is taken next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The one returned last: it is still in the cache.
    Newest,
    /// The one returned first: a device has most likely finished with it.
    Oldest,
}

struct Free {
    /// Free slots, the one returned last at the back.
    slots: VecDeque<u32>,
    next: Next,
    closed: bool,
    /// Threads that wait in [`Slots::take`].
    waiting: u32,
}

impl Free {
    fn pop(&mut self) -> Option<u32> {
        match self.next {
            Next::Newest => self.slots.pop_back(),
            Next::Oldest => self.slots.pop_front(),
        }
    }
}

/// The book-keeping of a pool, apart from its memory so that it can be model-checked.
pub(crate) struct Slots {
    free: Mutex<Free>,
    returned: Condvar,
    shares: Box<[AtomicU32]>,
}

impl Slots {
    pub(crate) fn new(count: u32, next: Next) -> Self {
        Self {
            free: Mutex::new(Free { slots: (0..count).rev().collect(), next, closed: false, waiting: 0 }),
            returned: Condvar::new(),
            shares: (0..count).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Takes a free slot and holds its only share, or gives `None` if there is none.
    pub(crate) fn try_take(&self) -> Result<Option<u32>, Closed> {
        let mut free = self.lock();
        if free.closed {
            return Err(Closed);
        }
        Ok(free.pop().inspect(|&slot| self.own(slot)))
    }

    /// Takes a free slot and holds its only share; waits for one, and says since when it had to.
    pub(crate) fn take(&self) -> Result<(u32, Option<Instant>), Closed> {
        if let Some(slot) = self.try_take()? {
            return Ok((slot, None));
        }
        let waited_since = Some(Instant::now());
        if let Some(slot) = self.spin()? {
            return Ok((slot, waited_since));
        }
        let mut free = self.lock();
        loop {
            if free.closed {
                return Err(Closed);
            }
            if let Some(slot) = free.pop() {
                self.own(slot);
                return Ok((slot, waited_since));
            }
            free.waiting += 1;
            free = match self.returned.wait(free) {
                Ok(free) => free,
                Err(poisoned) => poisoned.into_inner(),
            };
            free.waiting -= 1;
        }
    }

    /// Tries for the time that a thread takes to fall asleep and wake.
    #[cfg(not(loom))]
    fn spin(&self) -> Result<Option<u32>, Closed> {
        let backoff = crossbeam_utils::Backoff::new();
        while !backoff.is_completed() {
            backoff.snooze();
            if let Some(slot) = self.try_take()? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// Under the model checker a wait is a wait.
    #[cfg(loom)]
    fn spin(&self) -> Result<Option<u32>, Closed> {
        Ok(None)
    }

    /// Adds a share. The caller holds one already.
    pub(crate) fn share(&self, slot: u32) {
        // Relaxed: the new share is handed on by means that order memory themselves.
        self.shares[slot as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Gives one share back; with the last one the slot is free again.
    pub(crate) fn release(&self, slot: u32) {
        // Release: what this holder read and wrote happens before the slot is taken again.
        if self.shares[slot as usize].fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let mut free = self.lock();
        free.slots.push_back(slot);
        if free.waiting > 0 {
            self.returned.notify_one();
        }
    }

    /// Whether the caller holds the only share.
    pub(crate) fn is_unique(&self, slot: u32) -> bool {
        // Acquire: pairs with the release of the other holders, whose reads are over.
        self.shares[slot as usize].load(Ordering::Acquire) == 1
    }

    /// Number of free slots.
    pub(crate) fn free(&self) -> usize {
        self.lock().slots.len()
    }

    /// Wakes everybody who waits; from now on nothing is handed out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.returned.notify_all();
    }

    fn own(&self, slot: u32) {
        self.shares[slot as usize].store(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        match self.free.lock() {
            Ok(free) => free,
            // Nothing in here can panic half-way, so the list is sound even if a holder's thread died.
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_with_the_last_share() {
        let slots = Slots::new(1, Next::Newest);
        let (slot, waited) = slots.take().unwrap();
        assert!(waited.is_none() && slots.is_unique(slot));
        slots.share(slot);
        assert!(!slots.is_unique(slot));
        slots.release(slot);
        assert_eq!(slots.try_take(), Ok(None));
        slots.release(slot);
        assert_eq!(slots.free(), 1);
    }

    #[test]
    fn the_oldest_or_the_newest_is_taken() {
        for (next, expected) in [(Next::Newest, 1), (Next::Oldest, 0)] {
            let slots = Slots::new(2, next);
            let taken = [slots.take().unwrap().0, slots.take().unwrap().0];
            assert_eq!(taken.iter().sum::<u32>(), 1);
            slots.release(0);
            slots.release(1);
            assert_eq!(slots.try_take(), Ok(Some(expected)));
        }
    }

    #[test]
    fn closing_wakes_who_waits() {
        let slots = Slots::new(0, Next::Newest);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| slots.take());
            slots.close();
            assert_eq!(waiter.join().unwrap().map(|(slot, _)| slot), Err(Closed));
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::{Arc, atomic::AtomicUsize};
    use loom::thread;

    /// Two readers and the next writer: the writer takes the slot only after both readers are done.
    #[test]
    fn a_slot_is_taken_again_only_after_its_last_reader() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(1, Next::Newest));
            let readers = Arc::new(AtomicUsize::new(2));
            let (slot, _) = slots.take().unwrap();
            slots.share(slot);
            let handles: Vec<_> = (0..2)
                .map(|_| {
                    let (slots, readers) = (slots.clone(), readers.clone());
                    thread::spawn(move || {
                        readers.fetch_sub(1, Ordering::Relaxed);
                        slots.release(slot);
                    })
                })
                .collect();
            let (again, _) = slots.take().unwrap();
            assert_eq!(again, slot);
            assert_eq!(readers.load(Ordering::Relaxed), 0, "a reader was still at work");
            for handle in handles {
                handle.join().unwrap();
            }
        });
    }

    /// No wake-up is lost between a return and a wait.
    #[test]
    fn a_return_wakes_the_waiter() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(1, Next::Newest));
            let (slot, _) = slots.take().unwrap();
            let waiter = {
                let slots = slots.clone();
                thread::spawn(move || slots.take().map(|(slot, _)| slot))
            };
            slots.release(slot);
            assert_eq!(waiter.join().unwrap(), Ok(slot));
        });
    }

    /// Closing reaches a waiter whenever it comes.
    #[test]
    fn closing_reaches_a_waiter() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(0, Next::Newest));
            let waiter = {
                let slots = slots.clone();
                thread::spawn(move || slots.take().map(|(slot, _)| slot))
            };
            slots.close();
            assert_eq!(waiter.join().unwrap(), Err(Closed));
        });
    }
}
