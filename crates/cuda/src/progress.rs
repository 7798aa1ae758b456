//! How far a stream has come: marks in it, shared by its fences.
//!
//! Every fence has a position in its stream, 1 and up. Now and then an event, a mark, is recorded behind a fence; a fence
//! is done with the first mark at its position or behind it.
#![allow(unsafe_code, reason = "events are handles of the driver")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUevent_flags, CUresult};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::status::{check, ignore};

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

/// The fences of a stream.
///
/// Who waits for a fence may also wait for what was enqueued after it: for up to `fences_per_mark` fences less one, and
/// for the operation that is being enqueued when a mark is made.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Fences that share a mark: recording and waiting cost the driver some microseconds each.
    fences_per_mark: u64,
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

impl Marks {
    /// The first mark at `position` or behind it.
    fn at(&self, position: u64) -> Option<Mark> {
        let at = self.pending.partition_point(|mark| mark.position < position);
        self.pending.get(at).copied()
    }
}

/// The driver's handle of a stream, with its GPU.
#[derive(Clone, Copy)]
pub(crate) struct StreamHandle<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) stream: sys::CUstream,
}

impl Progress {
    /// Of a new stream.
    pub(crate) fn new(fences_per_mark: u64) -> Self {
        Self { fences_per_mark, reached: AtomicU64::new(0), marks: Mutex::default() }
    }

    /// The position of a new fence, behind all that was enqueued so far.
    pub(crate) fn fence(&self, on: StreamHandle<'_>) -> Result<u64, CudaError> {
        let mut marks = self.lock();
        marks.last += 1;
        if marks.last >= marks.marked + self.fences_per_mark {
            self.mark(&mut marks, on)?;
        }
        Ok(marks.last)
    }

    /// The same with a mark of its own: nobody who waits for it waits for more.
    pub(crate) fn marked_fence(&self, on: StreamHandle<'_>) -> Result<u64, CudaError> {
        let mut marks = self.lock();
        marks.last += 1;
        Ok(self.mark(&mut marks, on)?.position)
    }

    /// Whether the work up to `position` is known to be done, without asking the driver.
    pub(crate) fn has_reached(&self, position: u64) -> bool {
        self.reached.load(Ordering::Acquire) >= position
    }

    /// Whether the work up to `position` is done. A failure counts as done, so that nobody waits for ever.
    pub(crate) fn is_done(&self, position: u64, on: StreamHandle<'_>) -> bool {
        if self.has_reached(position) {
            return true;
        }
        let mut marks = self.lock();
        if self.has_reached(position) {
            return true;
        }
        if let Some(mark) = marks.at(position) {
            return self.settle(&mut marks, mark, on);
        }
        // A new mark would be behind all that was enqueued since, which may be done.
        if let Err(error) = on.gpu.bind() {
            return self.fail(&mut marks, on.gpu, error);
        }
        // SAFETY: the stream lives as long as the caller holds its handle.
        let status = unsafe { sys::cuStreamQuery(on.stream) };
        if status == CUresult::CUDA_ERROR_NOT_READY {
            return self.mark(&mut marks, on).is_err_and(|error| self.fail(&mut marks, on.gpu, error));
        }
        match check(on.gpu.id(), "cuStreamQuery", status) {
            Ok(()) => {
                let last = marks.last;
                self.reach(&mut marks, last, on.gpu);
                true
            }
            Err(error) => self.fail(&mut marks, on.gpu, error),
        }
    }

    /// Lets `waiting` start later work only after `position`; gives the position that it then is behind.
    pub(crate) fn hold_back(
        &self,
        position: u64,
        on: StreamHandle<'_>,
        waiting: sys::CUstream,
    ) -> Result<u64, CudaError> {
        let mut marks = self.lock();
        if self.has_reached(position) {
            return Ok(position);
        }
        let mark = marks.at(position).map_or_else(|| self.mark(&mut marks, on), Ok)?;
        // SAFETY: both handles are alive, and marks stay in use under the lock; a stream may wait for an event of
        // another GPU.
        let status = unsafe { sys::cuStreamWaitEvent(waiting, mark.event.0, 0) };
        check(on.gpu.id(), "cuStreamWaitEvent", status)?;
        Ok(mark.position)
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A mark behind all that was enqueued so far.
    fn mark(&self, marks: &mut Marks, on: StreamHandle<'_>) -> Result<Mark, CudaError> {
        on.gpu.bind()?;
        let event = on.gpu.events().take(on.gpu)?;
        // SAFETY: event and stream belong to the context that is current.
        let status = unsafe { sys::cuEventRecord(event.0, on.stream) };
        let mark = Mark { position: marks.last, event };
        if let Err(error) = check(on.gpu.id(), "cuEventRecord", status) {
            on.gpu.events().lock().push(event);
            return Err(error);
        }
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
    fn settle(&self, marks: &mut Marks, mark: Mark, on: StreamHandle<'_>) -> bool {
        // SAFETY: the event is in use under the lock.
        let status = unsafe { sys::cuEventQuery(mark.event.0) };
        if status == CUresult::CUDA_ERROR_NOT_READY {
            return false;
        }
        if let Err(error) = check(on.gpu.id(), "cuEventQuery", status) {
            return self.fail(marks, on.gpu, error);
        }
        self.reach(marks, mark.position, on.gpu);
        true
    }

    /// Notes that the work up to `position` is done.
    fn reach(&self, marks: &mut Marks, position: u64, gpu: &Gpu) {
        self.reached.fetch_max(position, Ordering::AcqRel);
        let done = marks.pending.partition_point(|mark| mark.position <= position);
        gpu.events().lock().extend(marks.pending.drain(..done).map(|mark| mark.event));
    }

    /// The device is lost: nothing is waited for any more.
    fn fail(&self, marks: &mut Marks, gpu: &Gpu, error: CudaError) -> bool {
        gpu.fail(error);
        self.reach(marks, END, gpu);
        true
    }

    /// Gives the events back; the stream is about to go.
    pub(crate) fn clear(&self, gpu: &Gpu) {
        gpu.events().lock().extend(self.lock().pending.drain(..).map(|mark| mark.event));
    }
}
