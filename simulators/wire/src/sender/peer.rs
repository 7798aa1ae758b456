//! The threads of one sender: who waits for peers, who writes to a peer, who listens to it.

use std::net::Shutdown;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::stream::{Listener, Stream};
use super::{MAX_CONNECTIONS, Peer, Shared, SocketKind, zmtp};
use crate::{Endpoint, Message};

/// A peer that says nothing for so long after it connected is turned away.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a writing thread does next.
enum Job {
    Message(Message),
    Pong(Vec<u8>),
    /// Everything is written and the connection shall end.
    Finish,
    /// The peer is gone.
    Gone,
}

/// Serves every peer that connects, until the sender closes.
pub(super) fn accept_peers(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let accepted = listener.accept();
        let mut state = shared.lock();
        if state.closing {
            return;
        }
        // An error here is that of one peer, or too many open files: the next try may go better.
        let Ok(stream) = accepted else {
            drop(shared.wait(state));
            continue;
        };
        if state.connections >= MAX_CONNECTIONS {
            continue;
        }
        state.connections += 1;
        drop(state);
        let (own, peer) = (Arc::clone(shared), thread::Builder::new().name("sim-peer".to_owned()));
        if peer.spawn(move || serve(&own, stream)).is_err() {
            shared.lock().connections -= 1;
        }
    }
}

/// Connects to a receiver that binds, and again whenever the connection is lost, until the sender closes.
pub(super) fn keep_connected(shared: &Arc<Shared>, endpoint: &Endpoint) {
    loop {
        let connected = Stream::connect(endpoint);
        let mut state = shared.lock();
        if state.closing {
            return;
        }
        match connected {
            Ok(stream) => {
                state.connections += 1;
                drop(state);
                serve(shared, stream);
            }
            Err(_nobody_there_yet) => drop(shared.wait(state)),
        }
    }
}

/// Shakes hands and writes what is queued for the peer, until one of both sides ends the connection.
fn serve(shared: &Arc<Shared>, mut stream: Stream) {
    if let Some((id, listening)) = welcome(shared, &mut stream) {
        write_jobs(shared, id, &mut stream);
        // The listening thread sees the end of the stream and forgets the peer.
        drop(listening.join());
    }
    shared.lock().connections -= 1;
    shared.changed.notify_all();
}

/// Enters a peer that shakes hands properly, and listens to it. `None` if it does not.
fn welcome(shared: &Arc<Shared>, stream: &mut Stream) -> Option<(u64, thread::JoinHandle<()>)> {
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).ok()?;
    zmtp::shake_hands(stream, shared.kind).ok()?;
    stream.set_read_timeout(None).ok()?;
    let mut ears = stream.try_clone().ok()?;
    let mut state = shared.lock();
    if state.closing {
        return None;
    }
    state.next_peer += 1;
    let id = state.next_peer;
    let peer = Peer {
        queue: std::collections::VecDeque::new(),
        pong: None,
        subscriptions: Vec::new(),
        finishing: false,
        stream: stream.try_clone().ok()?,
    };
    state.peers.insert(id, peer);
    drop(state);
    shared.changed.notify_all();
    let own = Arc::clone(shared);
    let listening = thread::Builder::new().name("sim-ears".to_owned()).spawn(move || {
        listen(&own, id, &mut ears);
        forget(&own, id);
        // Wakes the writing thread, should it be in the middle of a message.
        ears.shutdown(Shutdown::Both).ok();
    });
    if listening.is_err() {
        forget(shared, id);
    }
    Some((id, listening.ok()?))
}

/// Takes subscriptions and heartbeats until the peer closes its side.
fn listen(shared: &Shared, id: u64, ears: &mut Stream) {
    while let Ok(frame) = zmtp::read_frame(ears) {
        let mut state = shared.lock();
        let Some(peer) = state.peers.get_mut(&id) else {
            return;
        };
        match frame {
            zmtp::Frame::Command(command) => peer.pong = zmtp::pong(&command).or(peer.pong.take()),
            zmtp::Frame::Message(body) => match body.split_first() {
                Some((1, prefix)) => peer.subscriptions.push(prefix.to_vec()),
                Some((0, prefix)) => {
                    let found = peer.subscriptions.iter().position(|s| s == prefix);
                    found.map(|at| peer.subscriptions.swap_remove(at));
                }
                _ => {}
            },
        }
        drop(state);
        shared.changed.notify_all();
    }
}

/// Removes a peer; what a PUSH had queued for it goes to others.
fn forget(shared: &Shared, id: u64) {
    let mut state = shared.lock();
    if let Some(peer) = state.peers.remove(&id)
        && shared.kind == SocketKind::Push
    {
        state.returned.extend(peer.queue);
    }
    drop(state);
    shared.changed.notify_all();
}

fn write_jobs(shared: &Shared, id: u64, stream: &mut Stream) {
    loop {
        let written = match next_job(shared, id) {
            Job::Message(message) => {
                let written = zmtp::write_message(stream, &message);
                let mut state = shared.lock();
                state.in_flight -= 1;
                if written.is_err() && shared.kind == SocketKind::Push {
                    // The peer cannot have got it whole, and receivers drop messages that are not.
                    state.returned.push_front(message);
                }
                drop(state);
                shared.changed.notify_all();
                written
            }
            Job::Pong(body) => zmtp::write_command(stream, &body),
            Job::Finish => {
                stream.shutdown(Shutdown::Write).ok();
                return;
            }
            Job::Gone => return,
        };
        if written.is_err() {
            stream.shutdown(Shutdown::Both).ok();
            return;
        }
    }
}

fn next_job(shared: &Shared, id: u64) -> Job {
    let mut guard = shared.lock();
    loop {
        let state = &mut *guard;
        let Some(peer) = state.peers.get_mut(&id) else {
            return Job::Gone;
        };
        if let Some(body) = peer.pong.take() {
            return Job::Pong(body);
        }
        let returned = if peer.finishing { None } else { state.returned.pop_front() };
        if let Some(message) = returned.or_else(|| peer.queue.pop_front()) {
            state.in_flight += 1;
            shared.changed.notify_all();
            return Job::Message(message);
        }
        if peer.finishing {
            return Job::Finish;
        }
        guard = shared.wait(guard);
    }
}
