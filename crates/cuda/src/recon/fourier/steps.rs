//! The kernels of a Fourier reconstruction on its own memory.
#![allow(unsafe_code, reason = "kernels are given addresses of device memory")]

use beamstream_ops::{OpError, ReconSpec};
use bytemuck::{Pod, Zeroable};
use cudarc::driver::sys::CUdeviceptr;

use super::shape::{
    CHUNK_LANES, CHUNK_ROWS, ListedBlock, MAX_BATCH, Sample, SampleWeights, Shape, Transforms, sources,
};
use super::tables::Tables;
use crate::args::Args;
use crate::device_buffer::DeviceBuffer;
use crate::error::CudaError;
use crate::kernel::{Grid, Kernel};
use crate::stream::CudaStream;

/// Threads of the kernels of the gridding: a warp for each tile of a block.
const TILE_THREADS: u32 = 128;
/// Thread blocks of the gridding for each chunk; each takes blocks of the list until none is left.
const GRIDDING_BLOCKS: u32 = 2048;
/// Threads of a kernel that computes one value a thread.
const PLAIN_THREADS: u32 = 256;

/// A batch of projections, as `fourier_spectra.cu` declares it.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
pub(super) struct Batch {
    /// Addresses of the first rows.
    pub(super) pixels: [CUdeviceptr; MAX_BATCH],
    /// Weight in radians.
    pub(super) weight: [f64; MAX_BATCH],
    /// Column that becomes the middle pixel of the slices.
    pub(super) zero_px: [f64; MAX_BATCH],
    pub(super) count: i32,
    pub(super) end: [u8; 4],
}

/// Directions of a batch's projections, as `fourier_grid.cu` declares them: grid points between two samples, times 2^32.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
pub(super) struct Rays {
    pub(super) u: [i64; MAX_BATCH],
    pub(super) v: [i64; MAX_BATCH],
    pub(super) count: i32,
    pub(super) end: [u8; 4],
}

/// Addresses of the slices of a chunk; 0 where none is wanted. As `fourier_inverse.cu` declares them.
#[derive(Clone, Copy, Zeroable, Pod)]
#[repr(C)]
pub(super) struct Slices {
    pub(super) voxels: [CUdeviceptr; CHUNK_ROWS],
}

/// Kernels, sums and work space on one stream.
pub(super) struct Steps {
    stream: CudaStream,
    shape: Shape,
    transforms: Transforms,
    pub(super) tables: Tables,
    multipliers_kernel: Kernel,
    spectra_kernel: Kernel,
    samples_kernel: Kernel,
    grid_kernel: Kernel,
    along_v_kernel: Kernel,
    along_u_kernel: Kernel,
    /// `(chunk, u, v, lane)`.
    grid: DeviceBuffer<[f32; 2]>,
    /// `(projection, frequency)`.
    multipliers: DeviceBuffer<[f32; 2]>,
    /// `(chunk, projection, frequency, lane)`.
    spectra: DeviceBuffer<[f32; 2]>,
    /// How much of the lists is in use: samples and blocks.
    used: DeviceBuffer<[i32; 2]>,
    blocks: DeviceBuffer<ListedBlock>,
    samples: DeviceBuffer<Sample>,
    sample_weights: DeviceBuffer<SampleWeights>,
    /// Of one chunk between the inverse transforms, `(y, u, lane)`.
    middle: DeviceBuffer<[f32; 2]>,
}

impl Steps {
    /// Compiles the kernels and makes room for the sums, which are zero.
    pub(super) fn new(stream: &CudaStream, spec: &ReconSpec, shape: &Shape) -> Result<Self, OpError> {
        let gpu = stream.gpu();
        let transforms = Transforms::new(spec, shape, gpu.properties().shared_bytes as usize)?;
        let [spectra, gridding, inverse] = sources(spec, shape, &transforms);
        // What may not fit comes first: compiling takes seconds.
        let grid = DeviceBuffer::zeroed(stream, shape.chunks() * shape.grid_values())?;
        // Lanes without a row are never written, and must not be NaN.
        let spectra_values = DeviceBuffer::zeroed(stream, shape.spectra_values())?;
        let middle = DeviceBuffer::alloc(stream, shape.middle_values())?;
        let (spectra, gridding, inverse) =
            (gpu.compile(&spectra)?, gpu.compile(&gridding)?, gpu.compile(&inverse)?);
        Ok(Self {
            stream: stream.clone(),
            shape: *shape,
            transforms,
            tables: Tables::new(stream, spec, shape)?,
            multipliers_kernel: spectra.kernel("fourier_multipliers")?,
            spectra_kernel: spectra.kernel("fourier_spectra")?,
            samples_kernel: gridding.kernel("fourier_samples")?,
            grid_kernel: gridding.kernel("fourier_grid")?,
            along_v_kernel: inverse.kernel("fourier_along_v")?,
            along_u_kernel: inverse.kernel("fourier_along_u")?,
            grid,
            multipliers: DeviceBuffer::alloc(stream, shape.multipliers())?,
            spectra: spectra_values,
            used: DeviceBuffer::alloc(stream, 1)?,
            blocks: DeviceBuffer::alloc(stream, shape.blocks() * shape.blocks())?,
            samples: DeviceBuffer::alloc(stream, shape.listed_samples())?,
            sample_weights: DeviceBuffer::alloc(stream, shape.listed_samples())?,
            middle,
        })
    }

    pub(super) fn stream(&self) -> &CudaStream {
        &self.stream
    }

