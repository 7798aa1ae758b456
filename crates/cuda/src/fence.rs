//! Fences: events of the driver that say how far a stream has come.
#![allow(unsafe_code, reason = "events are handles of the driver")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beamstream_buffer::Fence;
use cudarc::driver::sys::{self, CUevent_flags, CUresult};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::status::{check, ignore};
use crate::stream::CudaStream;

/// A thread that waits keeps asking for so long: about what falling asleep and waking costs.
const AWAKE: Duration = Duration::from_micros(20);
/// Longest nap between two questions after that.
const LONGEST_NAP: Duration = Duration::from_micros(400);

/// An event handle; any thread may use it.
#[derive(Debug, Clone, Copy)]
struct RawEvent(sys::CUevent);

// SAFETY: events may be used from any thread, the driver locks.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

/// Events that are not in use, so that a fence costs no event of its own.
///
/// An event may be recorded anew while streams still wait for its earlier record: they wait for what it
/// was when they were told to.
#[derive(Debug, Default)]
pub(crate) struct EventPool {
    unused: Mutex<Vec<RawEvent>>,
}

impl EventPool {
    fn lock(&self) -> MutexGuard<'_, Vec<RawEvent>> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, gpu: &Gpu) -> Result<RawEvent, CudaError> {
        if let Some(event) = self.lock().pop() {
            return Ok(event);
        }
        // Without a time stamp recording is cheaper.
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current (the caller recorded on a stream of it); it stores one handle.
        let status = unsafe { sys::cuEventCreate(&raw mut event, flags) };
        check(gpu.id(), "cuEventCreate", status)?;
        Ok(RawEvent(event))
    }

    /// Frees the events; the context is current and no fence is left.
    pub(crate) fn clear(&self) {
        for event in self.lock().drain(..) {
            // SAFETY: the event is ours, and nobody else has the handle.
            ignore(unsafe { sys::cuEventDestroy_v2(event.0) });
        }
    }
}

/// The promise that a stream has worked off all that was enqueued when it was recorded.
pub struct CudaFence {
    gpu: Arc<Gpu>,
    event: RawEvent,
    /// Number of the stream that it was recorded on.
    stream: u64,
    done: AtomicBool,
}

impl CudaFence {
    /// Records a fence on `stream`.
    pub(crate) fn record(stream: &CudaStream) -> Result<Arc<Self>, CudaError> {
        let gpu = stream.gpu();
        gpu.bind()?;
        let event = gpu.events().take(gpu)?;
        let fence = Self { gpu: gpu.clone(), event, stream: stream.number(), done: AtomicBool::new(false) };
        // SAFETY: event and stream belong to the context that is current.
        let status = unsafe { sys::cuEventRecord(event.0, stream.raw()) };
        check(gpu.id(), "cuEventRecord", status)?;
        Ok(Arc::new(fence))
    }

    /// Lets later work on `stream` start only after this fence; the host does not wait.
    pub(crate) fn hold_back(&self, stream: &CudaStream) -> Result<(), CudaError> {
        if self.stream == stream.number() || self.done.load(Ordering::Acquire) {
            return Ok(());
        }
        // SAFETY: both handles are alive; a stream may wait for an event of another GPU.
        let status = unsafe { sys::cuStreamWaitEvent(stream.raw(), self.event.0, 0) };
        check(self.gpu.id(), "cuStreamWaitEvent", status)
    }

    /// Takes note of what the driver said; a failure counts as done, so that nobody waits for ever.
    fn settle(&self, status: CUresult) -> bool {
        if status == CUresult::CUDA_ERROR_NOT_READY {
            return false;
        }
        if let Err(error) = check(self.gpu.id(), "cuEventQuery", status) {
            self.gpu.fail(error);
        }
        self.done.store(true, Ordering::Release);
        true
    }
}

impl Fence for CudaFence {
    fn is_done(&self) -> bool {
        if self.done.load(Ordering::Acquire) {
            return true;
        }
        // SAFETY: the event lives as long as `self`.
        let status = unsafe { sys::cuEventQuery(self.event.0) };
        self.settle(status)
    }

    /// Asks without a pause for a short while, because most waits are short, and then between naps of an eighth of
    /// the time waited: a thread that spins would take a processor from those that receive and write.
    ///
    /// On an H200 this woke 0.1 ms after a kernel of 0.5 or 5 ms. The driver's own sleep (`CU_EVENT_BLOCKING_SYNC`)
    /// woke 0.2 and 0.6 ms after it, for as much processor time.
    fn wait(&self) {
        let began = Instant::now();
        while !self.is_done() {
            let waited = began.elapsed();
            if waited < AWAKE {
                std::hint::spin_loop();
            } else {
                std::thread::park_timeout((waited / 8).min(LONGEST_NAP));
            }
        }
    }
}

impl Drop for CudaFence {
    fn drop(&mut self) {
        self.gpu.events().lock().push(self.event);
    }
}

impl std::fmt::Debug for CudaFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaFence")
            .field("gpu", &self.gpu)
            .field("done", &self.is_done())
            .finish_non_exhaustive()
    }
}
