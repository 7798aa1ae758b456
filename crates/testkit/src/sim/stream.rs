//! Streams of a simulated device: threads that work off what is enqueued, late.
#![allow(unsafe_code, reason = "a device reads and writes blocks by their addresses")]

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use beamstream_buffer::{Block, Fence, LeaseMut, MemoryKind, Pool};
use beamstream_core::{BlockMeta, Format, FrameId, Role};
use beamstream_ops::OpError;

use super::core::{Core, lock};

/// Work that can be enqueued before the host has to wait, as on a GPU.
const MOST_JOBS: usize = 1024;

/// Done when its stream has come so far.
#[derive(Debug, Default)]
pub(super) struct SimFence {
    done: Mutex<bool>,
    told: Condvar,
}

impl SimFence {
    fn tell(&self) {
        *lock(&self.done) = true;
        self.told.notify_all();
    }
}

impl Fence for SimFence {
    fn is_done(&self) -> bool {
        *lock(&self.done)
    }

    fn wait(&self) {
        let waited = self.told.wait_while(lock(&self.done), |done| !*done);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

enum Job {
    Wait(Arc<dyn Fence>),
    Work(Box<dyn FnOnce() -> Result<(), OpError> + Send>),
    Tell(Arc<SimFence>),
}

/// A queue of work with a thread that does it.
pub(super) struct SimStream {
    pub(super) core: Arc<Core>,
    jobs: SyncSender<Job>,
}

impl SimStream {
    pub(super) fn new(core: &Arc<Core>, node: &str) -> Self {
        let (jobs, queue) = sync_channel::<Job>(MOST_JOBS);
        let shared = core.clone();
        let name = node.to_owned();
        thread::spawn(move || {
            for job in queue {
                shared.dawdle();
                match job {
                    Job::Wait(fence) => fence.wait(),
                    Job::Tell(fence) => fence.tell(),
                    Job::Work(work) => {
                        let began = Instant::now();
                        if let Err(error) = work() {
                            shared.misused(format!("{name}: {error}"));
                        }
                        shared.worked(&name, began);
                    }
                }
            }
        });
        Self { core: core.clone(), jobs }
    }

    /// Enqueues work that touches no block.
    pub(super) fn enqueue(&self, work: impl FnOnce() -> Result<(), OpError> + Send + 'static) {
        self.send(Job::Work(Box::new(work)));
    }

    /// Enqueues work behind those who write `reads` and those who read what was in `writes`, with a fence behind it.
    pub(super) fn enqueue_on(
        &self,
        reads: &[&Block],
        writes: &mut [&mut LeaseMut],
        work: impl FnOnce(&[Place], &[Place]) -> Result<(), OpError> + Send + 'static,
    ) -> Result<(), OpError> {
        let kinds = reads.iter().map(|block| block.kind()).chain(writes.iter().map(|lease| lease.kind()));
        if kinds.into_iter().any(|kind| kind == MemoryKind::Host) {
            let cause = "it cannot reach ordinary host memory".to_owned();
            return Err(OpError::Device { device: self.core.id, cause });
        }
        let earlier = writes.iter().flat_map(|lease| lease.earlier_readers());
        for fence in reads.iter().filter_map(|block| block.written().cloned()).chain(earlier) {
            self.send(Job::Wait(fence));
        }
        let from: Vec<Place> =
            reads.iter().map(|block| Place::new(block.base().as_ptr(), block.format())).collect();
        let to: Vec<Place> =
            writes.iter().map(|lease| Place::new(lease.base().as_ptr(), lease.format())).collect();
        self.enqueue(move || work(&from, &to));
        let fence = Arc::new(SimFence::default());
        self.send(Job::Tell(fence.clone()));
        for block in reads {
            block.read_by(Some(fence.clone()));
        }
        for lease in writes {
            lease.written_by(Some(fence.clone()));
        }
        Ok(())
    }

    /// Waits until all that was enqueued is done.
    pub(super) fn wait(&self) {
        let fence = Arc::new(SimFence::default());
        self.send(Job::Tell(fence.clone()));
        fence.wait();
    }

    fn send(&self, job: Job) {
        // The thread lives as long as this sender.
        drop(self.jobs.send(job));
    }
}

/// Where a block lies. It holds no share of the buffer, so that only fences protect it, as on a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    address: usize,
    pub(super) format: Format,
}

impl Place {
    fn new(address: *mut u8, format: Format) -> Self {
        Self { address: address as usize, format }
    }

    /// Copies the bytes to another place of the same format.
    pub(super) fn copy_to(&self, to: &Self) {
        let (from, to) = (self.address as *const u8, to.address as *mut u8);
        // SAFETY: both are whole buffers of pools whose memory the device keeps; two pools do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, self.format.bytes()) };
    }

    /// The block as one that the host can read.
    pub(super) fn load(&self) -> Result<Block, OpError> {
        let mut lease = host_lease(self.format)?;
        let to = lease.bytes_mut();
        // SAFETY: as in `copy_to`; `to` has as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.address as *const u8, to.as_mut_ptr(), to.len()) };
        Ok(lease.freeze(BlockMeta::new(FrameId::new(0), Role::Projection)))
    }

    /// Writes the bytes of a block of the host.
    pub(super) fn store(&self, mut lease: LeaseMut) {
        let from = lease.bytes_mut();
        // SAFETY: as in `copy_to`; `from` has the format of this place.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.address as *mut u8, from.len()) };
    }
}

/// A buffer of the host for a block of `format`.
pub(super) fn host_lease(format: Format) -> Result<LeaseMut, OpError> {
    Pool::host("staging", 1, format.bytes()).and_then(|pool| pool.lease(format)).map_err(|error| {
        OpError::Device { device: beamstream_buffer::DeviceId::Cpu, cause: error.to_string() }
    })
}
