//! The mean of frames: dark and flat images.
#![allow(unsafe_code, reason = "kernels are started")]

use beamstream_buffer::Block;
use beamstream_core::{ElementType, Format};
use beamstream_ops::{MeanImage, OpError};

use super::{THREADS, expect};
use crate::access::Access;
use crate::args::Args;
use crate::device_buffer::DeviceBuffer;
use crate::error::CudaError;
use crate::kernel::{Grid, Kernel};
use crate::source::KernelSource;
use crate::stream::CudaStream;

/// A mean over frames, pixel by pixel, with the sums of the CPU's. NaN and infinite values are left out.
///
/// # Memory
/// 8 bytes a pixel, 12 for frames of floats.
pub(crate) struct CudaMean {
    stream: CudaStream,
    format: Format,
    add: Kernel,
    mean: Kernel,
    sums: DeviceBuffer<f64>,
    /// Values left out, pixel by pixel; empty for integers.
    missing: DeviceBuffer<u32>,
    frames: u64,
}

impl CudaMean {
    pub(crate) fn new(stream: &CudaStream, format: Format) -> Result<Self, CudaError> {
        let program = stream.gpu().compile(&source(format.element))?;
        let pixels = format.shape.len();
        let missing = if is_float(format.element) { pixels } else { 0 };
        Ok(Self {
            stream: stream.clone(),
            format,
            add: program.kernel("add_frame")?,
            mean: program.kernel("mean_of_frames")?,
            sums: DeviceBuffer::zeroed(stream, pixels)?,
            missing: DeviceBuffer::zeroed(stream, missing)?,
            frames: 0,
        })
    }

    fn enqueue(&self, frame: &Block) -> Result<(), CudaError> {
        let mut access = Access::new(&self.stream)?;
        let pixels = self.sums.len();
        let args = Args::new()
            .pointer(access.read(frame)?)
            .value(&(pixels as u64))
            .buffer(&self.sums)
            .buffer(&self.missing);
        // SAFETY: the frame has the format of the sums, so that all have as many pixels; the kernel was compiled for
        // its element type, and touches `missing` only for floats.
        unsafe { self.stream.launch(&self.add, Grid::linear(pixels, THREADS), &args)? };
        access.finish()
    }

    fn image(&self) -> Result<Vec<f32>, CudaError> {
        let mean = DeviceBuffer::<f32>::alloc(&self.stream, self.sums.len())?;
        let args = Args::new()
            .buffer(&self.sums)
            .buffer(&self.missing)
            .value(&(self.sums.len() as u64))
            .value(&self.frames)
            .buffer(&mean);
        // SAFETY: all buffers are ours, on this stream, and have as many pixels, as in `enqueue`.
        unsafe { self.stream.launch(&self.mean, Grid::linear(mean.len(), THREADS), &args)? };
        mean.download()
    }
}

impl MeanImage for CudaMean {
    fn add(&mut self, frame: &Block) -> Result<(), OpError> {
        expect(self.format, frame.format())?;
        self.enqueue(frame)?;
        self.frames += 1;
        Ok(())
    }

    fn count(&self) -> u64 {
        self.frames
    }

    fn mean(&self) -> Result<Vec<f32>, OpError> {
        Ok(self.image()?)
    }

    fn reset(&mut self) {
        self.frames = 0;
        if let Err(error) = self.sums.zero().and_then(|()| self.missing.zero()) {
            self.stream.gpu().fail(error);
        }
    }
}

/// Whether values may be no numbers.
fn is_float(element: ElementType) -> bool {
    element.integer_max().is_none()
}

fn source(element: ElementType) -> KernelSource {
    KernelSource::new("mean.cu", include_str!("../../../../kernels/mean.cu"))
        .define("ELEMENT", element)
        .define("COUNTS_MISSING", u8::from(is_float(element)))
}

pub(super) fn kernels() -> Vec<KernelSource> {
    ElementType::ALL.iter().map(|element| source(*element)).collect()
}
