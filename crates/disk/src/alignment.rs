//! What a file system asks of reads around the page cache.
#![allow(unsafe_code, reason = "statx has no safe wrapper in the standard library")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// Enough for every disk, where the kernel does not say.
const USUAL_BYTES: usize = 4096;

/// The multiple in bytes that offset, length and address must be of; `None` if the file system reads through the page
/// cache only.
pub(crate) fn direct_alignment(file: &File) -> Option<usize> {
    // SAFETY: `statx` is plain integers, for which zeros are valid.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the path is an empty C string as `AT_EMPTY_PATH` wants, `found` is ours.
    let code = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut found)
    };
    if code != 0 || found.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Some(USUAL_BYTES);
    }
    let bytes = found.stx_dio_mem_align.max(found.stx_dio_offset_align) as usize;
    bytes.is_power_of_two().then_some(bytes)
}
