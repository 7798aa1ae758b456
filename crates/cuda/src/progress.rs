//! How far a stream has come: marks in it, shared by its fences.
#![allow(unsafe_code, reason = "events are handles of the driver")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUevent_flags, CUresult};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::status::{check, ignore};

/// A fence shares its mark with the fences after it, up to so many: recording and waiting cost the driver some
/// microseconds each, as much as it takes to start a kernel.
///
/// Who waits for a fence may wait for so many operations less one that were enqueued after it.
const FENCES_PER_MARK: u64 = 8;
/// The position after all positions.
const END: u64 = u64::MAX;

/// An event handle; any thread may use it.
#[derive(Debug, Clone, Copy)]
struct RawEvent(sys::CUevent);

// SAFETY: events may be used from any thread, the driver locks.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Sync for RawEvent {}

/// Events of a GPU that are not in use, so that a mark costs no event of its own.
///
/// An event may be recorded anew while streams still wait for its earlier record: they wait for what it
/// was when they were told to.
#[derive(Debug, Default)]
pub(crate) struct EventPool {
    unused: Mutex<Vec<RawEvent>>,
}

impl EventPool {
    fn lock(&self) -> MutexGuard<'_, Vec<RawEvent>> {
        self.unused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event of the GPU whose context is current.
    fn take(&self, gpu: &Gpu) -> Result<RawEvent, CudaError> {
        if let Some(event) = self.lock().pop() {
            return Ok(event);
        }
        // Without a time stamp recording is cheaper.
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current; it stores one handle.
        let status = unsafe { sys::cuEventCreate(&raw mut event, flags) };
        check(gpu.id(), "cuEventCreate", status)?;
        Ok(RawEvent(event))
    }

    /// Frees the events; the context is current and no stream is left.
    pub(crate) fn clear(&self) {
        for event in self.lock().drain(..) {
            // SAFETY: the event is ours, and nobody else has the handle.
            ignore(unsafe { sys::cuEventDestroy_v2(event.0) });
        }
    }
}

/// An event that was recorded behind the fences up to a position.
#[derive(Debug, Clone, Copy)]
struct Mark {
    position: u64,
    event: RawEvent,
}

/// Fences of a stream have positions, 1 and up; now and then an event marks one. A fence is done with the first mark at
/// its position or behind it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The work up to this position is known to be done.
    reached: AtomicU64,
    marks: Mutex<Marks>,
}

#[derive(Debug, Default)]
struct Marks {
    /// Position of the last fence.
    last: u64,
    /// In the order of their positions; those that are done may still be among them.
    pending: VecDeque<Mark>,
    /// Position of the last mark, also when it is gone.
    marked: u64,
}

/// A stream of the driver with its GPU.
#[derive(Clone, Copy)]
pub(crate) struct Recorded<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) stream: sys::CUstream,
}

impl Progress {
    /// The position of a new fence, behind all that was enqueued so far.
    pub(crate) fn fence(&self, on: Recorded<'_>) -> Result<u64, CudaError> {
        let mut marks = self.lock();
        marks.last += 1;
        if marks.last >= marks.marked + FENCES_PER_MARK {
            self.mark(&mut marks, on)?;
        }
        Ok(marks.last)
    }

    /// Whether the work up to `position` is known to be done, without asking the driver.
    pub(crate) fn has_reached(&self, position: u64) -> bool {
        self.reached.load(Ordering::Acquire) >= position
    }

    /// Whether the work up to `position` is done. A failure counts as done, so that nobody waits for ever.
    pub(crate) fn ask(&self, position: u64, on: Recorded<'_>) -> bool {
        if self.has_reached(position) {
            return true;
        }
        let mut marks = self.lock();
        let found = self.mark_at(&mut marks, position, on).map(|mark| self.settle(&mut marks, mark, on));
        found.unwrap_or_else(|error| self.fail(on.gpu, error))
    }

    /// Lets `waiting` start later work only after `position`; gives the position that it then is behind.
    pub(crate) fn hold_back(
        &self,
        position: u64,
        on: Recorded<'_>,
        waiting: sys::CUstream,
    ) -> Result<u64, CudaError> {
        let mut marks = self.lock();
        let mark = self.mark_at(&mut marks, position, on)?;
        // SAFETY: both handles are alive, and marks stay in use under the lock; a stream may wait for an event of
        // another GPU.
        let status = unsafe { sys::cuStreamWaitEvent(waiting, mark.event.0, 0) };
        check(on.gpu.id(), "cuStreamWaitEvent", status)?;
        Ok(mark.position)
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first mark at `position` or behind it; made behind all that was enqueued so far if there is none yet.
    fn mark_at(&self, marks: &mut Marks, position: u64, on: Recorded<'_>) -> Result<Mark, CudaError> {
        let at = marks.pending.partition_point(|mark| mark.position < position);
        match marks.pending.get(at) {
            Some(mark) => Ok(*mark),
            None => self.mark(marks, on),
        }
    }

    fn mark(&self, marks: &mut Marks, on: Recorded<'_>) -> Result<Mark, CudaError> {
        on.gpu.bind()?;
        let event = on.gpu.events().take(on.gpu)?;
        // SAFETY: event and stream belong to the context that is current.
        let status = unsafe { sys::cuEventRecord(event.0, on.stream) };
        let mark = Mark { position: marks.last, event };
        check(on.gpu.id(), "cuEventRecord", status)?;
        marks.pending.push_back(mark);
        marks.marked = mark.position;
        // Where nobody asks, those that are done would pile up.
        while let Some(first) = marks.pending.front().copied()
            && first.position < mark.position
            && self.settle(marks, first, on)
        {}
        Ok(mark)
    }

    /// Takes note of whether a mark is done; if so, it and those before it are free.
    fn settle(&self, marks: &mut Marks, mark: Mark, on: Recorded<'_>) -> bool {
        // SAFETY: the event is in use under the lock.
        let status = unsafe { sys::cuEventQuery(mark.event.0) };
        if status == CUresult::CUDA_ERROR_NOT_READY {
            return false;
        }
        if let Err(error) = check(on.gpu.id(), "cuEventQuery", status) {
            return self.fail(on.gpu, error);
        }
        self.reached.fetch_max(mark.position, Ordering::AcqRel);
        let done = marks.pending.partition_point(|other| other.position <= mark.position);
        on.gpu.events().lock().extend(marks.pending.drain(..done).map(|mark| mark.event));
        true
    }

    fn fail(&self, gpu: &Gpu, error: CudaError) -> bool {
        gpu.fail(error);
        self.reached.store(END, Ordering::Release);
        true
    }

    /// Gives the events back; the stream is about to go.
    pub(crate) fn clear(&self, gpu: &Gpu) {
        gpu.events().lock().extend(self.lock().pending.drain(..).map(|mark| mark.event));
    }
}
