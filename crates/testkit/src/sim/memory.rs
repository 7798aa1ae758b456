//! Memory of a simulated device: pages of the host that say they are none.
#![allow(unsafe_code, reason = "what gives memory to pools promises how long it stays")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use beamstream_buffer::{Allocator, Memory, MemoryError, MemoryKind, PAGE_BYTES};

use super::core::Core;

/// Gives device or pinned memory.
pub(super) struct SimAllocator {
    pub(super) kind: MemoryKind,
    pub(super) core: Arc<Core>,
}

impl Allocator for SimAllocator {
    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, MemoryError> {
        let kind = self.kind;
        let fail = |source| MemoryError { bytes, kind, source };
        self.core.call("allocate").map_err(|error| fail(std::io::Error::other(error)))?;
        let out_of_memory = || fail(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        if !kind.is_host() && !self.core.take_bytes(bytes as u64) {
            return Err(out_of_memory());
        }
        let pages = Arc::new(Pages::new(bytes).ok_or_else(out_of_memory)?);
        self.core.keep(pages.clone());
        Ok(Box::new(SimMemory { pages, len: bytes, kind, core: self.core.clone() }))
    }
}

/// Pages of the host.
pub(super) struct Pages {
    base: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).ok()?;
        // SAFETY: the size of the layout is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        NonNull::new(base).map(|base| Self { base, layout })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and nobody holds it any more.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

// SAFETY: plain memory, which any thread may use.
unsafe impl Send for Pages {}
// SAFETY: `&self` gives only the address.
unsafe impl Sync for Pages {}

struct SimMemory {
    pages: Arc<Pages>,
    len: usize,
    kind: MemoryKind,
    core: Arc<Core>,
}

impl Drop for SimMemory {
    fn drop(&mut self) {
        if !self.kind.is_host() {
            self.core.give_bytes(self.len as u64);
        }
    }
}

// SAFETY: zeroed pages, which never move and which the device keeps as long as itself.
unsafe impl Memory for SimMemory {
    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn base(&self) -> NonNull<u8> {
        self.pages.base
    }

    fn len(&self) -> usize {
        self.len
    }
}
