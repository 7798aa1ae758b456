//! Devices on which nodes can be placed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use beamstream_buffer::{Allocator, Block, DeviceId, LeaseMut};

use crate::{Backend, OpError};

/// A device with memory of its own. What it hands out enqueues work and does not wait for it.
pub trait Device: Send + Sync {
    /// The device.
    fn id(&self) -> DeviceId;

    /// Its name and what drives it, for reports.
    fn describe(&self) -> String;

    /// The computations for one node, on a stream of their own that carries the node's name.
    ///
    /// # Errors
    /// [`OpError`] if the device refuses.
    fn backend(&self, node: &str) -> Result<Arc<dyn Backend>, OpError>;

    /// Copies to and from the device for one node, on a stream of their own that carries the node's name.
    ///
    /// # Errors
    /// [`OpError`] if the device refuses.
    fn transfer(&self, node: &str) -> Result<Box<dyn Transfer>, OpError>;

    /// Gives memory of the device.
    fn allocator(&self) -> Arc<dyn Allocator>;

    /// Gives host memory that the device reads and writes by itself.
    fn pinned(&self) -> Arc<dyn Allocator>;

    /// Memory of the device that is free now. Unit: bytes.
    fn free_bytes(&self) -> u64;

    /// Energy that the device has used since it was switched on, where it tells. Unit: joules.
    fn energy_joules(&self) -> Option<f64>;

    /// Remembers from now on when each piece of work begins and ends, as time since `origin`.
    ///
    /// # Errors
    /// [`OpError`] if the device refuses.
    fn start_trace(&self, _origin: Instant) -> Result<(), OpError> {
        Ok(())
    }

    /// The work that has ended since this was last asked, and how much was not remembered because it was too much.
    fn take_spans(&self) -> (Vec<DeviceSpan>, u64) {
        (Vec::new(), 0)
    }
}

/// A piece of work that a device has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceSpan {
    /// The node on whose stream it was enqueued.
    pub stream: String,
    /// The kernel, or what was copied.
    pub name: String,
    /// When it began, since the origin of the trace.
    pub began: Duration,
    /// When it ended, since the origin of the trace.
    pub ended: Duration,
}

/// Copies of blocks between the host and a device, or between devices.
pub trait Transfer: Send {
    /// Copies `from` into `to`, which has the same format: enqueued behind the work that writes `from` and before
    /// `to` is written.
    ///
    /// # Errors
    /// [`OpError`] if the formats differ or the device refuses.
    fn copy(&mut self, from: &Block, to: &mut LeaseMut) -> Result<(), OpError>;

    /// Waits until all copies are done.
    ///
    /// # Errors
    /// [`OpError`] if the device failed meanwhile: then nothing that came from it can be trusted.
    fn finish(&mut self) -> Result<(), OpError>;
}
