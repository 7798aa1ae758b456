//! Flat-field correction.
#![allow(unsafe_code, reason = "kernels are started")]

use beamstream_buffer::{Block, LeaseMut};
use beamstream_core::{ElementType, Format};
use beamstream_ops::{BadPixels, FlatField, FlatFieldSpec, OpError};
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdeviceptr;

use super::{THREADS, expect};
use crate::access::Access;
use crate::args::Args;
use crate::device_buffer::DeviceBuffer;
use crate::error::CudaError;
use crate::kernel::{Grid, Kernel};
use crate::source::KernelSource;
use crate::stream::CudaStream;

/// Pixels of a row that a thread has in flight, as in the kernel.
const PIXELS: usize = 2;
/// Threads that run together.
const WARP: usize = 32;
/// Frames that one launch takes, as in the kernel.
const MOST_FRAMES: usize = 16;
/// Bytes that keep a GPU busy for longer than it takes to start a kernel.
const LAUNCH_BYTES: usize = 16 << 20;

/// Frames and where they go, as the kernel takes them.
#[derive(Debug, Clone, Copy, Default, Zeroable, Pod)]
#[repr(C)]
struct Frames {
    from: [CUdeviceptr; MOST_FRAMES],
    to: [CUdeviceptr; MOST_FRAMES],
}

/// Frames of this format that are worth one launch.
pub(crate) fn frames_at_once(format: Format) -> usize {
    (LAUNCH_BYTES / format.bytes().max(1)).clamp(1, MOST_FRAMES)
}

/// Corrects frames by a mean dark and one or two mean flats, as [`FlatFieldSpec`] says, up to 16 frames
/// with one kernel.
///
/// # Memory
/// 12 bytes a pixel.
pub(crate) struct CudaFlatField {
    stream: CudaStream,
    spec: FlatFieldSpec,
    format: Format,
    /// For the references that are set.
    kernel: Kernel,
    dark: DeviceBuffer<f32>,
    /// Of one flat one over its open beam; of two the open beam of each. NaN where there is none.
    beams: [DeviceBuffer<f32>; 2],
    /// In the order of the kernel's causes.
    bad: DeviceBuffer<u64>,
    corrected: bool,
}

impl CudaFlatField {
    /// A correction without references: until they come, counts are transmissions.
    pub(crate) fn new(stream: &CudaStream, spec: FlatFieldSpec, format: Format) -> Result<Self, CudaError> {
        let pixels = format.shape.len();
        Ok(Self {
            stream: stream.clone(),
            spec,
            format,
            kernel: kernel(stream, spec, format.element, 1)?,
            dark: DeviceBuffer::zeroed(stream, pixels)?,
            beams: [
                DeviceBuffer::from_slice(stream, &vec![1.0; pixels])?,
                DeviceBuffer::alloc(stream, pixels)?,
            ],
            bad: DeviceBuffer::zeroed(stream, 4)?,
            corrected: false,
        })
    }

    fn upload(&mut self, dark: &[f32], flats: &[&[f32]]) -> Result<(), CudaError> {
        let open =
            |flat: f32, dark: f32| if flat > dark && flat.is_finite() { flat - dark } else { f32::NAN };
        let beam = |flat: &[f32]| flat.iter().zip(dark).map(|(flat, dark)| open(*flat, *dark)).collect();
        let mut beams: Vec<Vec<f32>> = flats.iter().take(2).map(|flat| beam(flat)).collect();
        if let [only] = beams.as_mut_slice() {
            for beam in only {
                *beam = 1.0 / *beam;
            }
        }
        self.kernel = kernel(&self.stream, self.spec, self.format.element, beams.len())?;
        self.dark.upload(dark)?;
        self.beams.iter_mut().zip(&beams).try_for_each(|(buffer, beam)| buffer.upload(beam))
    }

