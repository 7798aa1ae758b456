//! Threads with scratch memory of their own.

use std::sync::{Mutex, PoisonError};

use beamstream_ops::ReconError;
use rayon::{ThreadPool, ThreadPoolBuilder};

/// A pool of threads, each with a `T` for intermediate results.
pub(crate) struct Workers<T> {
    pool: ThreadPool,
    scratch: Vec<Mutex<T>>,
}

impl<T: Send> Workers<T> {
    /// Starts `threads` threads, at least one.
    pub(crate) fn new(threads: usize, scratch: impl Fn() -> T) -> Result<Self, ReconError> {
        let threads = threads.max(1);
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("recon-{index}"))
            .build()
            .map_err(|cause| ReconError::Threads { threads, cause: cause.to_string() })?;
        Ok(Self { pool, scratch: (0..threads).map(|_| Mutex::new(scratch())).collect() })
    }

    /// Runs `work` on the pool's threads.
    pub(crate) fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Lends the calling thread its scratch memory. What it holds from before must not matter.
    pub(crate) fn with_scratch<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let index = self.pool.current_thread_index().unwrap_or(0);
        let mut scratch = self.scratch[index].lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut scratch)
    }
}
