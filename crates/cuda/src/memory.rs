//! Device memory for pools.
#![allow(unsafe_code, reason = "device memory is an address of the driver")]

use std::ptr::NonNull;
use std::sync::Arc;

use beamstream_buffer::{Allocator, Memory, MemoryError, MemoryKind};
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::status::{check, ignore};

/// Gives memory of one GPU.
#[derive(Debug, Clone)]
pub struct DeviceAllocator {
    gpu: Arc<Gpu>,
}

impl DeviceAllocator {
    /// Memory of `gpu`.
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: gpu.clone() }
    }
}

impl Allocator for DeviceAllocator {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device(self.gpu.id())
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, MemoryError> {
        match DeviceMemory::new(&self.gpu, bytes) {
            Ok(memory) => Ok(Box::new(memory)),
            Err(error) => Err(MemoryError { bytes, kind: self.kind(), source: std::io::Error::other(error) }),
        }
    }
}

/// A piece of device memory, as large as asked for and of at least one byte.
struct DeviceMemory {
    gpu: Arc<Gpu>,
    base: NonNull<u8>,
    len: usize,
}

impl DeviceMemory {
    fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self, CudaError> {
        gpu.check()?;
        gpu.bind()?;
        let mut address: CUdeviceptr = 0;
        // SAFETY: the context is current; it stores one address, which `drop` frees.
        let mut status = unsafe { sys::cuMemAlloc_v2(&raw mut address, len.max(1)) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            // The work-space pool may hold what is missing.
            gpu.trim()?;
            // SAFETY: as above.
            status = unsafe { sys::cuMemAlloc_v2(&raw mut address, len.max(1)) };
        }
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(gpu.out_of_memory(len));
        }
        check(gpu.id(), "cuMemAlloc", status)?;
        let base = NonNull::new(address as *mut u8).ok_or_else(|| gpu.out_of_memory(len))?;
        Ok(Self { gpu: gpu.clone(), base, len })
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: `new` allocated it; the driver waits for the work that uses it.
            ignore(unsafe { sys::cuMemFree_v2(self.base.as_ptr() as CUdeviceptr) });
        }
    }
}

// SAFETY: an address of a device is valid in every thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: `&self` gives only the address and the size.
unsafe impl Sync for DeviceMemory {}

// SAFETY: device memory never moves and lives until `drop`; the host does not look into it.
unsafe impl Memory for DeviceMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Device(self.gpu.id())
    }

    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}
