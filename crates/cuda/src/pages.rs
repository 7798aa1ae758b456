//! Anonymous pages of the host, large ones where the system gives them.
#![allow(unsafe_code, reason = "pages are mapped and unmapped here")]

use std::ops::Range;
use std::ptr::NonNull;

/// A private anonymous mapping.
pub(crate) struct Pages {
    base: NonNull<u8>,
    len: usize,
}

impl Pages {
    /// Maps zeroed pages, on a NUMA node if one is given. None of them is resident yet.
    pub(crate) fn map(len: usize, numa_node: Option<u32>) -> std::io::Result<Self> {
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
        let pages = Self { base, len };
        // SAFETY: the range is mapped, and large pages change no contents.
        unsafe { advise(&pages.range(), libc::MADV_HUGEPAGE) };
        if let Some(node) = numa_node {
            pages.prefer(node);
        }
        Ok(pages)
    }

    /// Makes the pages of a part resident. What is written there stays.
    pub(crate) fn populate(&self, part: &Range<usize>) {
        let range = self.range();
        let part = part.start.max(range.start)..part.end.min(range.end);
        // SAFETY: the part is mapped, and making pages resident changes no contents.
        unsafe { advise(&part, libc::MADV_POPULATE_WRITE) };
    }

    /// Asks for pages of one NUMA node; where it has none left, others are taken.
    fn prefer(&self, node: u32) {
        const PREFERRED: libc::c_int = 1;
        let Some(mask) = 1_u64.checked_shl(node) else { return };
        let bits = u64::BITS + 1;
        // SAFETY: `mbind(address, length, mode, mask, bits, flags)`; the range is mapped, the mask has so many bits.
        let _status = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.len.max(1),
                PREFERRED,
                &raw const mask,
                bits,
                0,
            )
        };
    }

    /// The addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.base.as_ptr() as usize;
        start..start + self.len
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Gives the kernel an advice; one that it does not know or cannot follow costs time, no more.
///
/// # Safety
/// The part is mapped, and the advice keeps its contents.
unsafe fn advise(part: &Range<usize>, advice: libc::c_int) {
    if !part.is_empty() {
        // SAFETY: by the promise of the caller.
        let _status = unsafe { libc::madvise(part.start as *mut libc::c_void, part.len(), advice) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping with this size, and nobody holds a reference into it any more.
        let code = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len.max(1)) };
        debug_assert_eq!(code, 0, "munmap of our own mapping");
    }
}

// SAFETY: the mapping is plain memory, owned by this value alone; any thread may use it.
unsafe impl Send for Pages {}
// SAFETY: `&self` gives only the address and the size.
unsafe impl Sync for Pages {}

/// The NUMA node of a PCI device, where the machine has several.
pub(crate) fn numa_node_of(pci_address: &str) -> Option<u32> {
    let path = format!("/sys/bus/pci/devices/{pci_address}/numa_node");
    // Machines with one node say -1.
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_keep_what_is_written_before_they_are_populated() {
        let pages = Pages::map(1 << 20, Some(0)).unwrap();
        // SAFETY: the mapping is ours and has that many bytes.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pages.base().as_ptr(), pages.len()) };
        bytes[70_000] = 9;
        pages.populate(&pages.range());
        assert_eq!(bytes[70_000], 9);
        assert_eq!(bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 9);
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        assert!(Pages::map(usize::MAX / 2, None).is_err());
    }
}
