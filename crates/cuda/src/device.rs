//! A GPU as the engine sees it.

use std::sync::Arc;
use std::time::Instant;

use beamstream_buffer::{Allocator, DeviceId};
use beamstream_ops::{Backend, Device, DeviceSpan, OpError, Transfer};

use crate::backend::CudaBackend;
use crate::driver::Driver;
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::memory::DeviceAllocator;
use crate::pinned::PinnedAllocator;
use crate::transfer::CudaTransfer;

/// Oldest compute capability whose instructions the kernels use (matrix products with operands in halves).
const OLDEST: (u32, u32) = (8, 0);

/// One NVIDIA GPU on which nodes can be placed.
pub struct CudaDevice {
    gpu: Arc<Gpu>,
    /// The host's computations, for what is done once a scan and not worth a kernel.
    host: Arc<dyn Backend>,
}

impl CudaDevice {
    /// Opens the GPU of this number.
    ///
    /// # Errors
    /// [`CudaError`] if there is no driver or no such GPU, or if that is too old.
    pub fn open(ordinal: u32, host: Arc<dyn Backend>) -> Result<Self, CudaError> {
        let gpu = Gpu::open(ordinal)?;
        let found = gpu.properties().compute_capability;
        if found < OLDEST {
            return Err(CudaError::DeviceTooOld { device: gpu.id(), found });
        }
        Ok(Self { gpu, host })
    }

    /// The GPU itself.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

impl Device for CudaDevice {
    fn id(&self) -> DeviceId {
        self.gpu.id()
    }

    fn describe(&self) -> String {
        let properties = self.gpu.properties();
        let (major, minor) = properties.compute_capability;
        let gigabytes = properties.total_bytes as f64 / 1e9;
        let cuda =
            Driver::get().map_or_else(|error| error.to_string(), |driver| driver.version().to_string());
        format!(
            "{}, compute capability {major}.{minor}, {} multiprocessors, {gigabytes:.1} GB, CUDA {cuda}",
            properties.name, properties.multiprocessors
        )
    }

    fn backend(&self, node: &str) -> Result<Arc<dyn Backend>, OpError> {
        Ok(Arc::new(CudaBackend::new(&self.gpu, node, self.host.clone())?))
    }

    fn transfer(&self, node: &str) -> Result<Box<dyn Transfer>, OpError> {
        Ok(Box::new(CudaTransfer::new(&self.gpu, node)?))
    }

    fn allocator(&self) -> Arc<dyn Allocator> {
        Arc::new(DeviceAllocator::new(&self.gpu))
    }

    fn pinned(&self) -> Arc<dyn Allocator> {
        Arc::new(PinnedAllocator::new(&self.gpu))
    }

    fn free_bytes(&self) -> u64 {
        self.gpu.memory().map_or(0, |(free, _)| free as u64)
    }

    fn energy_joules(&self) -> Option<f64> {
        self.gpu.energy_joules()
    }

    fn start_trace(&self, origin: Instant) -> Result<(), OpError> {
        Ok(self.gpu.start_trace(origin)?)
    }

    fn take_spans(&self) -> (Vec<DeviceSpan>, u64) {
        let (spans, dropped) = self.gpu.take_spans();
        let span = |span: crate::Span| DeviceSpan {
            stream: span.stream,
            name: span.name,
            began: span.began,
            ended: span.ended,
        };
        (spans.into_iter().map(span).collect(), dropped)
    }
}
