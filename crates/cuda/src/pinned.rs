//! Host memory that GPUs read and write by themselves.
#![allow(unsafe_code, reason = "pages are mapped and pinned here")]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use beamstream_buffer::{Allocator, Memory, MemoryError, MemoryKind};
use cudarc::driver::sys;

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::pages::Pages;
use crate::status::{check, ignore};

/// Pages are pinned in pieces that end at multiples of this address; the driver refuses a copy that crosses such a
/// border. Smaller pieces pin no faster, and larger ones are shared out less evenly.
pub(crate) const PIECE_BYTES: usize = 64 * 1024 * 1024;

/// Threads that pin the pieces of a memory.
///
/// Making the pages resident takes the time, not pinning them. Seconds a GiB on an H200's host of 16 processors:
/// `cuMemHostAlloc` 0.36; small pages made resident by 1 or 8 threads 0.30 or 0.12, large pages 0.14 or 0.07; pinning
/// them 0.03 (small) or 0.02 (large), by however many threads. Both together in pieces of 256 MiB 0.06, of 64 MiB by
/// 4, 8 or 16 threads 0.065, 0.045 or 0.041. All of them are copied from and to at 55 GB/s.
const PINNING_THREADS: usize = 8;

/// Gives pinned host memory, near its GPU and usable by all.
#[derive(Debug, Clone)]
pub struct PinnedAllocator {
    gpu: Arc<Gpu>,
}

impl PinnedAllocator {
    /// Host memory on the side of `gpu`.
    pub fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: gpu.clone() }
    }
}

impl Allocator for PinnedAllocator {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Pinned
    }

    /// The host may use the memory at once. Its first piece is pinned when this returns, the others are pinned
    /// in the background, and whoever copies from or to one of them waits for it.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, MemoryError> {
        let fail = |source| MemoryError { bytes, kind: MemoryKind::Pinned, source };
        let pages = Pages::map(bytes, self.gpu.numa_node()).map_err(fail)?;
        let region = Arc::new(Region::new(self.gpu.clone(), pages));
        if bytes > 0 {
            region.pin(0).map_err(|error| fail(std::io::Error::other(error)))?;
        }
        registry().push(region.clone());
        let workers = region.pieces.len().saturating_sub(1).min(PINNING_THREADS);
        let start = |_| {
            let region = region.clone();
            std::thread::Builder::new().name("pin".to_owned()).spawn(move || region.pin_all()).ok()
        };
        let workers: Vec<JoinHandle<()>> = (0..workers).filter_map(start).collect();
        if workers.is_empty() {
            region.pin_all();
        }
        Ok(Box::new(PinnedMemory { region, workers }))
    }
}

/// Memory in use, to find the region of an address.
fn registry() -> MutexGuard<'static, Vec<Arc<Region>>> {
    static REGIONS: Mutex<Vec<Arc<Region>>> = Mutex::new(Vec::new());
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the bytes from `address` on are pinned; memory that is none of ours counts as pinned.
pub(crate) fn wait_until_pinned(address: usize, bytes: usize) -> Result<(), CudaError> {
    let region = registry().iter().find(|region| region.pages.range().contains(&address)).cloned();
    region.map_or(Ok(()), |region| region.wait(address..address + bytes))
}

/// How far a piece is.
#[derive(Debug, Clone)]
enum Piece {
    Waiting,
    Pinned,
    Failed(CudaError),
}

/// Mapped pages, and which of them are pinned.
struct Region {
    gpu: Arc<Gpu>,
    pages: Pages,
    pieces: Vec<Range<usize>>,
    states: Mutex<Vec<Piece>>,
    changed: Condvar,
    /// Next piece that no worker has taken.
    next: AtomicUsize,
    /// All pieces are pinned: nobody has to look.
    complete: AtomicBool,
    cancelled: AtomicBool,
}

