//! Memory that pools are cut from.
#![allow(unsafe_code, reason = "pages are mapped and unmapped here")]

use std::ptr::NonNull;

use crate::DeviceId;

/// Alignment of every mapping: a page.
pub const PAGE_BYTES: usize = 4096;

/// Which kind of memory a pool lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Ordinary pages of the host.
    Host,
    /// Pages of the host that a GPU can read and write by itself.
    Pinned,
    /// Memory of a device; the host cannot look into it.
    Device(DeviceId),
}

impl MemoryKind {
    /// Whether the host can read and write the bytes.
    pub const fn is_host(self) -> bool {
        matches!(self, Self::Host | Self::Pinned)
    }
}

impl std::fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Pinned => f.write_str("pinned host"),
            Self::Device(device) => write!(f, "{device}"),
        }
    }
}

/// Memory could not be had.
#[derive(Debug, thiserror::Error)]
#[error("{bytes} bytes of {kind} memory could not be allocated")]
pub struct MemoryError {
    /// What was asked for.
    pub bytes: usize,
    /// The kind of memory.
    pub kind: MemoryKind,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// One piece of memory, freed when it is dropped.
///
/// # Safety
/// `base` points to `len` bytes that stay valid, unmoved and used by nobody else until `self` is
/// dropped; for kinds with [`MemoryKind::is_host`] they are initialised and the host may access them.
pub unsafe trait Memory: Send + Sync {
    /// The kind of memory.
    fn kind(&self) -> MemoryKind;
    /// Address of the first byte, on the device that owns it.
    fn base(&self) -> NonNull<u8>;
    /// Size in bytes.
    fn len(&self) -> usize;
    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Gives memory of one kind.
pub trait Allocator: Send + Sync {
    /// The kind of memory that it gives.
    fn kind(&self) -> MemoryKind;

    /// Allocates `bytes`, aligned to a page.
    ///
    /// # Errors
    /// [`MemoryError`] if the system refuses.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, MemoryError>;
}

/// Gives ordinary host memory. Pages count as resident only once they were written.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostAllocator;

impl Allocator for HostAllocator {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, MemoryError> {
        HostPages::map(bytes).map(|pages| Box::new(pages) as Box<dyn Memory>).map_err(|source| MemoryError {
            bytes,
            kind: MemoryKind::Host,
            source,
        })
    }
}

/// An anonymous private mapping.
struct HostPages {
    base: NonNull<u8>,
    len: usize,
}

impl HostPages {
    fn map(len: usize) -> std::io::Result<Self> {
        let mapped = len.max(1);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(std::io::Error::last_os_error)?;
        Ok(Self { base, len })
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping with this size, and nobody holds a reference into it any more.
        let code = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len.max(1)) };
        debug_assert_eq!(code, 0, "munmap of our own mapping");
    }
}

// SAFETY: the mapping is plain memory, owned by this value alone; any thread may use it.
unsafe impl Send for HostPages {}
// SAFETY: `&self` gives only the address and the size.
unsafe impl Sync for HostPages {}

// SAFETY: a private anonymous mapping is zeroed, never moves and lives until `drop`.
unsafe impl Memory for HostPages {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_page_aligned() {
        for bytes in [0, 1, 4097, 1 << 20] {
            let memory = HostAllocator.allocate(bytes).unwrap();
            assert_eq!(memory.len(), bytes);
            assert_eq!(memory.base().as_ptr() as usize % PAGE_BYTES, 0);
        }
    }

    #[test]
    fn absurd_sizes_are_refused_with_their_size() {
        let Err(error) = HostAllocator.allocate(usize::MAX / 2) else {
            panic!("half the address space was mapped")
        };
        assert!(error.to_string().contains(&(usize::MAX / 2).to_string()));
    }
}
