//! A device without a device: it computes as the CPU does, late, and on memory that the host cannot look into.
//!
//! What enqueues work on it and forgets a fence reads old pixels or overwrites new ones, sooner or later: every stream
//! dawdles before each piece of work. It can be held, so that what waits for it is found, and can fail at any call.

mod core;
mod memory;
mod ops;
mod stream;
mod transfer;

use std::sync::Arc;
use std::time::Instant;

use beamstream_buffer::{Allocator, DeviceId, MemoryKind};
use beamstream_cpu::CpuBackend;
use beamstream_ops::{Backend, Device, DeviceSpan, OpError, Transfer};

use self::core::Core;
use memory::SimAllocator;
use ops::SimBackend;
use stream::SimStream;
use transfer::SimTransfer;

/// A simulated device.
pub struct SimDevice {
    core: Arc<Core>,
}

impl SimDevice {
    /// The simulated GPU of this number, with so much memory. Unit: bytes.
    pub fn new(ordinal: u32, memory_bytes: u64) -> Arc<Self> {
        Arc::new(Self { core: Arc::new(Core::new(DeviceId::Cuda(ordinal), memory_bytes)) })
    }

    /// Lets the device be lost at this call, counted from 0: it and all later ones are refused.
    pub fn fail_at(&self, call: u64) {
        self.core.fail_at(call);
    }

    /// Calls that were made so far: streams, memory, operations, copies.
    pub fn calls(&self) -> u64 {
        self.core.calls()
    }

    /// Lets the device do nothing until [`Self::release`]; what is enqueued waits.
    pub fn hold(&self) {
        self.core.hold(true);
    }

    /// Lets the device work.
    pub fn release(&self) {
        self.core.hold(false);
    }

    /// What the device was given that it cannot compute.
    pub fn misuses(&self) -> Vec<String> {
        self.core.misuses()
    }
}

impl Device for SimDevice {
    fn id(&self) -> DeviceId {
        self.core.id
    }

    fn describe(&self) -> String {
        format!("simulated {}", self.core.id)
    }

    fn backend(&self, node: &str) -> Result<Arc<dyn Backend>, OpError> {
        self.core.call("backend")?;
        let stream = SimStream::new(&self.core, node);
        Ok(Arc::new(SimBackend::new(stream, Arc::new(CpuBackend::new(1)))))
    }

    fn transfer(&self, node: &str) -> Result<Box<dyn Transfer>, OpError> {
        self.core.call("transfer")?;
        Ok(Box::new(SimTransfer { stream: SimStream::new(&self.core, node) }))
    }

    fn allocator(&self) -> Arc<dyn Allocator> {
        Arc::new(SimAllocator { kind: MemoryKind::Device(self.core.id), core: self.core.clone() })
    }

    fn pinned(&self) -> Arc<dyn Allocator> {
        Arc::new(SimAllocator { kind: MemoryKind::Pinned, core: self.core.clone() })
    }

    fn free_bytes(&self) -> u64 {
        self.core.free_bytes()
    }

    /// One joule for each piece of work.
    fn energy_joules(&self) -> Option<f64> {
        Some(self.core.done() as f64)
    }

    fn start_trace(&self, origin: Instant) -> Result<(), OpError> {
        self.core.start_trace(origin);
        Ok(())
    }

    fn take_spans(&self) -> (Vec<DeviceSpan>, u64) {
        (self.core.take_spans(), 0)
    }
}
