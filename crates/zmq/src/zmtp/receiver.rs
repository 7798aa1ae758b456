//! The receiver: its endpoints, its threads, its end.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Line, RecvTimeoutError, Sender, bounded};
use thiserror::Error;

use super::message::Body;
use super::quota::Quota;
use super::stream::{Listener, Stream};
use super::{Endpoint, Message, PartBuffers, SocketKind, ZmtpError, connection};

/// Shortest and longest pause before a lost connection is tried again.
const BACKOFF: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];
/// The same refusal of the same address is said again after this time.
const SAY_AGAIN: Duration = Duration::from_mins(1);
/// Refusals that are remembered.
const MAX_SAID: usize = 256;
/// Numbers of peers that connected to us begin here; below are the numbers of endpoints.
const FIRST_VISITOR: u64 = 1 << 32;

/// Whether a socket connects or listens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Connects, and again whenever the connection is lost.
    #[default]
    Connect,
    /// Listens for peers.
    Bind,
}

/// What a peer may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a part.
    pub part_bytes: u64,
    /// Bytes of all parts of a message.
    pub message_bytes: u64,
    /// Peers at a time, for sockets that listen.
    pub peers: usize,
    /// How long the handshake may take.
    pub handshake: Duration,
    /// How long a peer may be silent within a message.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            part_bytes: 1 << 30,
            message_bytes: 4 << 30,
            peers: 64,
            handshake: Duration::from_secs(5),
            silence: Duration::from_mins(1),
        }
    }
}

/// How a receiver behaves.
#[derive(Clone)]
pub struct Options {
    /// What kind of socket it is; `None` takes what fits the peer.
    pub socket: Option<SocketKind>,
    /// What peers may cost.
    pub limits: Limits,
    /// Messages that wait for the consumer at most, all connections together.
    pub capacity: usize,
    /// Bytes of messages that wait or are being consumed at most, all connections together; one message at
    /// least. Besides, each connection holds the message that it is receiving.
    pub waiting_bytes: u64,
    /// Where refusals of peers are told.
    pub notify: Arc<dyn Fn(String) + Send + Sync>,
}

impl Options {
    /// The usual limits, refusals into the log.
    pub fn new(socket: Option<SocketKind>, capacity: usize, waiting_bytes: u64) -> Self {
        let notify = Arc::new(|text: String| tracing::warn!("{text}"));
        Self { socket, limits: Limits::default(), capacity, waiting_bytes, notify }
    }
}

/// A receiver that could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReceiverError {
    /// An endpoint that cannot be listened on.
    #[error("cannot listen on {endpoint}")]
    Bind {
        /// The endpoint.
        endpoint: Endpoint,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The system gave no thread.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Counts of what happened.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Handshakes that succeeded.
    pub connections: AtomicU64,
    /// Whole messages.
    pub messages: AtomicU64,
    /// Messages that broke off.
    pub broken_messages: AtomicU64,
    /// Connections that were refused.
    pub refused: AtomicU64,
}

/// Nothing is ever sent: the channel speaks by being closed.
pub(super) enum Never {}

/// What all threads of a receiver share.
pub(super) struct Control {
    /// Dropped to stop everything.
    stopper: Mutex<Option<Sender<Never>>>,
    pub(super) stopped: Line<Never>,
    /// Connections that are open, to be shut down from outside.
    open: Mutex<BTreeMap<u64, Stream>>,
    /// Threads that serve visitors.
    visitors: Mutex<Vec<JoinHandle<()>>>,
    said: Mutex<BTreeMap<String, Instant>>,
    pub(super) quota: Arc<Quota>,
    pub(super) traffic: Traffic,
}

/// Where messages go, and where their memory rests.
pub(super) struct Lines<L> {
    pub(super) deliver: Sender<Message<L>>,
    pub(super) rest: Sender<Body<L>>,
    pub(super) resting: Line<Body<L>>,
}

impl<L> Clone for Lines<L> {
    fn clone(&self) -> Self {
        Self { deliver: self.deliver.clone(), rest: self.rest.clone(), resting: self.resting.clone() }
    }
}

