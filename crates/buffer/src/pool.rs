//! Pools, leases and blocks.
#![allow(unsafe_code, reason = "a pool hands out disjoint parts of one mapping")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use beamstream_core::{BlockMeta, Element, ElementType, Format};
use bytemuck::Pod;
use bytes::Bytes;

use crate::Fence;
use crate::memory::{Allocator, HostAllocator, Memory, MemoryError, MemoryKind, PAGE_BYTES};
use crate::slots::{Next, Slots};

/// Slots of at least this size begin on a page of their own; smaller ones on a cache line.
const LARGE_BYTES: usize = 64 * 1024;
/// Alignment of small slots: a cache line, and the widest vector register.
const CACHE_LINE_BYTES: usize = 64;

/// Why a pool gave no buffer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The run ends.
    #[error("the pool '{pool}' is closed because the run ends")]
    Closed {
        /// Name of the pool.
        pool: String,
    },
    /// The pool was cut for smaller blocks.
    #[error(
        "a block of {bytes} bytes does not fit the buffers of pool '{pool}', which have {slot_bytes} bytes"
    )]
    TooLarge {
        /// Name of the pool.
        pool: String,
        /// Size of the block.
        bytes: usize,
        /// Size of a buffer of the pool.
        slot_bytes: usize,
    },
    /// There is no memory for the pool.
    #[error("pool '{pool}' of {slots} buffers cannot be set up")]
    Memory {
        /// Name of the pool.
        pool: String,
        /// Number of buffers.
        slots: usize,
        /// What was refused.
        #[source]
        source: MemoryError,
    },
}

/// A block was read as another element type than it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the block holds {found}, it was read as {expected}")]
pub struct ElementMismatch {
    /// What the reader asked for.
    pub expected: ElementType,
    /// What the block holds.
    pub found: ElementType,
}

/// How a pool is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStats {
    /// Number of buffers.
    pub slots: usize,
    /// Buffers that are free now.
    pub free: usize,
    /// Size of a buffer in bytes.
    pub slot_bytes: usize,
    /// Nanoseconds that threads had to wait for a free buffer, all together.
    pub waited_ns: u64,
    /// Nanoseconds that threads had to wait until a device had read a free buffer, all together.
    pub waited_for_device_ns: u64,
}

/// A fixed set of equal buffers, shared by all who hold a clone.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

/// Fences of the readers of one slot.
type Readers = Mutex<Vec<Arc<dyn Fence>>>;

struct Inner {
    name: String,
    memory: Box<dyn Memory>,
    slot_bytes: usize,
    stride: usize,
    slots: Slots,
    /// Readers on a device that may still be at work when the last share is dropped, per slot.
    readers: Box<[Readers]>,
    waited_ns: AtomicU64,
    waited_for_device_ns: AtomicU64,
}

impl Drop for Inner {
    /// The memory goes only when no device reads or writes it any more.
    fn drop(&mut self) {
        for readers in &mut self.readers {
            for fence in readers.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
                fence.wait();
            }
        }
    }
}

