//! The operations as nodes see them: on blocks in the memory of a GPU.

use std::sync::Arc;

use beamstream_buffer::{Block, DeviceId, LeaseMut};
use beamstream_core::Format;
use beamstream_ops::{
    AxisEstimate, Backend, FlatField, FlatFieldSpec, MeanImage, Memory, Method, OpError, ReconSpec,
    Reconstruction, ScanStore,
};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::ops::{CudaFlatField, CudaMean, Rescale, frames_at_once, rotation_axis};
use crate::recon::{CudaScanStore, DirectSums, FourierSums};
use crate::stream::CudaStream;

/// Projections that a reconstruction adds in one go: sums are read and written once a batch.
const BATCH: usize = 64;

/// All operations of one node on one GPU, on streams of their own.
pub struct CudaBackend {
    stream: CudaStream,
    /// For reconstruction: its kernels are long and have low priority, so that those that prepare projections go first.
    patient: CudaStream,
    /// Computes what is done once a scan and not worth a kernel: the rotation axis.
    host: Arc<dyn Backend>,
    rescale: Rescale,
}

impl CudaBackend {
    /// The operations for the node of this name. `host` computes what is not worth a kernel.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses a stream.
    pub fn new(gpu: &Arc<Gpu>, node: &str, host: Arc<dyn Backend>) -> Result<Self, CudaError> {
        Ok(Self {
            stream: CudaStream::new(gpu, node)?,
            patient: CudaStream::patient(gpu, node)?,
            host,
            rescale: Rescale::default(),
        })
    }
}

impl Backend for CudaBackend {
    fn device(&self) -> DeviceId {
        self.stream.gpu().id()
    }

    fn mean_image(&self, format: Format) -> Result<Box<dyn MeanImage>, OpError> {
        Ok(Box::new(CudaMean::new(&self.stream, format)?))
    }

    fn flat_field(&self, spec: &FlatFieldSpec, format: Format) -> Result<Box<dyn FlatField>, OpError> {
        Ok(Box::new(CudaFlatField::new(&self.stream, *spec, format)?))
    }

    fn frames_at_once(&self, format: Format) -> usize {
        frames_at_once(format)
    }

    fn reconstruction(&self, spec: &ReconSpec) -> Result<Box<dyn Reconstruction>, OpError> {
        match spec.method {
            Method::Fourier => Ok(Box::new(FourierSums::new(spec, &self.patient)?)),
            Method::Fbp => Ok(Box::new(DirectSums::new(&self.patient, spec)?)),
        }
    }

    fn reconstruction_memory(&self, spec: &ReconSpec) -> Memory {
        match spec.method {
            Method::Fourier => FourierSums::memory(spec),
            Method::Fbp => DirectSums::memory(spec),
        }
    }

    fn batch(&self) -> usize {
        BATCH
    }

    fn slices_at_once(&self, spec: &ReconSpec) -> usize {
        match spec.method {
            Method::Fourier => FourierSums::rows_at_once(spec),
            Method::Fbp => DirectSums::rows_at_once(spec),
        }
    }

    fn scan_store(&self, spec: &ReconSpec, projections: usize) -> Result<Box<dyn ScanStore>, OpError> {
        Ok(Box::new(CudaScanStore::new(&self.patient, spec, projections)?))
    }

    fn scan_store_memory(&self, spec: &ReconSpec, projections: usize) -> Memory {
        CudaScanStore::memory(spec, projections)
    }

    fn rescale(&self, from: &Block, range: [f32; 2], to: &mut LeaseMut) -> Result<(), OpError> {
        self.rescale.run(&self.stream, from, range, to)
    }

    fn rotation_axis(&self, at_0: &Block, at_180: &Block) -> Result<AxisEstimate, OpError> {
        rotation_axis(self.stream.gpu(), self.host.as_ref(), at_0, at_180)
    }
}
