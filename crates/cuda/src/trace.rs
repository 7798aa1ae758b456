//! When the work of streams began and ended, for traces. Costs one look at a flag while it is off.
#![allow(unsafe_code, reason = "time stamps are events of the driver")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUevent_flags, CUresult};

use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::status::{check, ignore};
use crate::stream::CudaStream;

/// Pieces of work that are remembered until they are taken; what comes beyond is counted and not remembered.
const MOST_SPANS: usize = 1 << 20;
/// Pieces of work under way at which finished ones are read, so that their events can be used again.
const READ_AT: usize = 1024;
/// How many are looked at each time: all of them would hold up those who enqueue.
const READ_AT_ONCE: usize = 4;
/// The driver tells times as single-precision milliseconds: the reference moves on before they get coarse.
const REFERENCE_SECS: f64 = 1.0;

/// One piece of work on a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The stream: the node.
    pub stream: String,
    /// The kernel, or what was copied.
    pub name: String,
    /// Since the beginning of the trace.
    pub began: Duration,
    /// Since the beginning of the trace.
    pub ended: Duration,
}

/// An event with a time stamp.
#[derive(Debug, Clone, Copy)]
struct Stamp(sys::CUevent);

// SAFETY: events may be used from any thread, the driver locks.
unsafe impl Send for Stamp {}

/// Work whose end has not been read yet.
struct Pending {
    stream: String,
    name: String,
    began: Stamp,
    ended: Stamp,
}

struct State {
    /// A time stamp that has been reached, and its time since the beginning of the trace in seconds.
    reference: Stamp,
    reference_secs: f64,
    pending: VecDeque<Pending>,
    finished: Vec<Span>,
    dropped: u64,
    unused: Vec<Stamp>,
}

/// The recorder of one GPU.
#[derive(Default)]
pub(crate) struct Recorder {
    is_on: AtomicBool,
    state: Mutex<Option<State>>,
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees all events; the context is current.
    pub(crate) fn clear(&self) {
        if let Some(state) = self.lock().take() {
            let pending = state.pending.iter().flat_map(|work| [work.began, work.ended]);
            for stamp in pending.chain(state.unused).chain([state.reference]) {
                // SAFETY: the event is ours, and nobody else has the handle.
                ignore(unsafe { sys::cuEventDestroy_v2(stamp.0) });
            }
        }
    }
}

impl Gpu {
    /// Remembers from now on when each kernel and copy begins and ends, as time since `origin`. Waits for the device.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    pub fn start_trace(self: &std::sync::Arc<Self>, origin: Instant) -> Result<(), CudaError> {
        let stream = CudaStream::new(self, "trace")?;
        let reference = self.new_stamp()?;
        let before = origin.elapsed();
        stamp(&stream, reference)?;
        stream.synchronize()?;
        // The device passed the stamp at some time in between.
        let reference_secs = f64::midpoint(before.as_secs_f64(), origin.elapsed().as_secs_f64());
        self.recorder().clear();
        *self.recorder().lock() = Some(State {
            reference,
            reference_secs,
            pending: VecDeque::new(),
            finished: Vec::new(),
            dropped: 0,
            unused: Vec::new(),
        });
        self.recorder().is_on.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the trace: the work that has ended since it began, and how much was not remembered because it was too much.
    pub fn take_spans(&self) -> (Vec<Span>, u64) {
        self.recorder().is_on.store(false, Ordering::Release);
        match self.recorder().lock().as_mut() {
            Some(state) => {
                state.read_finished(usize::MAX);
                (std::mem::take(&mut state.finished), std::mem::take(&mut state.dropped))
            }
            None => (Vec::new(), 0),
        }
    }

    fn new_stamp(&self) -> Result<Stamp, CudaError> {
        self.bind()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current; it stores one handle.
        let status = unsafe { sys::cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DEFAULT as u32) };
        check(self.id(), "cuEventCreate", status)?;
        Ok(Stamp(event))
    }
}

