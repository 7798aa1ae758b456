//! What all streams and memory of a simulated device share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use beamstream_buffer::DeviceId;
use beamstream_ops::{DeviceSpan, OpError};

use super::memory::Pages;

/// Most times that a stream lets others run before it does its next piece of work.
const MOST_DAWDLING: u64 = 64;

/// Work that was done since a trace began.
struct Trace {
    origin: Instant,
    spans: Vec<DeviceSpan>,
}

pub(super) struct Core {
    pub(super) id: DeviceId,
    free_bytes: AtomicU64,
    calls: AtomicU64,
    fails_at: AtomicU64,
    lost: AtomicBool,
    done: AtomicU64,
    held: Mutex<bool>,
    released: Condvar,
    misuses: Mutex<Vec<String>>,
    trace: Mutex<Option<Trace>>,
    /// All memory that was ever given: work that comes late must not find it gone.
    kept: Mutex<Vec<Arc<Pages>>>,
}

impl Core {
    pub(super) fn new(id: DeviceId, memory_bytes: u64) -> Self {
        Self {
            id,
            free_bytes: AtomicU64::new(memory_bytes),
            calls: AtomicU64::new(0),
            fails_at: AtomicU64::new(u64::MAX),
            lost: AtomicBool::new(false),
            done: AtomicU64::new(0),
            held: Mutex::new(false),
            released: Condvar::new(),
            misuses: Mutex::default(),
            trace: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    /// Counts a call; refuses it if the device is lost.
    pub(super) fn call(&self, what: &str) -> Result<(), OpError> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        if call >= self.fails_at.load(Ordering::SeqCst) {
            self.lost.store(true, Ordering::SeqCst);
        }
        if !self.lost.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(OpError::Device {
            device: self.id,
            cause: format!("it was lost, as told, at call {call}: {what}"),
        })
    }

    pub(super) fn fail_at(&self, call: u64) {
        self.fails_at.store(call, Ordering::SeqCst);
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::SeqCst)
    }

    /// Takes device memory, if there is that much.
    pub(super) fn take_bytes(&self, bytes: u64) -> bool {
        self.free_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(bytes))
            .is_ok()
    }

    pub(super) fn give_bytes(&self, bytes: u64) {
        self.free_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(super) fn keep(&self, pages: Arc<Pages>) {
        lock(&self.kept).push(pages);
    }

    pub(super) fn hold(&self, held: bool) {
        *lock(&self.held) = held;
        self.released.notify_all();
    }

    /// Waits while the device is held, then a little longer.
    pub(super) fn dawdle(&self) {
        let waited = self.released.wait_while(lock(&self.held), |held| *held);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let number = self.done.fetch_add(1, Ordering::SeqCst);
        // Knuth's multiplicative hash: in no step with anything, and the same in every run.
        for _ in 0..(number.wrapping_mul(2_654_435_761) >> 7) % MOST_DAWDLING {
            std::thread::yield_now();
        }
    }

    pub(super) fn start_trace(&self, origin: Instant) {
        *lock(&self.trace) = Some(Trace { origin, spans: Vec::new() });
    }

    pub(super) fn take_spans(&self) -> Vec<DeviceSpan> {
        lock(&self.trace).as_mut().map(|trace| std::mem::take(&mut trace.spans)).unwrap_or_default()
    }

    /// Remembers work that a stream has done since `began`, if a trace has begun.
    pub(super) fn worked(&self, stream: &str, began: Instant) {
        if let Some(trace) = lock(&self.trace).as_mut() {
            trace.spans.push(DeviceSpan {
                stream: stream.to_owned(),
                name: "work".to_owned(),
                began: began.saturating_duration_since(trace.origin),
                ended: trace.origin.elapsed(),
            });
        }
    }

    pub(super) fn misused(&self, what: String) {
        lock(&self.misuses).push(what);
    }

    pub(super) fn misuses(&self) -> Vec<String> {
        lock(&self.misuses).clone()
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
