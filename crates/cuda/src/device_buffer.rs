//! Work space on a GPU.
#![allow(unsafe_code, reason = "device memory is an address of the driver")]

use std::marker::PhantomData;

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::status::{check, ignore};
use crate::stream::CudaStream;

/// `len` elements of work space that belong to one stream: all that is done with them is enqueued there.
///
/// Taking and freeing it costs no wait; the memory comes from a pool of the driver that keeps what is freed.
pub struct DeviceBuffer<T> {
    stream: CudaStream,
    pointer: CUdeviceptr,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Room for `len` elements, which hold what was there before.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`] if the device has no room.
    pub fn alloc(stream: &CudaStream, len: usize) -> Result<Self, CudaError> {
        let gpu = stream.gpu();
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            return Err(gpu.out_of_memory(usize::MAX));
        };
        let pointer = if bytes == 0 { 0 } else { allocate(stream, bytes)? };
        Ok(Self { stream: stream.clone(), pointer, len, element: PhantomData })
    }

    /// Room for `len` elements whose bytes are zero.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub fn zeroed(stream: &CudaStream, len: usize) -> Result<Self, CudaError> {
        let mut buffer = Self::alloc(stream, len)?;
        buffer.zero()?;
        Ok(buffer)
    }

    /// A copy of `values`.
    ///
    /// # Errors
    /// As [`Self::alloc`].
    pub fn from_slice(stream: &CudaStream, values: &[T]) -> Result<Self, CudaError> {
        let mut buffer = Self::alloc(stream, values.len())?;
        buffer.upload(values)?;
        Ok(buffer)
    }

    /// Sets all bytes to zero.
    ///
    /// # Errors
    /// [`CudaError`] if the device is lost.
    pub fn zero(&mut self) -> Result<(), CudaError> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let gpu = self.stream.gpu();
        gpu.bind()?;
        // SAFETY: the memory is ours, of that size, and used on this stream alone.
        let status = unsafe { sys::cuMemsetD8Async(self.pointer, 0, self.bytes(), self.stream.raw()) };
        check(gpu.id(), "cuMemsetD8Async", status)
    }

    /// Overwrites the first elements with `values`, which may change once this returns.
    ///
    /// # Errors
    /// [`CudaError::Length`] if there are more of them than fit.
    pub fn upload(&mut self, values: &[T]) -> Result<(), CudaError> {
        let gpu = self.stream.gpu();
        if values.len() > self.len {
            return Err(CudaError::Length { device: gpu.id(), room: self.len, found: values.len() });
        }
        gpu.bind()?;
        // SAFETY: the memory is ours, holds at least so many elements, and is used on this stream alone.
        self.stream.with_staging(|staging| unsafe {
            staging.send(&self.stream, bytemuck::cast_slice(values), self.pointer)
        })
    }

    /// Reads all elements, which waits for the stream: for results that the host decides on, and for tests. It does
    /// not stand in line behind the copies of other streams.
    ///
    /// # Errors
    /// [`CudaError`] if earlier work on the stream failed.
    pub fn download(&self) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::zeroed(); self.len];
        if self.bytes() > 0 {
            self.stream.gpu().bind()?;
            // SAFETY: the memory is ours, of that size, aligned by the driver to more than 16 bytes, and used on this
            // stream alone.
            self.stream.with_staging(|staging| unsafe {
                staging.receive(&self.stream, self.pointer, bytemuck::cast_slice_mut(&mut values))
            })?;
        }
        Ok(values)
    }
}

impl<T> DeviceBuffer<T> {
    /// Address of the first element; 0 if there is none.
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The stream it belongs to.
    pub fn stream(&self) -> &CudaStream {
        &self.stream
    }
}

/// Takes memory of the pool. What the pool holds in pieces of other sizes is given back once before it is refused.
fn allocate(stream: &CudaStream, bytes: usize) -> Result<CUdeviceptr, CudaError> {
    let gpu = stream.gpu();
    let mut pointer = 0;
    for attempt in 0..2 {
        gpu.bind()?;
        // SAFETY: the stream is alive; it stores one address, which `drop` frees.
        let status = unsafe { sys::cuMemAllocAsync(&raw mut pointer, bytes, stream.raw()) };
        match status {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY if attempt == 0 => gpu.trim()?,
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(gpu.out_of_memory(bytes)),
            status => {
                check(gpu.id(), "cuMemAllocAsync", status)?;
                break;
            }
        }
    }
    Ok(pointer)
}

impl Gpu {
    /// The error that says how much there is.
    pub(crate) fn out_of_memory(&self, bytes: usize) -> CudaError {
        let (free, total) = self.memory().unwrap_or((0, self.properties().total_bytes));
        CudaError::OutOfMemory { device: self.id(), bytes, free, total }
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if self.pointer != 0 && self.stream.gpu().bind().is_ok() {
            // SAFETY: `alloc` took it; the driver reuses it after what is enqueued on the stream so far.
            ignore(unsafe { sys::cuMemFreeAsync(self.pointer, self.stream.raw()) });
        }
    }
}

impl<T> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} elements on {:?}", self.len, self.stream)
    }
}
