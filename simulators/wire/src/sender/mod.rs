//! PUSH and PUB sockets on blocking streams.
//!
//! Every peer has a bounded queue and two threads: one writes, the other reads subscriptions and heartbeats and
//! notices when the peer goes away. A PUSH waits where all queues are full, or nobody is there; what a peer had not
//! taken yet goes to the next. A PUB drops what a full queue cannot take.

mod peer;
mod stream;
mod zmtp;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::by_name;
use crate::{Endpoint, Message, Stop, Stopped, UnknownName};
use stream::{Listener, Stream};

/// How soon a wait looks again whether a stop was asked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// More connections than this are turned away.
const MAX_CONNECTIONS: usize = 256;

/// The type of a sender's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// Each message goes to one PULL peer, in turn; nothing is dropped.
    Push,
    /// Each message goes to all SUB peers; who is too slow misses some.
    Pub,
}

impl SocketKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Push, Self::Pub];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pub => "pub",
        }
    }

    /// How many messages a peer's queue holds unless told otherwise.
    ///
    /// For PUB it is what the detectors' own servers use; a PUSH loses nothing by a short queue and saves memory.
    pub const fn usual_queue(self) -> usize {
        match self {
            Self::Push => 16,
            Self::Pub => 100,
        }
    }
}

impl std::str::FromStr for SocketKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("socket", &Self::ALL, Self::name, name)
    }
}

/// Why a sender could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SenderError {
    /// The endpoint cannot be bound.
    #[error("cannot bind {endpoint}")]
    Bind {
        /// The endpoint.
        endpoint: Endpoint,
        /// What the system says.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread for {endpoint}")]
    Thread {
        /// The endpoint.
        endpoint: Endpoint,
        /// What the system says.
        source: io::Error,
    },
}

/// A PUSH or PUB socket.
///
/// Dropping it closes all connections at once; [`Self::flush`] and [`Self::close`] come first where every message
/// has to arrive.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    endpoint: Endpoint,
    bound: bool,
}

/// What the threads of a sender share.
#[derive(Debug)]
struct Shared {
    kind: SocketKind,
    queue_messages: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    peers: BTreeMap<u64, Peer>,
    next_peer: u64,
    last_served: u64,
    /// Messages of peers that went away, to be sent before all others.
    returned: VecDeque<Message>,
    /// Messages that a thread is writing just now.
    in_flight: usize,
    /// Streams that are open, those before their handshake included.
    connections: usize,
    dropped: u64,
    closing: bool,
}

#[derive(Debug)]
struct Peer {
    queue: VecDeque<Message>,
    /// An answer to the peer's heartbeat, to be written next.
    pong: Option<Vec<u8>>,
    /// Prefixes of the messages that the peer wants, if it is a subscriber.
    subscriptions: Vec<Vec<u8>>,
    /// The connection is closed once the queue is empty.
    finishing: bool,
    stream: Stream,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, LOOK_AGAIN);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl State {
    /// The peer whose turn it is among those that have room.
    fn next_free(&self, queue_messages: usize) -> Option<u64> {
        let has_room = |peer: &Peer| !peer.finishing && peer.queue.len() < queue_messages;
        let after = self.peers.range(self.last_served + 1..);
        after.chain(self.peers.range(..=self.last_served)).find(|(_, p)| has_room(p)).map(|(&id, _)| id)
    }

    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.returned.is_empty() && self.peers.values().all(|p| p.queue.is_empty())
    }
}

impl Sender {
    /// Binds a socket. `queue_messages` is the most that waits for each peer.
    ///
    /// # Errors
    /// If the endpoint cannot be bound, or its thread cannot be started.
    pub fn bind(kind: SocketKind, endpoint: &Endpoint, queue_messages: usize) -> Result<Self, SenderError> {
        let bound = Listener::bind(endpoint);
        let (listener, endpoint) =
            bound.map_err(|source| SenderError::Bind { endpoint: endpoint.clone(), source })?;
        let sender = Self::new(kind, endpoint, queue_messages, true);
        let shared = Arc::clone(&sender.shared);
        sender.start_thread(move || peer::accept_peers(&shared, &listener))?;
        Ok(sender)
    }

