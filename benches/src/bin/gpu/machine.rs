//! The device that is measured, through the traits that nodes use.

use std::path::Path;
use std::sync::Arc;

use beamstream::{Options, PlanOptions};
use beamstream_buffer::{Allocator, Block, HostAllocator, LeaseMut, Pool};
use beamstream_core::Format;
use beamstream_node::Registry;
use beamstream_ops::{Backend, Device, Transfer};

use crate::Outcome;

/// A GPU with the host beside it, or the host alone.
pub(crate) struct Machine {
    options: PlanOptions,
}

impl Machine {
    /// # Errors
    /// If there is no such device, in words.
    pub(crate) fn open(device: &beamstream::Device, trace: Option<&Path>) -> Outcome<Self> {
        let trace = trace.map(Path::to_owned);
        let options = Options { device: device.clone(), trace, ..Options::default() };
        Ok(Self { options: options.plan_options()? })
    }

    pub(crate) fn options(&self) -> &PlanOptions {
        &self.options
    }

    /// The GPU, if there is one.
    pub(crate) fn gpu(&self) -> Option<&Arc<dyn Device>> {
        self.options.devices.first()
    }

    pub(crate) fn describe(&self) -> String {
        self.gpu().map_or_else(|| String::from("the CPU"), |gpu| gpu.describe())
    }

    pub(crate) fn backend(&self, name: &str) -> Outcome<Arc<dyn Backend>> {
        Ok(match self.gpu() {
            Some(gpu) => gpu.backend(name)?,
            None => self.options.ops.clone(),
        })
    }

    /// Gives host memory that the device reads by itself.
    pub(crate) fn pinned(&self) -> Arc<dyn Allocator> {
        self.gpu().map_or_else(|| Arc::new(HostAllocator) as Arc<dyn Allocator>, |gpu| gpu.pinned())
    }

    /// Gives memory of the device.
    pub(crate) fn memory(&self) -> Arc<dyn Allocator> {
        self.gpu().map_or_else(|| Arc::new(HostAllocator) as Arc<dyn Allocator>, |gpu| gpu.allocator())
    }

    /// `slots` buffers for blocks of `format` on the device.
    pub(crate) fn pool(&self, slots: usize, format: Format) -> Outcome<Pool> {
        Ok(Pool::new("bench", &*self.memory(), slots, format.bytes())?)
    }

    pub(crate) fn transfer(&self, name: &str) -> Outcome<Box<dyn Transfer>> {
        match self.gpu() {
            Some(gpu) => Ok(gpu.transfer(name)?),
            None => Err("a CPU copies nothing to itself".into()),
        }
    }

    /// Copies of blocks on the device, there when this returns.
    pub(crate) fn upload(&self, blocks: &[Block]) -> Outcome<Vec<Block>> {
        let Some(first) = blocks.first() else { return Ok(Vec::new()) };
        if self.gpu().is_none() {
            return Ok(blocks.to_vec());
        }
        let pool = self.pool(blocks.len(), first.format())?;
        let mut transfer = self.transfer("upload")?;
        let mut copies = Vec::with_capacity(blocks.len());
        for block in blocks {
            let mut lease = pool.lease(block.format())?;
            transfer.copy(block, &mut lease)?;
            copies.push(lease.freeze(block.meta));
        }
        copies.iter().for_each(wait);
        Ok(copies)
    }

    /// The values of a block, wherever it lies.
    pub(crate) fn download(&self, block: &Block) -> Outcome<Vec<f32>> {
        if block.kind().is_host() {
            return Ok(block.elements::<f32>()?.to_vec());
        }
        let pool = Pool::new("download", &*self.pinned(), 1, block.format().bytes())?;
        let mut lease = pool.lease(block.format())?;
        self.transfer("download")?.copy(block, &mut lease)?;
        Ok(lease.freeze(block.meta).elements::<f32>()?.to_vec())
    }
}

/// Kinds of nodes that the pipelines are made of.
pub(crate) fn registry() -> Registry {
    let mut registry = Registry::default();
    beamstream_tomo::register(&mut registry);
    crate::stage::register(&mut registry);
    crate::again::register(&mut registry);
    registry
}

/// Waits until a block is written.
pub(crate) fn wait(block: &Block) {
    if let Some(fence) = block.written() {
        fence.wait();
    }
}

/// Leases `count` buffers.
pub(crate) fn leases(pool: &Pool, format: Format, count: usize) -> Outcome<Vec<LeaseMut>> {
    (0..count).map(|_| Ok(pool.lease(format)?)).collect()
}
