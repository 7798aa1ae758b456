//! The blocks of one operation: waited for before it, fenced after it.

use std::sync::Arc;

use beamstream_buffer::{Block, Fence, LeaseMut, MemoryKind, Stream};
use cudarc::driver::sys::CUdeviceptr;

use crate::error::CudaError;
use crate::nvtx::Range;
use crate::pinned::wait_until_pinned;
use crate::stream::CudaStream;

/// The blocks that one operation reads and writes.
///
/// [`read`](Self::read) and [`write`](Self::write) let the stream wait on the device until a block is written or no
/// longer read, and give its address. When the access ends, one fence is put behind all that was enqueued since,
/// and left with every block: also when the operation failed half-way.
///
/// ```text
/// let mut access = Access::new(&stream)?;
/// let (from, to) = (access.read(frame)?, access.write(lease)?);
/// … enqueue kernels on the stream …
/// access.finish()
/// ```
#[must_use = "the fence is recorded when the access ends: keep it until the work is enqueued"]
pub struct Access<'a> {
    stream: &'a CudaStream,
    /// Shows in profilers which node enqueues.
    _range: Range,
    reads: Vec<&'a Block>,
    writes: Vec<&'a mut LeaseMut>,
}

impl<'a> Access<'a> {
    /// No blocks yet.
    ///
    /// # Errors
    /// [`CudaError::Lost`] if the device is.
    pub fn new(stream: &'a CudaStream) -> Result<Self, CudaError> {
        stream.gpu().check()?;
        let range = Range::new(stream.name());
        Ok(Self { stream, _range: range, reads: Vec::new(), writes: Vec::new() })
    }

    /// Adds a block that is read.
    ///
    /// # Errors
    /// [`CudaError::Misplaced`] if a kernel cannot reach it.
    pub fn read(&mut self, block: &'a Block) -> Result<CUdeviceptr, CudaError> {
        self.check_place(block.kind())?;
        self.read_anywhere(block)
    }

    /// Adds a block of any memory that is read by a copy.
    pub(crate) fn read_anywhere(&mut self, block: &'a Block) -> Result<CUdeviceptr, CudaError> {
        let address = block.base().as_ptr() as usize;
        if block.kind() == MemoryKind::Pinned {
            wait_until_pinned(address, block.format().bytes())?;
        }
        if let Some(written) = block.written() {
            self.stream.wait(written)?;
        }
        self.reads.push(block);
        Ok(address as CUdeviceptr)
    }

    /// Adds a block that is written.
    ///
    /// # Errors
    /// [`CudaError::Misplaced`] if a kernel cannot reach it.
    pub fn write(&mut self, lease: &'a mut LeaseMut) -> Result<CUdeviceptr, CudaError> {
        self.check_place(lease.kind())?;
        self.write_anywhere(lease)
    }

    /// Adds a block of any memory that is written by a copy.
    pub(crate) fn write_anywhere(&mut self, lease: &'a mut LeaseMut) -> Result<CUdeviceptr, CudaError> {
        let address = lease.base().as_ptr() as usize;
        if lease.kind() == MemoryKind::Pinned {
            wait_until_pinned(address, lease.format().bytes())?;
        }
        for reader in lease.earlier_readers() {
            self.stream.wait(&reader)?;
        }
        self.writes.push(lease);
        Ok(address as CUdeviceptr)
    }

    /// Memory of the stream's device, or pinned memory of the host.
    fn check_place(&self, kind: MemoryKind) -> Result<(), CudaError> {
        let device = self.stream.device();
        if kind == MemoryKind::Device(device) || kind == MemoryKind::Pinned {
            Ok(())
        } else {
            Err(CudaError::Misplaced { device, found: kind.to_string() })
        }
    }

    /// Ends the access.
    ///
    /// # Errors
    /// [`CudaError`] if the device is lost.
    pub fn finish(mut self) -> Result<(), CudaError> {
        self.leave_fence()
    }

    fn leave_fence(&mut self) -> Result<(), CudaError> {
        if self.reads.is_empty() && self.writes.is_empty() {
            return Ok(());
        }
        let fence: Arc<dyn Fence> = self.stream.fence()?;
        for block in self.reads.drain(..) {
            block.read_by(Some(fence.clone()));
        }
        for lease in self.writes.drain(..) {
            lease.written_by(Some(fence.clone()));
        }
        Ok(())
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.leave_fence() {
            // Without a fence nobody knows when the blocks are free: no block of this GPU can be trusted any more.
            self.stream.gpu().fail(error);
        }
    }
}
