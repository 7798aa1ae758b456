//! Stopping a run: first in order, then at once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crossbeam_channel::{
    Receiver, RecvTimeoutError, Select, SelectedOperation, Sender, TryRecvError, bounded,
};

/// The run ends at once: give up what you are doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct Closed;

/// Nothing is ever sent: the channel speaks by being closed, which every waiting `select` sees.
enum Never {}

/// The two stages of a stop, as a node sees them.
#[derive(Debug, Clone)]
pub struct Stop {
    drain: Receiver<Never>,
    halt: Receiver<Never>,
}

impl std::fmt::Debug for Never {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

/// Asks a run to stop.
#[derive(Debug)]
pub struct StopController {
    drain: Mutex<Option<Sender<Never>>>,
    halt: Mutex<Option<Sender<Never>>>,
}

impl StopController {
    /// A controller and what its nodes see of it.
    pub fn new() -> (Self, Stop) {
        // A capacity of one: asking an empty channel without a slot takes a lock.
        let (drain_sender, drain) = bounded(1);
        let (halt_sender, halt) = bounded(1);
        let controller = Self { drain: Mutex::new(Some(drain_sender)), halt: Mutex::new(Some(halt_sender)) };
        (controller, Stop { drain, halt })
    }

    /// Asks the sources to end; what is under way is finished.
    pub fn drain(&self) {
        self.drain.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Ends everything at once.
    pub fn halt(&self) {
        self.drain();
        self.halt.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Stop {
    /// Whether sources should end their series and return.
    pub fn is_draining(&self) -> bool {
        is_closed(&self.drain)
    }

    /// Whether everything should be given up.
    pub fn is_halted(&self) -> bool {
        is_closed(&self.halt)
    }

    /// Waits until `deadline`; a drain does not cut the wait short.
    ///
    /// # Errors
    /// [`Closed`] as soon as the run is halted.
    pub fn sleep_until(&self, deadline: Instant) -> Result<(), Closed> {
        match self.halt.recv_deadline(deadline) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(Closed),
            Ok(never) => match never {},
        }
    }

    /// Adds the halt to a selection for readiness: it is ready when the run is halted.
    pub fn select_halt<'a>(&'a self, select: &mut Select<'a>) -> usize {
        select.recv(&self.halt)
    }

    /// Adds the drain to a selection; the operation is ready when sources should end. Finish it with
    /// [`Self::complete_drain`].
    pub fn select_drain<'a>(&'a self, select: &mut Select<'a>) -> usize {
        select.recv(&self.drain)
    }

    /// Finishes the operation that [`Self::select_drain`] added.
    pub fn complete_drain(&self, operation: SelectedOperation<'_>) {
        drop(operation.recv(&self.drain));
    }
}

fn is_closed(channel: &Receiver<Never>) -> bool {
    matches!(channel.try_recv(), Err(TryRecvError::Disconnected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_drain_lets_waits_end_and_a_halt_cuts_them() {
        let (controller, stop) = StopController::new();
        assert!(!stop.is_draining());
        controller.drain();
        assert!(stop.is_draining() && !stop.is_halted());
        assert_eq!(stop.sleep_until(Instant::now()), Ok(()));
        controller.halt();
        assert_eq!(stop.sleep_until(Instant::now() + Duration::from_hours(1)), Err(Closed));
    }
}
