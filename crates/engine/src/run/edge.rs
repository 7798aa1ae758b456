//! Edges: bounded channels between two nodes.
//!
//! An edge of policy `block` is a crossbeam channel bounded in blocks, with an account of the bytes in
//! it; one of policy `latest` is a short queue from which the oldest blocks fall. Neither touches a
//! pixel or allocates per block. One of policy `spill` writes to disk what does not fit.

mod latest;
mod spill;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use beamstream_buffer::Pool;
use beamstream_node::{Event, Journal, Stop};
use crossbeam_channel::{
    Receiver, RecvTimeoutError, Select, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded,
};
use crossbeam_utils::CachePadded;

use super::trace::Track;
use latest::Latest;
use spill::{Spill, SpillSender};
pub(crate) use spill::{SpillSettings, default_folder};

/// A send that waits this long is reported once, naming both nodes.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// What happens at a full edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The sender waits.
    Block,
    /// The oldest block is dropped and counted; the sender never waits.
    Latest,
    /// The block goes to disk and comes back in order.
    Spill,
}

/// Bounds of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// Blocks that may wait in the edge.
    pub(crate) blocks: usize,
    /// Bytes that may wait in the edge; a single block larger than this still passes.
    pub(crate) bytes: usize,
}

impl Capacity {
    /// Room for what either of two edges holds.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { blocks: self.blocks.max(other.blocks), bytes: self.bytes.max(other.bytes) }
    }
}

/// What is known of an edge while it works.
#[derive(Debug, Default)]
pub(crate) struct EdgeStats {
    /// Bytes put in; written by the sender alone.
    sent: CachePadded<AtomicU64>,
    /// Bytes taken out; written by the receiver alone.
    received: CachePadded<AtomicU64>,
    peak_bytes: AtomicU64,
    dropped: AtomicU64,
    waited_ns: AtomicU64,
    spilled: AtomicU64,
    damaged: AtomicU64,
}

impl EdgeStats {
    /// Most bytes that waited at once.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Blocks that fell out unseen.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Blocks that went over disk.
    pub(crate) fn spilled(&self) -> u64 {
        self.spilled.load(Ordering::Relaxed)
    }

    /// Blocks that went to disk and could not be read back.
    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Nanoseconds that the sender waited for room.
    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }

    /// Bytes that wait now.
    pub(crate) fn queued_bytes(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).saturating_sub(self.received.load(Ordering::Acquire))
    }
}

/// Why nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The receiver is gone.
    Closed,
    /// The run was halted.
    Halted,
    /// The disk that it spills to failed.
    Spill(String),
}

/// Wakes a sender that waits for bytes to leave.
#[derive(Debug)]
struct Room {
    wanted: AtomicBool,
    receiver_gone: AtomicBool,
    token: Sender<()>,
}

/// The sending end of an edge.
pub(crate) struct EdgeSender {
    pub(crate) names: Arc<str>,
    pub(crate) stats: Arc<EdgeStats>,
    /// Where it is remembered how full the edge was, if the run is traced.
    pub(crate) track: Option<Track>,
    lane: SendLane,
    long_wait_told: bool,
}

enum SendLane {
    Block { channel: Sender<Event>, capacity_bytes: u64, room: Arc<Room>, freed: Receiver<()> },
    Latest(Arc<Latest>),
    Spill(SpillSender),
}

/// The receiving end of an edge.
pub(crate) struct EdgeReceiver {
    stats: Arc<EdgeStats>,
    lane: RecvLane,
}

enum RecvLane {
    Block { channel: Receiver<Event>, room: Arc<Room> },
    Latest { queue: Arc<Latest>, filled: Receiver<()> },
    Spill { queue: Arc<Spill>, filled: Receiver<()> },
}

/// What an edge spills by, and where it tells of it.
pub(crate) struct SpillPlace<'a> {
    pub(crate) settings: &'a SpillSettings,
    pub(crate) journal: Journal,
}