    /// Connects a socket to a receiver that binds, now and again whenever the connection is lost.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn connect(
        kind: SocketKind,
        endpoint: &Endpoint,
        queue_messages: usize,
    ) -> Result<Self, SenderError> {
        let sender = Self::new(kind, endpoint.clone(), queue_messages, false);
        let (shared, endpoint) = (Arc::clone(&sender.shared), endpoint.clone());
        sender.start_thread(move || peer::keep_connected(&shared, &endpoint))?;
        Ok(sender)
    }

    fn new(kind: SocketKind, endpoint: Endpoint, queue_messages: usize, bound: bool) -> Self {
        let queue_messages = queue_messages.max(1);
        let shared = Shared { kind, queue_messages, state: Mutex::default(), changed: Condvar::new() };
        Self { shared: Arc::new(shared), endpoint, bound }
    }

    fn start_thread(&self, work: impl FnOnce() + Send + 'static) -> Result<(), SenderError> {
        let started = thread::Builder::new().name("sim-socket".to_owned()).spawn(work);
        started.map(drop).map_err(|source| SenderError::Thread { endpoint: self.endpoint.clone(), source })
    }

    /// The endpoint, with the port that was found where 0 was asked for.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// How many messages a PUB did not deliver to a peer that was too slow.
    pub fn dropped(&self) -> u64 {
        self.shared.lock().dropped
    }

    /// Waits until a receiver is there; a PUB waits for a subscription.
    ///
    /// # Errors
    /// [`Stopped`] if a stop was asked for meanwhile.
    pub fn wait_for_peer(&self, stop: &Stop) -> Result<(), Stopped> {
        let kind = self.shared.kind;
        self.wait_until(stop, |state| {
            let listens = |p: &Peer| kind == SocketKind::Push || !p.subscriptions.is_empty();
            state.peers.values().any(|p| !p.finishing && listens(p))
        })
    }

    /// Queues a message; a PUSH waits for a peer with room.
    ///
    /// # Errors
    /// [`Stopped`] if a stop was asked for meanwhile; the message is not sent then.
    pub fn send(&self, message: Message, stop: &Stop) -> Result<(), Stopped> {
        match self.shared.kind {
            SocketKind::Push => self.push(message, stop),
            SocketKind::Pub => {
                self.publish(&message);
                Ok(())
            }
        }
    }

    fn push(&self, message: Message, stop: &Stop) -> Result<(), Stopped> {
        let mut state = self.shared.lock();
        loop {
            if stop.is_set() {
                return Err(Stopped);
            }
            if let Some(id) = state.next_free(self.shared.queue_messages) {
                state.last_served = id;
                if let Some(peer) = state.peers.get_mut(&id) {
                    peer.queue.push_back(message);
                }
                self.shared.changed.notify_all();
                return Ok(());
            }
            state = self.shared.wait(state);
        }
    }

    fn publish(&self, message: &Message) {
        let topic: &[u8] = message.first().map_or(&[], |part| part);
        let mut state = self.shared.lock();
        let State { peers, dropped, .. } = &mut *state;
        for peer in peers.values_mut().filter(|p| !p.finishing) {
            if !peer.subscriptions.iter().any(|prefix| topic.starts_with(prefix)) {
                continue;
            }
            if peer.queue.len() < self.shared.queue_messages {
                peer.queue.push_back(message.clone());
            } else {
                *dropped += 1;
            }
        }
        self.shared.changed.notify_all();
    }

    /// Waits until everything that was queued is written; a PUSH waits for a peer if there is none.
    ///
    /// # Errors
    /// [`Stopped`] if a stop was asked for meanwhile.
    pub fn flush(&self, stop: &Stop) -> Result<(), Stopped> {
        self.wait_until(stop, State::is_idle)
    }

    /// Closes the connections of all peers once they have what is queued for them; they may come back.
    pub fn disconnect_peers(&self) {
        for peer in self.shared.lock().peers.values_mut() {
            peer.finishing = true;
        }
        self.shared.changed.notify_all();
    }

    /// Closes the socket. Peers have `linger` to take what is queued for them and to close their side.
    pub fn close(self, linger: Duration) {
        let deadline = Instant::now() + linger;
        self.shared.lock().closing = true;
        self.disconnect_peers();
        let mut state = self.shared.lock();
        while !state.peers.is_empty() && Instant::now() < deadline {
            state = self.shared.wait(state);
        }
    }

    fn wait_until(&self, stop: &Stop, done: impl Fn(&State) -> bool) -> Result<(), Stopped> {
        let mut state = self.shared.lock();
        while !done(&state) {
            if stop.is_set() {
                return Err(Stopped);
            }
            state = self.shared.wait(state);
        }
        Ok(())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        for peer in state.peers.values() {
            // The peer may have closed it already.
            peer.stream.shutdown(Shutdown::Both).ok();
        }
        drop(state);
        self.shared.changed.notify_all();
        if self.bound {
            // A thread that waits for the next peer cannot be woken otherwise.
            Stream::connect(&self.endpoint).ok();
            if let Endpoint::Ipc(path) = &self.endpoint {
                std::fs::remove_file(path).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests;