impl Region {
    fn new(gpu: Arc<Gpu>, pages: Pages) -> Self {
        let pieces = pieces(pages.range());
        let states = Mutex::new(vec![Piece::Waiting; pieces.len()]);
        Self {
            gpu,
            pages,
            pieces,
            states,
            changed: Condvar::new(),
            next: AtomicUsize::new(1),
            complete: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Piece>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pin_all(&self) {
        while !self.cancelled.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            // Who needs the piece is told of a failure; the others may still be pinned.
            if number >= self.pieces.len() {
                return;
            }
            let _told_by_the_state = self.pin(number).is_ok();
        }
    }

    fn pin(&self, number: usize) -> Result<(), CudaError> {
        let result = self.register(&self.pieces[number]);
        let mut states = self.lock();
        states[number] = result.clone().map_or_else(Piece::Failed, |()| Piece::Pinned);
        let complete = states.iter().all(|state| matches!(state, Piece::Pinned));
        self.complete.store(complete, Ordering::Release);
        self.changed.notify_all();
        result
    }

    fn register(&self, piece: &Range<usize>) -> Result<(), CudaError> {
        self.pages.populate(piece);
        self.gpu.bind()?;
        let (address, bytes) = (piece.start as *mut c_void, piece.len());
        // SAFETY: the pages are mapped and stay so until `drop` has unregistered them.
        let status = unsafe { sys::cuMemHostRegister_v2(address, bytes, sys::CU_MEMHOSTREGISTER_PORTABLE) };
        check(self.gpu.id(), "cuMemHostRegister", status).map_err(|error| CudaError::Pinning {
            device: self.gpu.id(),
            bytes,
            cause: error.to_string(),
        })
    }

    /// Waits for the pieces that `bytes` lie in.
    fn wait(&self, bytes: Range<usize>) -> Result<(), CudaError> {
        if self.complete.load(Ordering::Acquire) {
            return Ok(());
        }
        let touched = |piece: &Range<usize>| piece.start < bytes.end && bytes.start < piece.end;
        let mut states = self.lock();
        for number in (0..self.pieces.len()).filter(|number| touched(&self.pieces[*number])) {
            loop {
                match &states[number] {
                    Piece::Pinned => break,
                    Piece::Failed(error) => return Err(error.clone()),
                    Piece::Waiting => {
                        states = self.changed.wait(states).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The parts of a range of addresses between multiples of [`PIECE_BYTES`].
pub(crate) fn pieces(range: Range<usize>) -> Vec<Range<usize>> {
    let border = |address: usize| (address / PIECE_BYTES + 1) * PIECE_BYTES;
    let starts = std::iter::successors(Some(range.start), |start| Some(border(*start)));
    starts.take_while(|start| *start < range.end).map(|start| start..border(start).min(range.end)).collect()
}

/// Pinned memory that is unpinned and unmapped when it is dropped.
struct PinnedMemory {
    region: Arc<Region>,
    workers: Vec<JoinHandle<()>>,
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        self.region.cancelled.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // One that panicked has pinned less: its pieces are not unregistered below.
            let _ended = worker.join().is_ok();
        }
        registry().retain(|region| !Arc::ptr_eq(region, &self.region));
        // A copy may still be under way to a buffer that was dropped.
        crate::gpu::synchronize_all();
        let states = self.region.lock().clone();
        for (piece, state) in self.region.pieces.iter().zip(states) {
            if matches!(state, Piece::Pinned) && self.region.gpu.bind().is_ok() {
                // SAFETY: `register` registered this piece, and no copy uses it any more.
                ignore(unsafe { sys::cuMemHostUnregister(piece.start as *mut c_void) });
            }
        }
    }
}

// SAFETY: the pages are private and zeroed, never move, and live as long as the region that `self` holds.
unsafe impl Memory for PinnedMemory {
    fn kind(&self) -> MemoryKind {
        MemoryKind::Pinned
    }

    fn base(&self) -> NonNull<u8> {
        self.region.pages.base()
    }

    fn len(&self) -> usize {
        self.region.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_at_multiples_of_their_size() {
        assert_eq!(pieces(4096..8192), vec![4096..8192; 1]);
        let (first, last) = (PIECE_BYTES - 4096, 2 * PIECE_BYTES + 1);
        let expected = [first..PIECE_BYTES, PIECE_BYTES..2 * PIECE_BYTES, 2 * PIECE_BYTES..last];
        assert_eq!(pieces(first..last), expected);
        assert!(pieces(5..5).is_empty());
    }
}