/// Receives messages from several endpoints into one line.
pub struct Receiver<L> {
    messages: Line<Message<L>>,
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
    listening: Vec<Endpoint>,
}

impl<L: super::Lease> Receiver<L> {
    /// Starts to receive. Connecting goes on in the background, for ever.
    ///
    /// # Errors
    /// [`ReceiverError`] if an endpoint cannot be listened on or there are no threads.
    pub fn start<B>(
        endpoints: &[(Endpoint, Mode)],
        options: &Options,
        buffers: &B,
    ) -> Result<Self, ReceiverError>
    where
        B: PartBuffers<Lease = L>,
    {
        // With a capacity of one rather than none: asking an empty channel without a slot takes a lock.
        let (stopper, stopped) = bounded(1);
        let control = Arc::new(Control {
            stopper: Mutex::new(Some(stopper)),
            stopped,
            open: Mutex::default(),
            visitors: Mutex::default(),
            said: Mutex::default(),
            quota: Quota::new(options.waiting_bytes),
            traffic: Traffic::default(),
        });
        let (deliver, messages) = bounded(options.capacity.max(1));
        let (rest, resting) = bounded(options.capacity + endpoints.len() + 1);
        let lines = Lines { deliver, rest, resting };
        let mut receiver = Self { messages, control, threads: Vec::new(), listening: Vec::new() };
        for (number, (endpoint, mode)) in endpoints.iter().enumerate() {
            let shared = Shared {
                number: number as u64,
                endpoint: endpoint.clone(),
                options: options.clone(),
                control: receiver.control.clone(),
                lines: lines.clone(),
                buffers: buffers.clone(),
            };
            let failed = |source| ReceiverError::Bind { endpoint: endpoint.clone(), source };
            let thread = Builder::new().name(format!("zmq {number}"));
            let thread = match mode {
                Mode::Connect => thread.spawn(move || connect(shared)),
                Mode::Bind => {
                    let listener = Listener::bind(endpoint).map_err(failed)?;
                    receiver.listening.push(listener.local_endpoint().map_err(failed)?);
                    thread.spawn(move || listen(&listener, shared))
                }
            };
            receiver.threads.push(thread.map_err(ReceiverError::Thread)?);
        }
        Ok(receiver)
    }

    /// The messages, in the order in which they became whole.
    pub fn messages(&self) -> &Line<Message<L>> {
        &self.messages
    }

    /// Where sockets that listen can be reached from this machine.
    pub fn listening(&self) -> &[Endpoint] {
        &self.listening
    }

    /// Counts of what happened.
    pub fn traffic(&self) -> &Traffic {
        &self.control.traffic
    }
}

impl<L> Receiver<L> {
    /// Stops receiving; messages that are whole can still be taken from [`Self::messages`].
    pub fn stop(&mut self) {
        self.control.stop();
        for endpoint in &self.listening {
            // A visit from ourselves ends the wait for visitors.
            drop(Stream::connect(endpoint));
        }
        for thread in self.threads.drain(..) {
            join(thread);
        }
        let visitors = std::mem::take(&mut *lock(&self.control.visitors));
        visitors.into_iter().for_each(join);
    }
}

impl<L> Drop for Receiver<L> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What one endpoint's thread holds.
struct Shared<B: PartBuffers> {
    number: u64,
    endpoint: Endpoint,
    options: Options,
    control: Arc<Control>,
    lines: Lines<B::Lease>,
    buffers: B,
}

impl<B: PartBuffers> Clone for Shared<B> {
    fn clone(&self) -> Self {
        Self {
            number: self.number,
            endpoint: self.endpoint.clone(),
            options: self.options.clone(),
            control: self.control.clone(),
            lines: self.lines.clone(),
            buffers: self.buffers.clone(),
        }
    }
}