impl Pool {
    /// Cuts `slots` buffers of `slot_bytes` from one piece of memory.
    ///
    /// # Errors
    /// [`PoolError::Memory`] if there is not that much of it.
    pub fn new(
        name: &str,
        allocator: &dyn Allocator,
        slots: usize,
        slot_bytes: usize,
    ) -> Result<Self, PoolError> {
        let fail = |source| PoolError::Memory { pool: name.to_owned(), slots, source };
        let stride = Self::stride(slot_bytes);
        let too_much = || MemoryError {
            bytes: usize::MAX,
            kind: allocator.kind(),
            source: std::io::Error::from(std::io::ErrorKind::OutOfMemory),
        };
        let count = u32::try_from(slots).map_err(|_overflow| fail(too_much()))?;
        let bytes = slots.checked_mul(stride).ok_or_else(|| fail(too_much()))?;
        let memory = allocator.allocate(bytes).map_err(fail)?;
        let next = if memory.kind() == MemoryKind::Host { Next::Newest } else { Next::Oldest };
        let inner = Inner {
            name: name.to_owned(),
            memory,
            slot_bytes,
            stride,
            slots: Slots::new(count, next),
            readers: (0..slots).map(|_| Mutex::new(Vec::new())).collect(),
            waited_ns: AtomicU64::new(0),
            waited_for_device_ns: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A pool in ordinary host memory.
    ///
    /// # Errors
    /// [`PoolError::Memory`] if there is not that much of it.
    pub fn host(name: &str, slots: usize, slot_bytes: usize) -> Result<Self, PoolError> {
        Self::new(name, &HostAllocator, slots, slot_bytes)
    }

    /// Distance between two buffers of `slot_bytes`, in bytes: what one buffer costs.
    pub const fn stride(slot_bytes: usize) -> usize {
        let align = if slot_bytes >= LARGE_BYTES { PAGE_BYTES } else { CACHE_LINE_BYTES };
        let bytes = if slot_bytes == 0 { 1 } else { slot_bytes };
        bytes.div_ceil(align).saturating_mul(align)
    }

    /// Takes a buffer for a block of `format`; waits until one is free.
    ///
    /// The bytes are those of an earlier block: write every one of them.
    ///
    /// # Errors
    /// [`PoolError::TooLarge`], or [`PoolError::Closed`] when the run ends.
    pub fn lease(&self, format: Format) -> Result<LeaseMut, PoolError> {
        self.check_size(format)?;
        let (slot, waited_since) = self.inner.slots.take().map_err(|_closed| self.closed())?;
        if let Some(since) = waited_since {
            self.inner.waited_ns.fetch_add(nanos_since(since), Ordering::Relaxed);
        }
        Ok(self.own(slot, format))
    }

    /// Takes a buffer if one is free.
    ///
    /// # Errors
    /// As [`Self::lease`].
    pub fn try_lease(&self, format: Format) -> Result<Option<LeaseMut>, PoolError> {
        self.check_size(format)?;
        let slot = self.inner.slots.try_take().map_err(|_closed| self.closed())?;
        Ok(slot.map(|slot| self.own(slot, format)))
    }

    /// Ends the pool: whoever waits for a buffer gets [`PoolError::Closed`]. Blocks that are out stay valid.
    pub fn close(&self) {
        self.inner.slots.close();
    }

    /// Name of the pool, for errors and metrics.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Size of a buffer in bytes.
    pub fn slot_bytes(&self) -> usize {
        self.inner.slot_bytes
    }

    /// The kind of memory that the buffers lie in.
    pub fn kind(&self) -> MemoryKind {
        self.inner.memory.kind()
    }

    /// How the pool is used.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            slots: self.inner.readers.len(),
            free: self.inner.slots.free(),
            slot_bytes: self.inner.slot_bytes,
            waited_ns: self.inner.waited_ns.load(Ordering::Relaxed),
            waited_for_device_ns: self.inner.waited_for_device_ns.load(Ordering::Relaxed),
        }
    }

    fn check_size(&self, format: Format) -> Result<(), PoolError> {
        match format.checked_bytes() {
            Some(bytes) if bytes <= self.inner.slot_bytes => Ok(()),
            bytes => Err(PoolError::TooLarge {
                pool: self.inner.name.clone(),
                bytes: bytes.unwrap_or(usize::MAX),
                slot_bytes: self.inner.slot_bytes,
            }),
        }
    }

    fn closed(&self) -> PoolError {
        PoolError::Closed { pool: self.inner.name.clone() }
    }

