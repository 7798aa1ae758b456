//! Messages, and where their parts lie.

use std::time::Instant;

use crossbeam_channel::Sender;

use super::quota::Share;

/// Parts of a message that are kept; further ones are read and discarded.
pub const MAX_PARTS: usize = 64;
/// Scratch up to this size is kept for the next message, whatever that needs.
const KEPT_SCRATCH_BYTES: usize = 1 << 20;

/// A buffer on loan that a part was read into.
pub trait Lease: Send + 'static {
    /// The bytes of the buffer.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Where parts are read to.
pub trait PartBuffers: Clone + Send + 'static {
    /// A buffer on loan.
    type Lease: Lease;

    /// A buffer of exactly `len` bytes for the next part, or `None` to read it into scratch memory.
    ///
    /// Called before the bytes are there; must not wait.
    fn buffer(&mut self, len: usize) -> Option<Self::Lease>;
}

/// Reads everything into scratch memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLeases;

impl PartBuffers for NoLeases {
    type Lease = Vec<u8>;

    fn buffer(&mut self, _: usize) -> Option<Vec<u8>> {
        None
    }
}

impl Lease for Vec<u8> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// One part: in a lease, or in the front of the scratch memory.
pub(super) struct Part<L> {
    pub(super) scratch: Vec<u8>,
    pub(super) len: usize,
    pub(super) lease: Option<L>,
}

impl<L> Default for Part<L> {
    fn default() -> Self {
        Self { scratch: Vec::new(), len: 0, lease: None }
    }
}

/// The memory of a message, used again and again.
pub(super) struct Body<L> {
    pub(super) parts: Vec<Part<L>>,
    /// Parts that the message has.
    pub(super) used: usize,
}

impl<L> Default for Body<L> {
    fn default() -> Self {
        Self { parts: Vec::new(), used: 0 }
    }
}

impl<L> Body<L> {
    /// The next part, to be read into.
    pub(super) fn next_part(&mut self) -> &mut Part<L> {
        if self.used == self.parts.len() {
            self.parts.push(Part::default());
        }
        self.used += 1;
        &mut self.parts[self.used - 1]
    }

    /// Gives leases back and forgets scratch that the message did not need.
    pub(super) fn clear(&mut self) {
        for (at, part) in self.parts.iter_mut().enumerate() {
            let needed = if at < self.used && part.lease.is_none() { part.len } else { 0 };
            part.lease = None;
            part.len = 0;
            if part.scratch.len() > KEPT_SCRATCH_BYTES.max(4 * needed) {
                part.scratch = Vec::new();
            }
        }
        self.used = 0;
    }
}

/// A whole multipart message. Dropping it gives its memory back to the receiver.
///
/// Its bytes count against [`Options::waiting_bytes`](super::Options::waiting_bytes) until then.
pub struct Message<L> {
    pub(super) body: Body<L>,
    /// Where the body rests when the message is dropped.
    pub(super) home: Sender<Body<L>>,
    /// Its share of the bytes that may wait.
    pub(super) share: Option<Share>,
    /// Which connection it came over: the number of the endpoint, or a number of its own for a peer that
    /// connected to us.
    pub peer: u64,
    /// Parts beyond [`MAX_PARTS`], read and discarded.
    pub discarded_parts: u64,
    /// When its last byte arrived.
    pub received: Instant,
}

impl<L: Lease> Message<L> {
    /// Number of parts.
    pub fn len(&self) -> usize {
        self.body.used
    }

    /// Whether there is no part; never true for a message that was received.
    pub fn is_empty(&self) -> bool {
        self.body.used == 0
    }

    /// The parts, laid out in `slices` so that nothing is allocated.
    pub fn parts<'a, 'b>(&'a mut self, slices: &'b mut [&'a [u8]; MAX_PARTS]) -> &'b [&'a [u8]] {
        let used = self.body.used;
        for (slice, part) in slices.iter_mut().zip(&mut self.body.parts[..used]) {
            *slice = match &mut part.lease {
                Some(lease) => lease.bytes_mut(),
                None => &part.scratch[..part.len],
            };
        }
        &slices[..used]
    }

    /// The bytes of one part.
    pub fn part(&mut self, at: usize) -> Option<&[u8]> {
        let part = self.body.parts[..self.body.used].get_mut(at)?;
        Some(match &mut part.lease {
            Some(lease) => lease.bytes_mut(),
            None => &part.scratch[..part.len],
        })
    }

    /// Takes the lease that a part was read into, if it was; the part is empty afterwards.
    pub fn take_lease(&mut self, at: usize) -> Option<L> {
        let part = self.body.parts[..self.body.used].get_mut(at)?;
        let lease = part.lease.take()?;
        part.len = 0;
        Some(lease)
    }
}

impl<L> Drop for Message<L> {
    fn drop(&mut self) {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        // A full home means that there is enough memory at rest: let this go.
        drop(self.home.try_send(body));
        self.share = None;
    }
}