impl<B: PartBuffers> Shared<B> {
    /// Serves a connection to its end and gives the reason of the end.
    fn serve(&mut self, stream: Stream, peer: u64) -> ZmtpError {
        let address = stream.peer();
        if !self.control.register(peer, &stream) {
            return ZmtpError::ShutDown;
        }
        let error =
            connection::serve(stream, peer, &self.options, &self.control, &self.lines, &mut self.buffers);
        lock(&self.control.open).remove(&peer);
        match &error {
            _ if self.control.is_stopped() => {}
            ZmtpError::Closed | ZmtpError::ShutDown => tracing::debug!(%address, "{error}"),
            _ => {
                self.control.traffic.refused.fetch_add(1, Ordering::Relaxed);
                self.say(&address, &error);
            }
        }
        error
    }

    /// Tells why a peer was refused, but not again and again.
    fn say(&self, address: &str, error: &ZmtpError) {
        // Visitors come from another port each time.
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let now = Instant::now();
        let mut said = lock(&self.control.said);
        said.retain(|_, at| now.duration_since(*at) < SAY_AGAIN);
        if said.len() < MAX_SAID && said.insert(format!("{host} {error}"), now).is_none() {
            drop(said);
            (self.options.notify)(format!("{} (peer {address}): {error}", self.endpoint));
        }
    }
}

fn connect<B: PartBuffers>(mut shared: Shared<B>) {
    let [shortest, longest] = BACKOFF;
    let mut pause = shortest;
    while !shared.control.is_stopped() {
        match Stream::connect(&shared.endpoint) {
            Ok(stream) => {
                let before = shared.control.traffic.connections.load(Ordering::Relaxed);
                shared.serve(stream, shared.number);
                if shared.control.traffic.connections.load(Ordering::Relaxed) > before {
                    pause = shortest;
                }
            }
            Err(error) => tracing::debug!(endpoint = %shared.endpoint, %error, "not reachable, trying again"),
        }
        if shared.control.pause(pause) {
            return;
        }
        pause = (2 * pause).min(longest);
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the thread's own")]
fn listen<B: PartBuffers>(listener: &Listener, shared: Shared<B>) {
    let mut visitor = FIRST_VISITOR * (1 + shared.number);
    loop {
        let accepted = listener.accept();
        if shared.control.is_stopped() {
            return;
        }
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                // Out of descriptors, most likely: the next attempt may find some.
                shared.say("listening", &error.into());
                if shared.control.pause(BACKOFF[0]) {
                    return;
                }
                continue;
            }
        };
        let mut visitors = lock(&shared.control.visitors);
        let (done, busy): (Vec<_>, Vec<_>) = visitors.drain(..).partition(JoinHandle::is_finished);
        done.into_iter().for_each(join);
        *visitors = busy;
        if visitors.len() >= shared.options.limits.peers {
            let found = visitors.len() as u64;
            let limit = shared.options.limits.peers as u64;
            shared.say(&stream.peer(), &ZmtpError::TooMany { found, limit });
            continue;
        }
        visitor += 1;
        let mut own = shared.clone();
        match Builder::new().name("zmq visitor".to_owned()).spawn(move || drop(own.serve(stream, visitor))) {
            Ok(thread) => visitors.push(thread),
            Err(error) => shared.say("no thread", &error.into()),
        }
    }
}

impl Control {
    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.stopper).is_none()
    }

    /// Waits; gives `true` at once when the receiver is stopped.
    fn pause(&self, time: Duration) -> bool {
        matches!(self.stopped.recv_timeout(time), Err(RecvTimeoutError::Disconnected))
    }

    /// Remembers a connection so that a stop can end it; `false` if it is too late.
    fn register(&self, peer: u64, stream: &Stream) -> bool {
        let mut open = lock(&self.open);
        match stream.try_clone() {
            Ok(stream) if !self.is_stopped() => open.insert(peer, stream).is_none(),
            _ => false,
        }
    }

    fn stop(&self) {
        lock(&self.stopper).take();
        self.quota.close();
        // Whoever registers from now on sees the stop.
        lock(&self.open).values().for_each(Stream::shutdown);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the receiver panicked");
    }
}
