//! Buffers of the frame pool, lent to the threads that receive.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use beamstream_buffer::{LeaseMut, Pool};
use beamstream_core::Format;

use crate::zmtp::{Lease, PartBuffers};

/// Lends a buffer for every part that has the size of a frame.
///
/// At most `budget` buffers are out, so that the consumer always finds one, whatever peers do; parts beyond
/// go into scratch memory and are copied later.
#[derive(Clone, Default)]
pub(crate) struct FrameBuffers {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Bytes of a frame, 0 as long as they are unknown.
    frame_bytes: AtomicUsize,
    lent: AtomicUsize,
    target: Mutex<Option<Target>>,
}

struct Target {
    pool: Pool,
    format: Format,
    budget: usize,
}

/// A buffer that is lent; counted until it is given back or used.
pub(crate) struct Lent {
    lease: Option<LeaseMut>,
    shared: Arc<Shared>,
}

impl FrameBuffers {
    /// From now on parts with the size of `format` are received into buffers of `pool`.
    pub(crate) fn aim(&self, pool: &Pool, format: Format, budget: usize) {
        let visible = pool.kind().is_host();
        *self.target() = visible.then(|| Target { pool: pool.clone(), format, budget });
        self.shared.frame_bytes.store(if visible { format.bytes() } else { 0 }, Ordering::Release);
    }

    fn target(&self) -> MutexGuard<'_, Option<Target>> {
        self.shared.target.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartBuffers for FrameBuffers {
    type Lease = Lent;

    fn buffer(&mut self, len: usize) -> Option<Lent> {
        if len == 0 || len != self.shared.frame_bytes.load(Ordering::Acquire) {
            return None;
        }
        let target = self.target();
        let target = target.as_ref().filter(|target| target.format.bytes() == len)?;
        if self.shared.lent.load(Ordering::Relaxed) >= target.budget {
            return None;
        }
        let lease = target.pool.try_lease(target.format).ok().flatten()?;
        self.shared.lent.fetch_add(1, Ordering::Relaxed);
        Some(Lent { lease: Some(lease), shared: self.shared.clone() })
    }
}

impl Lent {
    /// The buffer, no longer counted.
    pub(crate) fn into_lease(mut self) -> Option<LeaseMut> {
        self.lease.take()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.shared.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease for Lent {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.lease.as_mut().map_or(&mut [], LeaseMut::bytes_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_core::ElementType;

    #[test]
    fn only_parts_of_the_frame_size_get_buffers_and_only_so_many() {
        let pool = Pool::host("frames", 4, 12).unwrap();
        let mut buffers = FrameBuffers::default();
        assert!(buffers.buffer(12).is_none());
        buffers.aim(&pool, Format::frame(ElementType::U16, 2, 3), 2);
        let first = buffers.buffer(12).unwrap();
        let mut second = buffers.buffer(12).unwrap();
        assert!(buffers.buffer(12).is_none() && buffers.buffer(11).is_none());
        assert_eq!(second.bytes_mut().len(), 12);
        drop(first);
        assert!(second.into_lease().is_some());
        assert!(buffers.buffer(12).is_some_and(|_| buffers.buffer(12).is_some()));
    }
}