/// Makes an edge; `names` is `from -> to` for messages.
///
/// Without a place to spill to, an edge of that policy makes its sender wait.
pub(crate) fn edge(
    names: &str,
    policy: Policy,
    capacity: Capacity,
    spill: Option<SpillPlace<'_>>,
) -> (EdgeSender, EdgeReceiver) {
    let stats = Arc::new(EdgeStats::default());
    let (send_lane, recv_lane) = match (policy, spill) {
        (Policy::Spill, Some(SpillPlace { settings, journal })) => {
            let (token, filled) = bounded(1);
            let (sender, queue) = SpillSender::new(settings, capacity, token, journal, stats.clone());
            (SendLane::Spill(sender), RecvLane::Spill { queue, filled })
        }
        (Policy::Block | Policy::Spill, _) => {
            let (sender, receiver) = bounded(capacity.blocks.max(1));
            let (token, freed) = bounded(1);
            let room = Arc::new(Room {
                wanted: AtomicBool::new(false),
                receiver_gone: AtomicBool::new(false),
                token,
            });
            let capacity_bytes = capacity.bytes as u64;
            (
                SendLane::Block { channel: sender, capacity_bytes, room: room.clone(), freed },
                RecvLane::Block { channel: receiver, room },
            )
        }
        (Policy::Latest, _) => {
            let (token, filled) = bounded(1);
            let queue = Arc::new(Latest::new(capacity.blocks.max(1), token));
            (SendLane::Latest(queue.clone()), RecvLane::Latest { queue, filled })
        }
    };
    let sender = EdgeSender {
        names: names.into(),
        stats: stats.clone(),
        track: None,
        lane: send_lane,
        long_wait_told: false,
    };
    (sender, EdgeReceiver { stats, lane: recv_lane })
}

impl EdgeSender {
    /// Sends an event; waits for room if the policy says so. Gives the nanoseconds waited.
    pub(crate) fn send(&mut self, event: Event, stop: &Stop) -> Result<u64, SendError> {
        let sent = self.send_or_wait(event);
        if let Some(track) = &self.track {
            track.count(self.queued());
        }
        // Receivers that go because of a halt are not at fault.
        sent.map_err(|error| if stop.is_halted() { SendError::Halted } else { error })
    }

    /// The buffers of the series that was begun last: what comes back from disk is read into them.
    pub(crate) fn set_pool(&self, pool: &Pool) {
        if let SendLane::Spill(spill) = &self.lane {
            spill.set_pool(pool);
        }
    }

    /// Events that wait in the edge.
    fn queued(&self) -> usize {
        match &self.lane {
            SendLane::Block { channel, .. } => channel.len(),
            SendLane::Latest(queue) => queue.len(),
            SendLane::Spill(spill) => spill.len(),
        }
    }

    fn send_or_wait(&mut self, event: Event) -> Result<u64, SendError> {
        let bytes = event.bytes() as u64;
        match &mut self.lane {
            SendLane::Spill(spill) => spill.push(event),
            SendLane::Latest(queue) => {
                let dropped = queue.push(event)?;
                self.stats.dropped.fetch_add(dropped, Ordering::Relaxed);
                Ok(0)
            }
            SendLane::Block { channel, capacity_bytes, .. } => {
                let queued = self.stats.queued_bytes();
                let fits = queued == 0 || queued + bytes <= *capacity_bytes;
                let waiting = if fits {
                    match channel.try_send(event) {
                        Ok(()) => None,
                        Err(TrySendError::Full(event)) => Some(event),
                        Err(TrySendError::Disconnected(_)) => return Err(SendError::Closed),
                    }
                } else {
                    Some(event)
                };
                let waited = match waiting {
                    None => 0,
                    Some(event) => self.send_waiting(event, bytes)?,
                };
                self.account(bytes);
                Ok(waited)
            }
        }
    }

    fn account(&self, bytes: u64) {
        let sent = self.stats.sent.load(Ordering::Relaxed) + bytes;
        self.stats.sent.store(sent, Ordering::Relaxed);
        let queued = sent.saturating_sub(self.stats.received.load(Ordering::Relaxed));
        if queued > self.stats.peak_bytes.load(Ordering::Relaxed) {
            self.stats.peak_bytes.store(queued, Ordering::Relaxed);
        }
    }

