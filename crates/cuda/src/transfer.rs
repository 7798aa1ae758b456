//! Copies between the host and a GPU, and between GPUs.
#![allow(unsafe_code, reason = "copies are told to the driver by addresses")]

use std::ops::Range;
use std::sync::Arc;

use beamstream_buffer::{Block, Fence, LeaseMut, MemoryKind};
use beamstream_ops::{OpError, Transfer};
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use crate::access::Access;
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::pinned::pieces;
use crate::status::check;
use crate::stream::CudaStream;

/// Copies of one node, on a stream of their own.
///
/// From and to pinned memory, and between devices, a copy is enqueued and runs beside everything else. Ordinary host
/// memory is right too, and slow: the driver copies it once more, while the caller waits.
#[derive(Debug)]
pub struct CudaTransfer {
    stream: CudaStream,
}

impl CudaTransfer {
    /// Copies that concern `gpu`, for the node of this name.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses a stream.
    pub fn new(gpu: &Arc<Gpu>, node: &str) -> Result<Self, CudaError> {
        Ok(Self { stream: CudaStream::new(gpu, node)? })
    }

    fn enqueue(&self, from: &Block, to: &mut LeaseMut) -> Result<(), CudaError> {
        let (from_kind, to_kind, bytes) = (from.kind(), to.kind(), from.format().bytes());
        let mut access = Access::new(&self.stream)?;
        let (source, target) = (access.read_anywhere(from)?, access.write_anywhere(to)?);
        self.stream.gpu().bind()?;
        // A copy must not cross the border between two pieces of pinned memory.
        let host = if from_kind == MemoryKind::Pinned { source } else { target };
        let is_pinned = from_kind == MemoryKind::Pinned || to_kind == MemoryKind::Pinned;
        let whole = host as usize..host as usize + bytes;
        let parts = if is_pinned { pieces(whole.clone()) } else { vec![whole.clone()] };
        let stream = self.stream.raw();
        let copy = |part: Range<usize>| {
            let offset = (part.start - whole.start) as CUdeviceptr;
            let (source, target) = (source + offset, target + offset);
            let (call, status) = match (from_kind.is_host(), to_kind.is_host()) {
                // SAFETY: both ends hold the bytes and stay as they are until the fence of the access.
                (true, _) => ("cuMemcpyHtoDAsync", unsafe { upload(target, source, part.len(), stream) }),
                // SAFETY: as above.
                (_, true) => ("cuMemcpyDtoHAsync", unsafe { download(target, source, part.len(), stream) }),
                // SAFETY: as above; addresses of all GPUs are distinct, so that the driver knows which are meant.
                _ => ("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(target, source, part.len(), stream) }),
            };
            check(self.stream.gpu().id(), call, status)
        };
        self.stream.traced("copy", || parts.into_iter().try_for_each(copy))?;
        access.finish()
    }
}

/// # Safety
/// As for `cuMemcpyHtoDAsync`, with the host address as a number.
unsafe fn upload(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: sys::CUstream) -> CUresult {
    // SAFETY: by the promise of the caller.
    unsafe { sys::cuMemcpyHtoDAsync_v2(to, from as *const _, bytes, stream) }
}

/// # Safety
/// As for `cuMemcpyDtoHAsync`, with the host address as a number.
unsafe fn download(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: sys::CUstream) -> CUresult {
    // SAFETY: by the promise of the caller.
    unsafe { sys::cuMemcpyDtoHAsync_v2(to as *mut _, from, bytes, stream) }
}

impl Transfer for CudaTransfer {
    fn copy(&mut self, from: &Block, to: &mut LeaseMut) -> Result<(), OpError> {
        if from.format() != to.format() {
            return Err(OpError::Format {
                expected: to.format().to_string(),
                found: from.format().to_string(),
            });
        }
        if from.kind().is_host() && to.kind().is_host() {
            to.bytes_mut().copy_from_slice(from.bytes());
            return Ok(());
        }
        Ok(self.enqueue(from, to)?)
    }

    fn finish(&mut self) -> Result<(), OpError> {
        self.stream.fence()?.wait();
        Ok(self.stream.gpu().check()?)
    }
}
