//! Bytes that may wait for the consumer.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A bound on the bytes of messages that were received and are not yet done with.
pub(super) struct Quota {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: u64,
    closed: bool,
    /// Threads that wait for bytes to be freed.
    sleepers: u32,
}

/// Bytes that count against a quota until this is dropped.
pub(super) struct Share {
    quota: Arc<Quota>,
    bytes: u64,
}

impl Quota {
    pub(super) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), freed: Condvar::new() })
    }

    /// Waits until `bytes` fit; a message longer than the whole quota fits when nothing else waits.
    /// `None` if the quota was closed.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let full = |state: &State| {
            !state.closed && state.waiting > 0 && state.waiting.saturating_add(bytes) > self.limit
        };
        let mut state = self.lock();
        while full(&state) {
            state.sleepers += 1;
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleepers -= 1;
        }
        if state.closed {
            return None;
        }
        state.waiting = state.waiting.saturating_add(bytes);
        Some(Share { quota: self.clone(), bytes })
    }

    /// Ends all waits.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.freed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.quota.lock();
        state.waiting = state.waiting.saturating_sub(self.bytes);
        // A notice costs a system call whether or not somebody waits for it.
        let awaited = state.sleepers > 0;
        drop(state);
        if awaited {
            self.quota.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_until_others_are_done_with() {
        let quota = Quota::new(100);
        let first = quota.take(1000).unwrap(); // longer than the quota, but alone
        let other = quota.clone();
        let waiting = std::thread::spawn(move || other.take(1).is_some());
        drop(first);
        assert!(waiting.join().unwrap());
        let _all = quota.take(100).unwrap();
        let other = quota.clone();
        let waiting = std::thread::spawn(move || other.take(1).is_none());
        quota.close();
        assert!(waiting.join().unwrap());
    }
}
