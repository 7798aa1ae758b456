//! Streams: queues of work on a GPU.
#![allow(unsafe_code, reason = "streams are handles of the driver")]

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use beamstream_buffer::{DeviceId, Fence, Stream};
use cudarc::driver::sys::{self, CUstream_flags};

use crate::error::CudaError;
use crate::fence::CudaFence;
use crate::gpu::Gpu;
use crate::staging::Staging;
use crate::status::{check, ignore};

/// Streams that were made so far in this process.
static STREAMS: AtomicU64 = AtomicU64::new(0);

/// A queue of work on one GPU, shared by all who hold a clone. A node has one.
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
        gpu.check()?;
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; it stores one handle, which `drop` destroys.
        let status =
            unsafe { sys::cuStreamCreate(&raw mut raw, CUstream_flags::CU_STREAM_NON_BLOCKING as u32) };
        check(gpu.id(), "cuStreamCreate", status)?;
        let number = STREAMS.fetch_add(1, Ordering::Relaxed);
        let inner = Inner { gpu: gpu.clone(), raw, number, name: name.to_owned(), staging: Mutex::new(None) };
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

    /// The driver's handle. It is valid as long as a clone of this stream lives.
    pub fn raw(&self) -> sys::CUstream {
        self.inner.raw
    }

    /// A fence that is done when everything enqueued so far is done.
    ///
    /// # Errors
    /// [`CudaError`] if the device is lost.
    pub fn fence(&self) -> Result<Arc<CudaFence>, CudaError> {
        CudaFence::record(self)
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
        if self.gpu.bind().is_ok() {
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