    fn send_waiting(&mut self, event: Event, bytes: u64) -> Result<u64, SendError> {
        let since = Instant::now();
        self.wait_for_bytes(bytes, since)?;
        let SendLane::Block { channel, .. } = &self.lane else { return Ok(0) };
        let channel = channel.clone();
        let mut event = event;
        // A halt needs no watching here: the receiver sees it, goes, and its going ends this wait.
        loop {
            match channel.send_timeout(event, LONG_WAIT) {
                Ok(()) => break,
                Err(SendTimeoutError::Disconnected(_)) => return Err(SendError::Closed),
                Err(SendTimeoutError::Timeout(back)) => {
                    event = back;
                    self.tell_long_wait(since);
                }
            }
        }
        let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.stats.waited_ns.fetch_add(waited, Ordering::Relaxed);
        Ok(waited)
    }

    /// Waits until `bytes` more fit, or nothing at all is queued.
    fn wait_for_bytes(&mut self, bytes: u64, since: Instant) -> Result<(), SendError> {
        let SendLane::Block { capacity_bytes, room, freed, .. } = &self.lane else { return Ok(()) };
        let (capacity, room, freed) = (*capacity_bytes, room.clone(), freed.clone());
        loop {
            if room.receiver_gone.load(Ordering::Acquire) {
                return Err(SendError::Closed);
            }
            room.wanted.store(true, Ordering::Relaxed);
            // Pairs with the fence in `EdgeReceiver::account`: either the receiver sees that room is wanted, or
            // this load sees what it took out.
            fence(Ordering::SeqCst);
            let queued = self.stats.queued_bytes();
            if queued == 0 || queued + bytes <= capacity {
                room.wanted.store(false, Ordering::Relaxed);
                return Ok(());
            }
            match freed.recv_timeout(LONG_WAIT) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => self.tell_long_wait(since),
                Err(RecvTimeoutError::Disconnected) => return Err(SendError::Closed),
            }
        }
    }

    fn tell_long_wait(&mut self, since: Instant) {
        if !self.long_wait_told {
            self.long_wait_told = true;
            tracing::warn!(
                edge = &*self.names,
                "no room for {} s: the receiver is slower than the sender",
                since.elapsed().as_secs()
            );
        }
    }
}

impl EdgeReceiver {
    /// Takes the next event, if there is one.
    pub(crate) fn try_recv(&self) -> Result<Event, TryRecvError> {
        match &self.lane {
            RecvLane::Block { channel, room } => {
                let event = channel.try_recv()?;
                self.account(event.bytes() as u64, room);
                Ok(event)
            }
            RecvLane::Latest { queue, filled } => {
                // The token goes first: events that come from now on bring a new one.
                let _token = filled.try_recv();
                queue.pop()
            }
            RecvLane::Spill { queue, filled } => {
                let _token = filled.try_recv();
                let popped = queue.pop();
                queue.wake_if_more();
                popped
            }
        }
    }

    /// Adds this edge to a selection: the operation is ready when [`Self::try_recv`] has something to say.
    pub(crate) fn select<'a>(&'a self, select: &mut Select<'a>) -> usize {
        match &self.lane {
            RecvLane::Block { channel, .. } => select.recv(channel),
            RecvLane::Latest { filled, .. } | RecvLane::Spill { filled, .. } => select.recv(filled),
        }
    }

    fn account(&self, bytes: u64, room: &Room) {
        if bytes == 0 {
            return;
        }
        let received = self.stats.received.load(Ordering::Relaxed) + bytes;
        self.stats.received.store(received, Ordering::Release);
        fence(Ordering::SeqCst);
        if room.wanted.load(Ordering::Relaxed) {
            room.wanted.store(false, Ordering::Relaxed);
            wake(&room.token);
        }
    }
}

impl Drop for EdgeReceiver {
    fn drop(&mut self) {
        match &self.lane {
            RecvLane::Block { room, .. } => {
                room.receiver_gone.store(true, Ordering::Release);
                wake(&room.token);
            }
            RecvLane::Latest { queue, .. } => queue.close_receiver(),
            RecvLane::Spill { queue, .. } => queue.close_receiver(),
        }
    }
}

impl Drop for EdgeSender {
    fn drop(&mut self) {
        if let SendLane::Latest(queue) = &self.lane {
            queue.close_sender();
        }
    }
}

/// Puts a token into a channel that holds one: if it is full, the token that is there wakes just as well.
fn wake(token: &Sender<()>) {
    let _full_or_closed = token.try_send(());
}

#[cfg(test)]
mod tests;
