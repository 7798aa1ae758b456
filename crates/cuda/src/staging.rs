//! A small piece of pinned memory through which a stream sends parameters and tables, and gives small results.
#![allow(unsafe_code, reason = "pinned memory is a pointer of the driver")]

use std::ptr::NonNull;
use std::sync::Arc;

use beamstream_buffer::Fence;
use cudarc::driver::sys::{self, CUdeviceptr};

use crate::args::Args;
use crate::error::CudaError;
use crate::fence::CudaFence;
use crate::gpu::Gpu;
use crate::kernel::{Grid, Kernel};
use crate::source::KernelSource;
use crate::status::{check, ignore};
use crate::stream::CudaStream;

/// Size of each half. A half is refilled only when all that left it has arrived; the tables of a batch of
/// projections take some kilobytes, so that this is long ago.
const HALF_BYTES: usize = 512 * 1024;
/// Every piece begins on a cache line.
const ALIGN: usize = 64;
/// Bytes that a thread of the kernel writes, and threads of its blocks.
const WORD_BYTES: usize = 16;
const THREADS: u32 = 256;

/// Two halves that are filled in turn.
pub(crate) struct Staging {
    gpu: Arc<Gpu>,
    carry: Kernel,
    base: NonNull<u8>,
    half: usize,
    used: usize,
    /// Position of the fence behind each half, by the time it was given up; 0, which is past, before that. A fence
    /// would keep the stream that this belongs to.
    left: [u64; 2],
}

// SAFETY: the memory is this value's own; the address is valid in every thread.
unsafe impl Send for Staging {}

impl Staging {
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let carry = gpu.compile(&source())?.kernel("carry")?;
        gpu.bind()?;
        let mut base = std::ptr::null_mut();
        // SAFETY: the context is current; it stores one address of that many bytes, which `drop` frees.
        let status = unsafe { sys::cuMemHostAlloc(&raw mut base, 2 * HALF_BYTES, 0) };
        check(gpu.id(), "cuMemHostAlloc", status)?;
        let base = NonNull::new(base.cast()).unwrap_or(NonNull::dangling());
        Ok(Self { gpu: gpu.clone(), carry, base, half: 0, used: 0, left: [0; 2] })
    }

    /// Sends `bytes` to the address `to`; they may change once this returns.
    ///
    /// # Safety
    /// `to` is device memory for that many bytes on a multiple of 16, which nobody but work on `stream` touches.
    pub(crate) unsafe fn send(
        &mut self,
        stream: &CudaStream,
        bytes: &[u8],
        to: CUdeviceptr,
    ) -> Result<(), CudaError> {
        for (number, piece) in bytes.chunks(HALF_BYTES).enumerate() {
            let at = self.room(stream, piece.len())?;
            // SAFETY: `room` found place for the piece within our memory, which the device no longer reads.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), at.as_ptr(), piece.len()) };
            let to = to + (number * HALF_BYTES) as CUdeviceptr;
            // SAFETY: the piece stays as it is until its half has left, and `to` is by the promise of the caller.
            unsafe { self.carry(stream, at.as_ptr().addr() as CUdeviceptr, to, piece.len())? };
        }
        Ok(())
    }

    /// Reads `bytes` from the address `from`, when all that was enqueued before is done. Waits for it.
    ///
    /// # Safety
    /// `from` is device memory for that many bytes on a multiple of 16, which nobody but work on `stream` touches.
    pub(crate) unsafe fn receive(
        &mut self,
        stream: &CudaStream,
        from: CUdeviceptr,
        bytes: &mut [u8],
    ) -> Result<(), CudaError> {
        for (number, piece) in bytes.chunks_mut(HALF_BYTES).enumerate() {
            let at = self.room(stream, piece.len())?;
            let from = from + (number * HALF_BYTES) as CUdeviceptr;
            // SAFETY: `room` found place for the piece within our memory, and `from` is by the promise of the caller.
            unsafe { self.carry(stream, from, at.as_ptr().addr() as CUdeviceptr, piece.len())? };
            stream.synchronize()?;
            // SAFETY: the kernel has written the piece, and nothing else uses its place before `room` gives it again.
            unsafe { std::ptr::copy_nonoverlapping(at.as_ptr(), piece.as_mut_ptr(), piece.len()) };
        }
        Ok(())
    }

    /// Enqueues a copy.
    ///
    /// # Safety
    /// Both addresses are multiples of 16; `bytes` from there on are device memory or pinned memory, which has the same
    /// address on the device, and stay as they are until the stream is past it.
    unsafe fn carry(
        &self,
        stream: &CudaStream,
        from: CUdeviceptr,
        to: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), CudaError> {
        let args = Args::new().pointer(from).pointer(to).value(&(bytes as u64));
        let grid = Grid::linear(bytes.div_ceil(WORD_BYTES), THREADS);
        // SAFETY: by the promise of the caller; pieces of ours begin on cache lines.
        unsafe { stream.launch(&self.carry, grid, &args) }
    }

    /// Place for a piece of at most one half.
    fn room(&mut self, stream: &CudaStream, bytes: usize) -> Result<NonNull<u8>, CudaError> {
        if self.used + bytes > HALF_BYTES {
            self.left[self.half] = CudaFence::marked(stream)?.position();
            self.half = 1 - self.half;
            self.used = 0;
            CudaFence::at(stream, self.left[self.half]).wait();
        }
        let offset = self.half * HALF_BYTES + self.used;
        self.used += bytes.next_multiple_of(ALIGN);
        // SAFETY: `offset + bytes` is at most the two halves.
        Ok(unsafe { self.base.add(offset) })
    }
}

fn source() -> KernelSource {
    KernelSource::new("carry.cu", include_str!("../../../kernels/carry.cu"))
}

pub(crate) fn kernels() -> Vec<KernelSource> {
    vec![source()]
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: `new` allocated it; the stream, whose kernels alone use it, waited for them before it let it go.
            ignore(unsafe { sys::cuMemFreeHost(self.base.as_ptr().cast()) });
        }
    }
}