    /// Lanes that the inverse transforms make together.
    pub(super) fn lanes_together(&self) -> usize {
        self.transforms.grid.sequences
    }

    /// Forgets all sums.
    pub(super) fn clear(&mut self) -> Result<(), CudaError> {
        self.grid.zero()
    }

    /// Adds projections to the sums.
    ///
    /// # Safety
    /// Each address covers the rows of a projection on the stream's device, and the stream waits for whoever writes
    /// them. The counts are the same, [`Shape::batch`] at most.
    pub(super) unsafe fn add(&mut self, batch: &Batch, rays: &Rays) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe { self.make_spectra(batch)? };
        self.list_samples(rays)?;
        self.add_samples(rays.count)
    }

    /// Projections to spectra.
    ///
    /// # Safety
    /// As for [`Self::add`].
    unsafe fn make_spectra(&mut self, batch: &Batch) -> Result<(), CudaError> {
        let (shape, tables, plan) = (&self.shape, &self.tables, &self.transforms.rows);
        let projections = batch.count.unsigned_abs();
        let frequencies = (shape.padded / 2 + 1) as u32;
        let blocks = [frequencies.div_ceil(PLAIN_THREADS), projections, 1];
        let args = Args::new().value(batch).buffer(&tables.response).buffer(&self.multipliers);
        // SAFETY: it reads the response and writes `count * (padded / 2 + 1)` multipliers, for which there is room.
        unsafe {
            self.stream.launch(&self.multipliers_kernel, Grid::new(blocks, [PLAIN_THREADS, 1, 1]), &args)?;
        }
        let groups = shape.lanes().div_ceil(plan.sequences) as u32;
        let grid = Grid::new([2 * groups, projections, 1], [plan.threads as u32, 1, 1])
            .with_shared(plan.shared_bytes as u32);
        let args = Args::new()
            .value(batch)
            .i32(shape.rows as i32)
            .buffer(&self.multipliers)
            .buffer(&tables.row_roots)
            .buffer(&tables.axis_offset_px)
            .buffer(&self.spectra);
        // SAFETY: it reads `rows` rows of each projection, which the caller promises, and the tables; it writes within
        // `chunks * count` spectra, for which there is room.
        unsafe { self.stream.launch(&self.spectra_kernel, grid, &args) }
    }

    /// Lists the samples of a batch by tiles of the grid.
    fn list_samples(&mut self, rays: &Rays) -> Result<(), CudaError> {
        self.used.zero()?;
        let blocks = [self.shape.listing_blocks() as u32, self.shape.blocks() as u32, 1];
        let args = Args::new()
            .value(rays)
            .buffer(&self.tables.weights)
            .buffer(&self.used)
            .buffer(&self.blocks)
            .buffer(&self.samples)
            .buffer(&self.sample_weights);
        // SAFETY: it writes each block once and no more samples than `Shape::listed_samples`, for which there is room.
        unsafe { self.stream.launch(&self.samples_kernel, Grid::new(blocks, [TILE_THREADS, 1, 1]), &args) }
    }

    /// Adds the listed samples to the sums.
    fn add_samples(&mut self, projections: i32) -> Result<(), CudaError> {
        let shape = &self.shape;
        let blocks = [GRIDDING_BLOCKS, shape.chunks() as u32, 1];
        let args = Args::new()
            .i32(projections)
            .i32(shape.lanes() as i32)
            .buffer(&self.used)
            .buffer(&self.blocks)
            .buffer(&self.samples)
            .buffer(&self.sample_weights)
            .buffer(&self.spectra)
            .buffer(&self.grid);
        // SAFETY: the lists hold samples of `projections` spectra and tiles within the grid of a chunk.
        unsafe { self.stream.launch(&self.grid_kernel, Grid::new(blocks, [TILE_THREADS, 1, 1]), &args) }
    }

    /// Makes slices of a chunk: of the `groups` times [`lanes_together`](Self::lanes_together) lanes from `first_lane`
    /// on.
    ///
    /// # Safety
    /// Each address that is not 0 covers a slice on the stream's device, and the stream waits for whoever reads there.
    pub(super) unsafe fn inverse(
        &mut self,
        chunk: usize,
        first_lane: usize,
        groups: usize,
        scale: f32,
        slices: &Slices,
    ) -> Result<(), CudaError> {
        let (shape, tables, plan) = (&self.shape, &self.tables, &self.transforms.grid);
        debug_assert!(chunk < shape.chunks() && first_lane + groups * plan.sequences <= CHUNK_LANES);
        let lines = |lines: usize| {
            Grid::new([(lines * groups) as u32, 1, 1], [plan.threads as u32, 1, 1])
                .with_shared(plan.shared_bytes as u32)
        };
        let lanes = || Args::new().i32(first_lane as i32).i32(groups as i32);
        let chunk_bytes = shape.grid_values() * size_of::<[f32; 2]>();
        let args = lanes()
            .pointer(self.grid.pointer() + (chunk * chunk_bytes) as CUdeviceptr)
            .buffer(&tables.grid_roots)
            .buffer(&self.middle);
        // SAFETY: it reads the grid of one of our chunks and writes the middle, which has room for all lanes.
        unsafe { self.stream.launch(&self.along_v_kernel, lines(shape.grid()), &args)? };
        let args = lanes()
            .f32(scale)
            .buffer(&self.middle)
            .buffer(&tables.grid_roots)
            .buffer(&tables.correction)
            .value(slices);
        // SAFETY: it reads the middle and writes slices, which the caller promises.
        unsafe { self.stream.launch(&self.along_u_kernel, lines(shape.columns), &args) }
    }
}
