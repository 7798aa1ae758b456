//! Streams: queues of work on a GPU.
#![allow(unsafe_code, reason = "streams are handles of the driver")]

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use beamstream_buffer::{DeviceId, Fence, Stream};
use cudarc::driver::sys::{self, CUstream_flags};

use crate::error::CudaError;
use crate::fence::CudaFence;
use crate::gpu::Gpu;
use crate::progress::{Progress, StreamHandle};
use crate::staging::Staging;
use crate::status::{check, ignore};

/// Streams that were made so far in this process.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// Other streams whose positions are remembered; a node waits for fewer.
const REMEMBERED: usize = 32;

/// What tells kinds of streams apart.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// Lowest first; the driver takes a number beyond those that a GPU has for the nearest of them.
    priority: i32,
    fences_per_mark: u64,
}

/// For short pieces of work, of which many are enqueued.
const PROMPT: Manner = Manner { priority: i32::MIN, fences_per_mark: 8 };
/// For long ones: to wait for more than one of them would be to wait for milliseconds.
const PATIENT: Manner = Manner { priority: i32::MAX, fences_per_mark: 1 };

/// A queue of work on one GPU, shared by all who hold a clone.
#[derive(Clone)]
pub struct CudaStream {
    inner: Arc<Inner>,
}

struct Inner {
    gpu: Arc<Gpu>,
    raw: sys::CUstream,
    /// Tells streams apart also when the driver uses a handle again.
    number: u64,
    name: String,
    progress: Progress,
    /// Numbers of other streams and the positions in them that this one is behind.
    behind: Mutex<Vec<(u64, u64)>>,
    staging: Mutex<Option<Staging>>,
}

// SAFETY: a stream may be used from any thread, the driver locks; all other fields are `Send`.
unsafe impl Send for Inner {}
// SAFETY: as above; what can change lies behind a lock.
unsafe impl Sync for Inner {}

impl CudaStream {
    /// A new queue, which waits for no other unless it is told to.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    pub fn new(gpu: &Arc<Gpu>, name: &str) -> Result<Self, CudaError> {
        Self::with_manner(gpu, name, PROMPT)
    }

    /// A new queue whose kernels let those of other queues go first: for long ones, so that short ones that feed them
    /// need not wait for a free multiprocessor.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn patient(gpu: &Arc<Gpu>, name: &str) -> Result<Self, CudaError> {
        Self::with_manner(gpu, name, PATIENT)
    }

    fn with_manner(gpu: &Arc<Gpu>, name: &str, manner: Manner) -> Result<Self, CudaError> {
        gpu.check()?;
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; it stores one handle, which `drop` destroys.
        let status = unsafe { sys::cuStreamCreateWithPriority(&raw mut raw, flags, manner.priority) };
        check(gpu.id(), "cuStreamCreateWithPriority", status)?;
        let inner = Inner {
            gpu: gpu.clone(),
            raw,
            number: STREAMS.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            progress: Progress::new(manner.fences_per_mark),
            behind: Mutex::default(),
            staging: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.inner.gpu
    }

    /// What it is called in traces: the node.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A number that no other stream of the process has.
    pub(crate) fn number(&self) -> u64 {
        self.inner.number
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.inner.progress
    }

    pub(crate) fn handle(&self) -> StreamHandle<'_> {
        StreamHandle { gpu: self.gpu(), stream: self.raw() }
    }

    /// Whether all later work waits for that position of another stream already.
    pub(crate) fn is_behind(&self, other: u64, position: u64) -> bool {
        self.behind().iter().any(|(stream, reached)| *stream == other && *reached >= position)
    }

    /// Notes that all later work waits for that position of another stream.
    pub(crate) fn note_behind(&self, other: u64, position: u64) {
        let mut behind = self.behind();
        if let Some((_, reached)) = behind.iter_mut().find(|(stream, _)| *stream == other) {
            *reached = position.max(*reached);
            return;
        }
        if behind.len() == REMEMBERED {
            behind.remove(0);
        }
        behind.push((other, position));
    }

    fn behind(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.inner.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver's handle. It is valid as long as a clone of this stream lives.
    pub fn raw(&self) -> sys::CUstream {
        self.inner.raw
    }

    /// A fence that is done when everything enqueued so far is done.
    ///
    /// # Errors
    /// [`CudaError`] if the device is lost.
    pub fn fence(&self) -> Result<Arc<CudaFence>, CudaError> {
        Ok(Arc::new(CudaFence::new(self)?))
    }

    /// Lets later work start only after `fence`. Fences of GPUs are waited for on the device, others by the host.
    ///
    /// # Errors
    /// [`CudaError`] if the device is lost.
    pub fn wait(&self, fence: &Arc<dyn Fence>) -> Result<(), CudaError> {
        let any: &dyn Any = fence.as_ref();
        if let Some(fence) = any.downcast_ref::<CudaFence>() {
            return fence.hold_back(self);
        }
        fence.wait();
        Ok(())
    }

    /// Waits on the host until everything enqueued so far is done: for set-up and tests, not for blocks.
    ///
    /// # Errors
    /// [`CudaError`] if some of it failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.gpu().bind()?;
        // SAFETY: the stream lives as long as `self`.
        let status = unsafe { sys::cuStreamSynchronize(self.raw()) };
        check(self.gpu().id(), "cuStreamSynchronize", status)
    }

    /// Runs `use_it` with the stream's own piece of pinned memory, which is made the first time.
    pub(crate) fn with_staging<R>(
        &self,
        use_it: impl FnOnce(&mut Staging) -> Result<R, CudaError>,
    ) -> Result<R, CudaError> {
        let mut staging = self.inner.staging.lock().unwrap_or_else(PoisonError::into_inner);
        match staging.as_mut() {
            Some(staging) => use_it(staging),
            None => use_it(staging.insert(Staging::new(self.gpu())?)),
        }
    }
}

impl Stream for CudaStream {
    fn device(&self) -> DeviceId {
        self.gpu().id()
    }

    fn record(&self) -> Option<Arc<dyn Fence>> {
        match self.fence() {
            Ok(fence) => Some(fence),
            Err(error) => {
                self.gpu().fail(error);
                None
            }
        }
    }

    fn wait_for(&self, fence: &Arc<dyn Fence>) {
        if let Err(error) = self.wait(fence) {
            self.gpu().fail(error);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.progress.clear(&self.gpu);
        if self.gpu.bind().is_ok() {
            if self.staging.get_mut().is_ok_and(|staging| staging.is_some()) {
                // Kernels may still read the pinned memory that goes with the stream.
                // SAFETY: the stream is alive.
                ignore(unsafe { sys::cuStreamSynchronize(self.raw) });
            }
            // SAFETY: `new` created it and this is its last holder; the driver destroys it after its work.
            ignore(unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
    }
}

impl std::fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream '{}' of {:?}", self.name(), self.gpu())
    }
}
