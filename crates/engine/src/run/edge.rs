//! Edges: bounded channels between two nodes.
//!
//! An edge of policy `block` is a crossbeam channel bounded in blocks, with an account of the bytes in
//! it; one of policy `latest` is a short queue from which the oldest blocks fall. Neither touches a
//! pixel or allocates per block.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beamstream_node::{Event, Stop};
use crossbeam_channel::{
    Receiver, RecvTimeoutError, Select, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded,
};
use crossbeam_utils::CachePadded;

use super::trace::Track;

/// A send that waits this long is reported once, naming both nodes.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// What happens at a full edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The sender waits.
    Block,
    /// The oldest block is dropped and counted; the sender never waits.
    Latest,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The receiver is gone.
    Closed,
    /// The run was halted.
    Halted,
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
}

/// The receiving end of an edge.
pub(crate) struct EdgeReceiver {
    stats: Arc<EdgeStats>,
    lane: RecvLane,
}

enum RecvLane {
    Block { channel: Receiver<Event>, room: Arc<Room> },
    Latest { queue: Arc<Latest>, filled: Receiver<()> },
}

/// Makes an edge; `names` is `from -> to` for messages.
pub(crate) fn edge(names: &str, policy: Policy, capacity: Capacity) -> (EdgeSender, EdgeReceiver) {
    let stats = Arc::new(EdgeStats::default());
    let (send_lane, recv_lane) = match policy {
        Policy::Block => {
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
        Policy::Latest => {
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

    /// Events that wait in the edge.
    fn queued(&self) -> usize {
        match &self.lane {
            SendLane::Block { channel, .. } => channel.len(),
            SendLane::Latest(queue) => queue.lock().events.len(),
        }
    }

    fn send_or_wait(&mut self, event: Event) -> Result<u64, SendError> {
        let bytes = event.bytes() as u64;
        match &self.lane {
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
        }
    }

    /// Adds this edge to a selection: the operation is ready when [`Self::try_recv`] has something to say.
    pub(crate) fn select<'a>(&'a self, select: &mut Select<'a>) -> usize {
        match &self.lane {
            RecvLane::Block { channel, .. } => select.recv(channel),
            RecvLane::Latest { filled, .. } => select.recv(filled),
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

/// The queue of an edge that keeps the newest.
struct Latest {
    inner: Mutex<LatestInner>,
    capacity: usize,
    filled: Sender<()>,
}

#[derive(Default)]
struct LatestInner {
    events: VecDeque<Event>,
    sender_gone: bool,
    receiver_gone: bool,
}

impl Latest {
    fn new(capacity: usize, filled: Sender<()>) -> Self {
        Self { inner: Mutex::default(), capacity, filled }
    }

    /// Puts an event in and gives the number of blocks that fell out for it.
    fn push(&self, event: Event) -> Result<u64, SendError> {
        let mut inner = self.lock();
        if inner.receiver_gone {
            return Err(SendError::Closed);
        }
        let before = inner.blocks();
        match &event {
            Event::Begin(_) => inner.forget_finished_series(),
            Event::Block(_) if before >= self.capacity => inner.drop_oldest_block(),
            Event::Block(_) | Event::End(_) => {}
        }
        let dropped = before - inner.blocks();
        inner.events.push_back(event);
        drop(inner);
        wake(&self.filled);
        Ok(dropped as u64)
    }

    fn pop(&self) -> Result<Event, TryRecvError> {
        let mut inner = self.lock();
        match inner.events.pop_front() {
            Some(event) => {
                let more = !inner.events.is_empty() || inner.sender_gone;
                drop(inner);
                if more {
                    wake(&self.filled);
                }
                Ok(event)
            }
            None if inner.sender_gone => {
                drop(inner);
                // The end stays to be seen, however often it is asked for.
                wake(&self.filled);
                Err(TryRecvError::Disconnected)
            }
            None => Err(TryRecvError::Empty),
        }
    }

    fn close_sender(&self) {
        self.lock().sender_gone = true;
        wake(&self.filled);
    }

    fn close_receiver(&self) {
        let mut inner = self.lock();
        inner.receiver_gone = true;
        inner.events.clear();
    }

    fn lock(&self) -> MutexGuard<'_, LatestInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LatestInner {
    fn blocks(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Block(_))).count()
    }

    fn drop_oldest_block(&mut self) {
        if let Some(at) = self.events.iter().position(|event| matches!(event, Event::Block(_))) {
            self.events.remove(at);
        }
    }

    /// Drops the blocks of earlier series, and series of which the receiver has seen nothing yet as a whole.
    fn forget_finished_series(&mut self) {
        let open = matches!(self.events.front(), Some(Event::Block(_) | Event::End(_)));
        let end_of_open = self.events.iter().find(|event| matches!(event, Event::End(_))).cloned();
        self.events.clear();
        if open {
            self.events.extend(end_of_open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_buffer::Pool;
    use beamstream_core::{
        BlockMeta, ElementType, Format, FrameId, Role, SeriesHeader, SeriesId, SeriesSummary,
    };
    use beamstream_node::StopController;

    const FRAME: Format = Format::frame(ElementType::U8, 10, 10);

    fn begin(number: u64) -> Event {
        Event::Begin(Arc::new(SeriesHeader::frames(SeriesId { number, ordinal: number }, FRAME)))
    }

    fn end() -> Event {
        Event::End(Arc::new(SeriesSummary::default()))
    }

    fn block(pool: &Pool, number: u64) -> Event {
        Event::Block(
            pool.lease(FRAME).unwrap().freeze(BlockMeta::new(FrameId::new(number), Role::Projection)),
        )
    }

    fn names(receiver: &EdgeReceiver) -> Vec<String> {
        std::iter::from_fn(|| receiver.try_recv().ok())
            .map(|event| match event {
                Event::Begin(header) => format!("begin {}", header.id),
                Event::Block(block) => format!("block {}", block.meta.frame),
                Event::End(_) => "end".to_owned(),
            })
            .collect()
    }

    #[test]
    fn a_full_edge_makes_the_sender_wait_for_bytes_and_blocks() {
        let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
        let (_controller, stop) = StopController::new();
        for capacity in [Capacity { blocks: 2, bytes: 10_000 }, Capacity { blocks: 10, bytes: 250 }] {
            let (mut sender, receiver) = edge("a -> b", Policy::Block, capacity);
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    for number in 0..50 {
                        sender.send(block(&pool, number), &stop).unwrap();
                    }
                    sender
                });
                let mut seen = 0;
                while seen < 50 {
                    if let Ok(Event::Block(block)) = receiver.try_recv() {
                        assert_eq!(block.meta.frame, FrameId::new(seen));
                        seen += 1;
                    }
                    std::thread::yield_now();
                }
                assert!(sending.join().unwrap().stats.peak_bytes() <= 300);
            });
        }
    }

    #[test]
    fn a_block_larger_than_the_edge_passes_alone() {
        let pool = Pool::host("p", 2, FRAME.bytes()).unwrap();
        let (_controller, stop) = StopController::new();
        let (mut sender, receiver) = edge("a -> b", Policy::Block, Capacity { blocks: 4, bytes: 1 });
        assert_eq!(sender.send(block(&pool, 0), &stop), Ok(0));
        assert_eq!(names(&receiver), ["block 0"]);
    }

    #[test]
    fn a_receiver_that_goes_because_of_a_halt_frees_a_waiting_sender() {
        let pool = Pool::host("p", 4, FRAME.bytes()).unwrap();
        for capacity in [Capacity { blocks: 1, bytes: 10_000 }, Capacity { blocks: 10, bytes: 1 }] {
            let (controller, stop) = StopController::new();
            let (mut sender, receiver) = edge("a -> b", Policy::Block, capacity);
            sender.send(block(&pool, 0), &stop).unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| sender.send(block(&pool, 1), &stop));
                controller.halt();
                drop(receiver);
                assert_eq!(waiting.join().unwrap(), Err(SendError::Halted));
            });
        }
    }

    #[test]
    fn a_receiver_that_goes_frees_a_waiting_sender() {
        let pool = Pool::host("p", 4, FRAME.bytes()).unwrap();
        for capacity in [Capacity { blocks: 1, bytes: 10_000 }, Capacity { blocks: 10, bytes: 1 }] {
            let (_controller, stop) = StopController::new();
            let (mut sender, receiver) = edge("a -> b", Policy::Block, capacity);
            sender.send(block(&pool, 0), &stop).unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| sender.send(block(&pool, 1), &stop));
                drop(receiver);
                assert_eq!(waiting.join().unwrap(), Err(SendError::Closed));
            });
        }
    }

    #[test]
    fn the_newest_blocks_stay() {
        let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
        let (_controller, stop) = StopController::new();
        let (mut sender, receiver) = edge("a -> b", Policy::Latest, Capacity { blocks: 2, bytes: 0 });
        sender.send(begin(1), &stop).unwrap();
        for number in 0..5 {
            sender.send(block(&pool, number), &stop).unwrap();
        }
        sender.send(end(), &stop).unwrap();
        assert_eq!(sender.stats.dropped(), 3);
        drop(sender);
        assert_eq!(names(&receiver), ["begin 1", "block 3", "block 4", "end"]);
        assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
    }

    #[test]
    fn a_drained_edge_lets_its_receiver_sleep() {
        let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
        let (_controller, stop) = StopController::new();
        for policy in [Policy::Latest, Policy::Block] {
            let (mut sender, receiver) = edge("a -> b", policy, Capacity { blocks: 4, bytes: 10_000 });
            sender.send(begin(1), &stop).unwrap();
            sender.send(block(&pool, 0), &stop).unwrap();
            assert_eq!(names(&receiver), ["begin 1", "block 0"]);
            let mut select = Select::new();
            receiver.select(&mut select);
            assert!(select.ready_timeout(Duration::ZERO).is_err(), "{policy:?}: ready without an event");
            sender.send(end(), &stop).unwrap();
            assert!(select.ready_timeout(Duration::ZERO).is_ok(), "{policy:?}: an event is not seen");
        }
    }

    #[test]
    fn an_end_stays_to_be_seen() {
        for policy in [Policy::Latest, Policy::Block] {
            let (sender, receiver) = edge("a -> b", policy, Capacity { blocks: 4, bytes: 10_000 });
            drop(sender);
            assert_eq!(receiver.try_recv().unwrap_err(), TryRecvError::Disconnected);
            let mut select = Select::new();
            receiver.select(&mut select);
            assert!(
                select.ready_timeout(Duration::ZERO).is_ok(),
                "{policy:?}: a receiver would sleep for ever"
            );
        }
    }

    #[test]
    fn a_slow_viewer_skips_whole_series_and_sees_well_formed_ones() {
        let pool = Pool::host("p", 8, FRAME.bytes()).unwrap();
        let (_controller, stop) = StopController::new();
        let (mut sender, receiver) = edge("a -> b", Policy::Latest, Capacity { blocks: 4, bytes: 0 });
        sender.send(begin(1), &stop).unwrap();
        assert!(matches!(receiver.try_recv(), Ok(Event::Begin(_))));
        for series in 2..5 {
            sender.send(block(&pool, series), &stop).unwrap();
            sender.send(end(), &stop).unwrap();
            sender.send(begin(series), &stop).unwrap();
        }
        assert_eq!(names(&receiver), ["end", "begin 4"]);
        assert_eq!(pool.stats().free, 8);
    }
}
