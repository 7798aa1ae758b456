//! A GPU beside the CPU, and blocks on both.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::Arc;

use beamstream_buffer::{Allocator, Block, HostAllocator, LeaseMut, Pool};
use beamstream_core::{BlockMeta, Element, ElementType, Format, FrameId, Role};
use beamstream_cpu::CpuBackend;
use beamstream_cuda::CudaDevice;
use beamstream_ops::{Backend, Device, ProjectionBlock, Transfer};

/// Both backends.
pub(crate) struct Rig {
    pub(crate) cpu: Arc<CpuBackend>,
    pub(crate) cuda: Arc<dyn Backend>,
    device: CudaDevice,
    transfer: Box<dyn Transfer>,
}

/// Both backends; `None`, and a line that says why, where there is no GPU.
pub(crate) fn rig() -> Option<Rig> {
    let cpu = Arc::new(CpuBackend::new(2));
    let device = CudaDevice::open(0, cpu.clone()).map_err(|error| eprintln!("skipped: {error}")).ok()?;
    let (cuda, transfer) = (device.backend("test").unwrap(), device.transfer("copies").unwrap());
    Some(Rig { cpu, cuda, device, transfer })
}

fn lease(allocator: &dyn Allocator, format: Format) -> LeaseMut {
    Pool::new("test", allocator, 1, format.bytes()).unwrap().lease(format).unwrap()
}

fn meta() -> BlockMeta {
    BlockMeta::new(FrameId::new(0), Role::Projection)
}

/// A block in host memory.
pub(crate) fn on_host<T: Element + bytemuck::Pod>(format: Format, values: &[T]) -> Block {
    let mut lease = lease_on_host(format);
    lease.elements_mut::<T>().unwrap().copy_from_slice(values);
    lease.freeze(meta())
}

/// Room in host memory.
pub(crate) fn lease_on_host(format: Format) -> LeaseMut {
    lease(&HostAllocator, format)
}

/// What was written into host memory.
pub(crate) fn values_on_host<T: Element + bytemuck::Pod>(lease: LeaseMut) -> Vec<T> {
    lease.freeze(meta()).elements::<T>().unwrap().to_vec()
}

impl Rig {
    /// The same block in the memory of the GPU.
    pub(crate) fn on_device(&mut self, block: &Block) -> Block {
        let mut lease = lease(self.device.allocator().as_ref(), block.format());
        self.transfer.copy(block, &mut lease).unwrap();
        lease.freeze(block.meta)
    }

    /// Room in the memory of the GPU, full of bits that no result has.
    pub(crate) fn lease_on_device(&mut self, format: Format) -> LeaseMut {
        let mut poison = lease_on_host(format);
        poison.bytes_mut().fill(0xff);
        let block = self.on_device(&poison.freeze(meta()));
        block.try_into_mut().unwrap()
    }

    /// What was written into the memory of the GPU.
    pub(crate) fn values<T: Element + bytemuck::Pod>(&mut self, lease: LeaseMut) -> Vec<T> {
        let block = lease.freeze(meta());
        let mut to = lease_on_host(block.format());
        self.transfer.copy(&block, &mut to).unwrap();
        values_on_host(to)
    }
}

/// Numbers without a pattern, from 0 to 1, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> f64 {
        // Knuth's linear congruential generator; its upper bits are good enough here.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() * end as f64) as usize
    }
}

/// Root mean square of the difference over the range of what is expected.
pub(crate) fn relative_error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let squares = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2));
    let rms = (squares.sum::<f64>() / expected.len() as f64).sqrt();
    let (low, high) =
        expected.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    rms / f64::from(if high > low { high - low } else { high.abs().max(f32::MIN_POSITIVE) })
}

/// A scan of smooth shapes with noise, on both sides.
pub(crate) struct Scan {
    pub(crate) host: Vec<Block>,
    pub(crate) device: Vec<Block>,
    pub(crate) angles_rad: Vec<f64>,
}

impl Scan {
    /// `rows` x `columns` line integrals at each angle.
    pub(crate) fn new(rig: &mut Rig, rows: usize, columns: usize, angles_rad: Vec<f64>) -> Self {
        let mut random = Random(rows as u64 * 1_000_003 + columns as u64);
        let format = Format::frame(ElementType::F32, rows, columns);
        let host: Vec<Block> = angles_rad
            .iter()
            .map(|angle| {
                let pixels: Vec<f32> = (0..rows * columns)
                    .map(|at| {
                        let (row, s) = (at / columns, (at % columns) as f64 / columns as f64 - 0.5);
                        let edge = s - 0.1 * (angle + row as f64).cos();
                        ((0.1 - edge * edge).max(0.0).sqrt() * 3.0 + 0.02 * random.next()) as f32
                    })
                    .collect();
                on_host(format, &pixels)
            })
            .collect();
        let device = host.iter().map(|block| rig.on_device(block)).collect();
        Self { host, device, angles_rad }
    }

    /// A batch of its projections, weighted differently, from `first_row` of each on.
    pub(crate) fn batch<'a>(&self, blocks: &'a [Block], first_row: usize) -> Vec<ProjectionBlock<'a>> {
        let of = |(at, (block, angle_rad)): (usize, (&'a Block, &f64))| ProjectionBlock {
            block,
            first_row,
            angle_rad: *angle_rad,
            weight: (1.0 + 0.1 * (at % 3) as f64) / self.angles_rad.len() as f64,
        };
        blocks.iter().zip(&self.angles_rad).enumerate().map(of).collect()
    }
}
