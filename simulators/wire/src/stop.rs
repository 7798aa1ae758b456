//! A request to stop, seen by every thread that waits.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Work was given up because a stop was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request")]
pub struct Stopped;

/// A flag that is set once and wakes those who wait.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Asks for a stop.
    pub fn set(&self) {
        *self.0.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }

    /// Whether a stop was asked for.
    pub fn is_set(&self) -> bool {
        *self.0.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `deadline`.
    ///
    /// # Errors
    /// [`Stopped`] as soon as a stop is asked for.
    pub fn wait_until(&self, deadline: Instant) -> Result<(), Stopped> {
        let mut set = self.0.set.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            if *set {
                return Err(Stopped);
            }
            if now >= deadline {
                return Ok(());
            }
            let waited = self.0.changed.wait_timeout(set, deadline - now);
            set = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_stop_ends_a_long_wait() {
        let stop = Stop::default();
        assert_eq!(stop.wait_until(Instant::now()), Ok(()));
        let far = Instant::now() + Duration::from_mins(10);
        let waiting = std::thread::spawn({
            let stop = stop.clone();
            move || stop.wait_until(far)
        });
        stop.set();
        assert_eq!(waiting.join().unwrap(), Err(Stopped));
        assert!(stop.is_set());
    }
}