    fn enqueue<'a>(
        &self,
        frames: impl IntoIterator<Item = (&'a Block, &'a mut LeaseMut)>,
        later: f32,
    ) -> Result<(), CudaError> {
        let shape = self.format.shape;
        let mut access = Access::new(&self.stream)?;
        let (mut count, mut pointers) = (0, Frames::default());
        for (at, (frame, to)) in frames.into_iter().enumerate() {
            (pointers.from[at], pointers.to[at]) = (access.read(frame)?, access.write(to)?);
            count = at + 1;
        }
        let args = Args::new()
            .value(&pointers)
            .buffer(&self.dark)
            .buffer(&self.beams[0])
            .buffer(&self.beams[1])
            .f32(later)
            .f32(saturation(self.format.element))
            .i32(shape.columns as i32)
            .buffer(&self.bad);
        let threads = shape.columns.div_ceil(PIXELS).next_multiple_of(WARP).clamp(WARP, THREADS as usize);
        let words = shape.columns.div_ceil(WARP) * size_of::<u32>();
        let grid =
            Grid::new([shape.rows as u32, count as u32, 1], [threads as u32, 1, 1]).with_shared(words as u32);
        // SAFETY: frames and leases have the format that the references were made for; the kernel was compiled for its
        // element type; shared memory has a bit for each column.
        unsafe { self.stream.launch(&self.kernel, grid, &args)? };
        access.finish()
    }
}

impl FlatField for CudaFlatField {
    fn set_references(&mut self, dark: &[f32], flats: &[&[f32]]) -> Result<(), OpError> {
        let expected = self.format.shape.len();
        if let Some(other) = std::iter::once(&dark).chain(flats).find(|image| image.len() != expected) {
            return Err(OpError::ReferenceLength { expected, found: other.len() });
        }
        if flats.is_empty() {
            return Err(OpError::ReferenceLength { expected, found: 0 });
        }
        Ok(self.upload(dark, flats)?)
    }

    fn correct(&mut self, frame: &Block, later: f32, to: &mut LeaseMut) -> Result<(), OpError> {
        self.correct_all(std::slice::from_ref(frame), later, std::slice::from_mut(to))
    }

    fn correct_all(&mut self, frames: &[Block], later: f32, to: &mut [LeaseMut]) -> Result<(), OpError> {
        if frames.len() != to.len() {
            let (expected, found) = (frames.len(), to.len());
            return Err(OpError::Count { what: "buffers for frames", expected, found });
        }
        for (frame, to) in frames.iter().zip(&*to) {
            expect(self.format, frame.format())?;
            expect(self.format.with_element(ElementType::F32), to.format())?;
        }
        for (frames, to) in frames.chunks(MOST_FRAMES).zip(to.chunks_mut(MOST_FRAMES)) {
            self.enqueue(frames.iter().zip(to), later.clamp(0.0, 1.0))?;
        }
        self.corrected = true;
        Ok(())
    }

    fn take_bad_pixels(&mut self) -> Result<BadPixels, OpError> {
        let mut bad = BadPixels::default();
        if std::mem::take(&mut self.corrected) {
            let counts = self.bad.download()?;
            self.bad.zero()?;
            if let [no_beam, saturated, non_finite, clipped] = counts[..] {
                bad = BadPixels { no_beam, saturated, non_finite, clipped };
            }
        }
        Ok(bad)
    }
}

/// Values from which on an integer is the mark of a gap, a masked or a saturated pixel; infinite for floats.
fn saturation(element: ElementType) -> f32 {
    element.integer_max().map_or(f32::INFINITY, |max| max as f32)
}

fn kernel(
    stream: &CudaStream,
    spec: FlatFieldSpec,
    element: ElementType,
    flats: usize,
) -> Result<Kernel, CudaError> {
    stream.gpu().compile(&source(spec, element, flats))?.kernel("flat_field")
}

fn source(spec: FlatFieldSpec, element: ElementType, flats: usize) -> KernelSource {
    KernelSource::new("flat_field.cu", include_str!("../../../../kernels/flat_field.cu"))
        .define("ELEMENT", element)
        .define("FLATS", flats)
        .define("MINUS_LOG", u8::from(spec.minus_log))
}

pub(super) fn kernels() -> Vec<KernelSource> {
    let of = |minus_log, element, flats| source(FlatFieldSpec { minus_log }, element, flats);
    vec![of(true, ElementType::U16, 2), of(false, ElementType::F16, 1), of(true, ElementType::F32, 1)]
}
