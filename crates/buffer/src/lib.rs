//! Buffers whose type is their state: [`Pool`] -> [`LeaseMut`] -> [`Block`] -> pool.
//!
//! A pool is one mapping of memory, cut into equal slots when a run is planned. Nothing is
//! allocated per block afterwards: a block is a slot number, a count and its metadata.

mod device;
mod memory;
mod pool;
mod slots;
mod sync;

pub use device::{DeviceId, Fence, HostStream, ParseDeviceError, Stream};
pub use memory::{Allocator, HostAllocator, Memory, MemoryError, MemoryKind, PAGE_BYTES};
pub use pool::{Block, ElementMismatch, LeaseMut, Pool, PoolError, PoolStats};