    fn own(&self, slot: u32, format: Format) -> LeaseMut {
        let share = Share { pool: self.inner.clone(), slot };
        LeaseMut { share, format, written: None, readers_are_done: false }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.inner.name)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Fences of a buffer from which on those that are done are looked for: asking a device takes microseconds.
const MANY_READERS: usize = 8;

/// One share of a slot; dropping it gives the share back.
struct Share {
    pool: Arc<Inner>,
    slot: u32,
}

impl Share {
    fn base(&self) -> NonNull<u8> {
        let offset = self.slot as usize * self.pool.stride;
        // SAFETY: `Pool::new` allocated `slots * stride` bytes, and `slot < slots`.
        unsafe { self.pool.memory.base().add(offset) }
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn Fence>>> {
        self.pool.readers[self.slot as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a fence for which the buffer waits before it is written again.
    fn add_reader(&self, fence: Arc<dyn Fence>) {
        let mut readers = self.readers();
        if readers.len() >= MANY_READERS {
            readers.retain(|reader| !reader.is_done());
        }
        readers.push(fence);
    }

    /// Blocks the calling thread until no device reads or writes the buffer any more.
    fn wait_for_readers(&self) {
        for fence in self.readers().drain(..).filter(|fence| !fence.is_done()) {
            let since = Instant::now();
            fence.wait();
            self.pool.waited_for_device_ns.fetch_add(nanos_since(since), Ordering::Relaxed);
        }
    }
}

fn nanos_since(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Clone for Share {
    fn clone(&self) -> Self {
        self.pool.slots.share(self.slot);
        Self { pool: self.pool.clone(), slot: self.slot }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.slots.release(self.slot);
    }
}

/// A buffer on loan for writing; nobody else sees it.
///
/// Dropping it returns it unused.
pub struct LeaseMut {
    share: Share,
    format: Format,
    written: Option<Arc<dyn Fence>>,
    /// Whether the host has waited for the devices that read the previous block.
    readers_are_done: bool,
}

impl LeaseMut {
    /// What the block will hold.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The kind of memory.
    pub fn kind(&self) -> MemoryKind {
        self.share.pool.memory.kind()
    }

    /// The bytes of the block. Empty for memory that the host cannot see.
    ///
    /// Waits until no device reads the previous block of this buffer; a device that writes the buffer itself waits on
    /// its stream instead, see [`Self::earlier_readers`].
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let is_host = self.kind().is_host();
        if is_host && !self.readers_are_done {
            self.share.wait_for_readers();
            self.readers_are_done = true;
        }
        let len = if is_host { self.format.bytes() } else { 0 };
        // SAFETY: the slot holds at least `format.bytes()` initialised bytes (checked when it was leased), this
        // lease is its only holder, and the borrow of `self` keeps it that way.
        unsafe { std::slice::from_raw_parts_mut(self.share.base().as_ptr(), len) }
    }

    /// The elements of the block.
    ///
    /// # Errors
    /// [`ElementMismatch`] if the block holds another type.
    pub fn elements_mut<T: Element + Pod>(&mut self) -> Result<&mut [T], ElementMismatch> {
        check_element::<T>(self.format)?;
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// Address of the first byte, on the device that owns it.
    pub fn base(&self) -> NonNull<u8> {
        self.share.base()
    }

    /// Says when a device will have written the block.
    pub fn written_by(&mut self, fence: Option<Arc<dyn Fence>>) {
        if let Some(fence) = &fence {
            // Should lease or block be dropped before a device has written it, the buffer still waits for that.
            self.share.add_reader(fence.clone());
            self.readers_are_done = false;
        }
        self.written = fence;
    }

    /// Fences of device readers of the previous block in this buffer: a stream waits for them before it writes.
    pub fn earlier_readers(&self) -> Vec<Arc<dyn Fence>> {
        std::mem::take(&mut *self.share.readers())
    }

    /// Whether a device still reads the previous block of this buffer.
    pub fn is_read(&self) -> bool {
        self.share.readers().iter().any(|reader| !reader.is_done())
    }

    /// Ends the writing: from now on the block can only be read, and shared.
    pub fn freeze(self, meta: BlockMeta) -> Block {
        Block { share: self.share, format: self.format, meta, written: self.written }
    }
}

impl std::fmt::Debug for LeaseMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseMut")
            .field("pool", &self.share.pool.name)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// A block: read only, shared by count, returned to its pool by the last drop.
#[derive(Clone)]
pub struct Block {
    share: Share,
    format: Format,
    /// What travels with the block.
    pub meta: BlockMeta,
    written: Option<Arc<dyn Fence>>,
}

impl Block {
    /// What the block holds.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The kind of memory.
    pub fn kind(&self) -> MemoryKind {
        self.share.pool.memory.kind()
    }

    /// The bytes of the block. Empty for memory that the host cannot see.
    pub fn bytes(&self) -> &[u8] {
        if let Some(fence) = &self.written
            && self.kind().is_host()
        {
            fence.wait();
        }
        let len = if self.kind().is_host() { self.format.bytes() } else { 0 };
        // SAFETY: the slot holds at least `format.bytes()` initialised bytes, and while a `Block` lives nobody
        // writes them: a lease for writing exists only for slots without another share.
        unsafe { std::slice::from_raw_parts(self.share.base().as_ptr(), len) }
    }

    /// The elements of the block.
    ///
    /// # Errors
    /// [`ElementMismatch`] if the block holds another type.
    pub fn elements<T: Element + Pod>(&self) -> Result<&[T], ElementMismatch> {
        check_element::<T>(self.format)?;
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// Address of the first byte, on the device that owns it.
    pub fn base(&self) -> NonNull<u8> {
        self.share.base()
    }

    /// The fence that a reader on a device waits for; `None` if the block is written already.
    pub fn written(&self) -> Option<&Arc<dyn Fence>> {
        self.written.as_ref()
    }

    /// Says that a device reads the block until `fence`: the buffer is not written again before.
    pub fn read_by(&self, fence: Option<Arc<dyn Fence>>) {
        if let Some(fence) = fence {
            self.share.add_reader(fence);
        }
    }

    /// The block as [`Bytes`], without a copy; it goes back to its pool when the last `Bytes` is dropped.
    pub fn into_bytes(self) -> Bytes {
        struct Owner(Block);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                self.0.bytes()
            }
        }
        Bytes::from_owner(Owner(self))
    }

    /// The block for writing in place, if nobody shares it; otherwise it comes back as it was.
    ///
    /// # Errors
    /// The block itself, if it is shared.
    #[allow(clippy::result_large_err, reason = "the block that comes back is what the caller had")]
    pub fn try_into_mut(self) -> Result<LeaseMut, Self> {
        if !self.share.pool.slots.is_unique(self.share.slot) {
            return Err(self);
        }
        let Self { share, format, written, .. } = self;
        Ok(LeaseMut { share, format, written, readers_are_done: false })
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block")
            .field("format", &self.format)
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

fn check_element<T: Element>(format: Format) -> Result<(), ElementMismatch> {
    if format.element == T::TYPE {
        Ok(())
    } else {
        Err(ElementMismatch { expected: T::TYPE, found: format.element })
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests;