impl CudaStream {
    /// Runs `enqueue`, which puts one piece of work on the stream, and remembers when that begins and ends.
    pub(crate) fn traced<R>(
        &self,
        name: &str,
        enqueue: impl FnOnce() -> Result<R, CudaError>,
    ) -> Result<R, CudaError> {
        let recorder = self.gpu().recorder();
        if !recorder.is_on.load(Ordering::Acquire) {
            return enqueue();
        }
        let began = self.take_stamp()?;
        stamp(self, began)?;
        let result = enqueue();
        let ended = self.take_stamp()?;
        stamp(self, ended)?;
        if let Some(state) = recorder.lock().as_mut() {
            let (stream, name) = (self.name().to_owned(), name.to_owned());
            state.pending.push_back(Pending { stream, name, began, ended });
            if state.pending.len() >= READ_AT {
                state.read_finished(READ_AT_ONCE);
            }
        }
        result
    }

    fn take_stamp(&self) -> Result<Stamp, CudaError> {
        let unused = self.gpu().recorder().lock().as_mut().and_then(|state| state.unused.pop());
        unused.map_or_else(|| self.gpu().new_stamp(), Ok)
    }
}

fn stamp(stream: &CudaStream, stamp: Stamp) -> Result<(), CudaError> {
    stream.gpu().bind()?;
    // SAFETY: event and stream belong to the context that is current.
    let status = unsafe { sys::cuEventRecord(stamp.0, stream.raw()) };
    check(stream.gpu().id(), "cuEventRecord", status)
}

impl State {
    /// Looks at the oldest pieces of work, `most` of them, and reads the times of those that have ended.
    fn read_finished(&mut self, most: usize) {
        // Streams end in no common order: one that has not ended goes to the end of the queue.
        for _ in 0..self.pending.len().min(most) {
            let Some(work) = self.pending.pop_front() else { return };
            let times = self.secs(work.began).zip(self.secs(work.ended));
            let Some((began, ended)) = times else {
                self.pending.push_back(work);
                continue;
            };
            if self.finished.len() < MOST_SPANS {
                let since = |secs: f64| Duration::from_secs_f64(secs.max(0.0));
                let (began, ended) = (since(began), since(ended));
                self.finished.push(Span { stream: work.stream, name: work.name, began, ended });
            } else {
                self.dropped += 1;
            }
            self.unused.push(work.began);
            if ended - self.reference_secs > REFERENCE_SECS {
                self.unused.push(std::mem::replace(&mut self.reference, work.ended));
                self.reference_secs = ended;
            } else {
                self.unused.push(work.ended);
            }
        }
    }

    /// The time of a stamp since the beginning of the trace; `None` if it has not been reached.
    fn secs(&self, stamp: Stamp) -> Option<f64> {
        let mut milliseconds = 0.0_f32;
        // SAFETY: both events are alive and have been recorded.
        let status = unsafe { elapsed(&raw mut milliseconds, self.reference.0, stamp.0) };
        (status == CUresult::CUDA_SUCCESS).then(|| self.reference_secs + f64::from(milliseconds) / 1e3)
    }
}

/// `cuEventElapsedTime` as drivers have it since the first; the bindings call its second version, which is younger
/// than our oldest driver.
///
/// # Safety
/// As for `cuEventElapsedTime`.
unsafe fn elapsed(milliseconds: *mut f32, from: sys::CUevent, to: sys::CUevent) -> CUresult {
    type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
    // SAFETY: events exist, so the driver is open.
    let driver = unsafe { sys::culib() };
    // SAFETY: the type is that of the driver's documentation.
    match unsafe { driver.get::<Elapsed>(b"cuEventElapsedTime\0") } {
        // SAFETY: by the promise of the caller.
        Ok(elapsed) => unsafe { elapsed(milliseconds, from, to) },
        Err(_absent) => CUresult::CUDA_ERROR_NOT_FOUND,
    }
}
