use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;

use super::*;

/// A receiver written down byte by byte, apart from the sender's own code.
struct Receiver(TcpStream);

impl Receiver {
    fn connect(sender: &Sender, socket_type: &str) -> Self {
        let Endpoint::Tcp { host, port } = sender.endpoint() else {
            panic!("not tcp")
        };
        let mut stream = TcpStream::connect((host.as_str(), *port)).unwrap();
        let mut hello = vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 1];
        hello.extend(b"NULL");
        hello.resize(64, 0);
        let kind = [&[socket_type.len() as u8], socket_type.as_bytes()].concat();
        let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &kind[..]].concat();
        hello.extend([4, ready.len() as u8]);
        hello.extend(ready);
        stream.write_all(&hello).unwrap();
        let mut greeting = [0; 64];
        stream.read_exact(&mut greeting).unwrap();
        let mut receiver = Self(stream);
        receiver.frame().unwrap();
        receiver
    }

    fn subscribe(mut self, sender: &Sender, prefix: &str) -> Self {
        self.0.write_all(&[0, prefix.len() as u8 + 1, 1]).unwrap();
        self.0.write_all(prefix.as_bytes()).unwrap();
        sender.wait_for_peer(&Stop::default()).unwrap();
        self
    }

    /// The flags and the body of the next frame.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut flags = [0];
        self.0.read_exact(&mut flags).ok()?;
        let mut length = vec![0; if flags[0] & 2 == 0 { 1 } else { 8 }];
        self.0.read_exact(&mut length).unwrap();
        let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        Some((flags[0], body))
    }

    fn message(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut parts = Vec::new();
        loop {
            let (flags, body) = self.frame()?;
            parts.push(body);
            if flags & 1 == 0 {
                return Some(parts);
            }
        }
    }

    /// The numbers of the next `count` messages.
    fn numbers(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.message().unwrap()[0][0]).collect()
    }
}

fn local(kind: SocketKind, queue_messages: usize) -> Sender {
    let endpoint = "tcp://127.0.0.1:0".parse().unwrap();
    Sender::bind(kind, &endpoint, queue_messages).unwrap()
}

fn numbered(number: u8) -> Message {
    vec![Bytes::from(vec![number]), Bytes::from(vec![number; 40_000])]
}

fn until(sender: &Sender, done: impl Fn(&State) -> bool) {
    sender.wait_until(&Stop::default(), done).unwrap();
}

#[test]
fn a_push_waits_for_a_peer_that_comes_late_and_keeps_the_order() {
    let sender = local(SocketKind::Push, 2);
    let stop = Stop::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..100 {
                sender.send(numbered(number), &stop).unwrap();
            }
        });
        let mut receiver = Receiver::connect(&sender, "PULL");
        for number in 0..100 {
            let message = receiver.message().unwrap();
            assert_eq!(message, [vec![number], vec![number; 40_000]]);
        }
    });
}

#[test]
fn two_pull_peers_take_turns() {
    let sender = local(SocketKind::Push, 8);
    let mut receivers = [
        Receiver::connect(&sender, "PULL"),
        Receiver::connect(&sender, "PULL"),
    ];
    until(&sender, |state| state.peers.len() == 2);
    for number in 0..8 {
        sender.send(numbered(number), &Stop::default()).unwrap();
    }
    sender.flush(&Stop::default()).unwrap();
    let mut both = receivers.each_mut().map(|r| r.numbers(4));
    both.sort();
    assert_eq!(both, [[0, 2, 4, 6], [1, 3, 5, 7]]);
}

#[test]
fn a_peer_that_went_away_finds_the_rest_when_it_comes_back() {
    let sender = local(SocketKind::Push, 4);
    let stop = Stop::default();
    let mut first = Receiver::connect(&sender, "PULL");
    sender.send(numbered(0), &stop).unwrap();
    assert_eq!(first.numbers(1), [0]);
    drop(first);
    until(&sender, |state| state.peers.is_empty());
    let mut second = Receiver::connect(&sender, "PULL");
    for number in 1..4 {
        sender.send(numbered(number), &stop).unwrap();
    }
    assert_eq!(second.numbers(3), [1, 2, 3]);
}

#[test]
fn what_a_lost_peer_had_not_taken_goes_to_the_next() {
    let sender = local(SocketKind::Push, 64);
    let stop = Stop::default();
    let silent = Receiver::connect(&sender, "PULL");
    until(&sender, |state| state.peers.len() == 1);
    let big = |number: u8| vec![Bytes::from(vec![number]), Bytes::from(vec![number; 16 << 20])];
    for number in 0..4 {
        sender.send(big(number), &stop).unwrap();
    }
    // The first is stuck in a stream that nobody reads; the others wait.
    until(&sender, |state| state.in_flight == 1);
    drop(silent);
    let mut next = Receiver::connect(&sender, "PULL");
    let mut numbers = next.numbers(4);
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3]);
}

#[test]
fn closing_delivers_what_is_queued() {
    let sender = local(SocketKind::Push, 64);
    let mut receiver = Receiver::connect(&sender, "PULL");
    until(&sender, |state| state.peers.len() == 1);
    for number in 0..50 {
        sender.send(numbered(number), &Stop::default()).unwrap();
    }
    let closing = thread::spawn(move || sender.close(Duration::from_secs(60)));
    assert_eq!(receiver.numbers(50), (0..50).collect::<Vec<_>>());
    assert!(
        receiver.message().is_none(),
        "the stream ends after the last message"
    );
    drop(receiver);
    closing.join().unwrap();
}

#[test]
fn peers_that_are_disconnected_may_come_back() {
    let sender = local(SocketKind::Push, 8);
    let stop = Stop::default();
    let mut first = Receiver::connect(&sender, "PULL");
    sender.send(numbered(0), &stop).unwrap();
    sender.disconnect_peers();
    assert_eq!(first.numbers(1), [0]);
    assert!(first.message().is_none());
    let mut second = Receiver::connect(&sender, "PULL");
    sender.send(numbered(1), &stop).unwrap();
    assert_eq!(second.numbers(1), [1]);
}

#[test]
fn a_stop_ends_the_wait_for_a_peer() {
    let sender = local(SocketKind::Push, 1);
    let stop = Stop::default();
    stop.set();
    assert_eq!(sender.send(numbered(0), &stop), Err(Stopped));
    assert_eq!(sender.wait_for_peer(&stop), Err(Stopped));
}

#[test]
fn a_pub_sends_what_is_subscribed_and_drops_what_is_too_much() {
    let sender = local(SocketKind::Pub, 3);
    let stop = Stop::default();
    sender.send(numbered(0), &stop).unwrap();
    let mut wants = Receiver::connect(&sender, "SUB").subscribe(&sender, "\u{7}");
    sender.send(numbered(6), &stop).unwrap();
    sender.send(numbered(7), &stop).unwrap();
    sender.flush(&stop).unwrap();
    assert_eq!(wants.numbers(1), [7]);
    assert_eq!(sender.dropped(), 0);
    // More than the streams' own buffers hold.
    for _ in 0..2000 {
        sender.send(numbered(7), &stop).unwrap();
    }
    assert!(sender.dropped() > 0);
}

#[test]
fn a_sender_can_connect_to_a_receiver_that_binds_later() {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = probe.local_addr().unwrap();
    drop(probe);
    let endpoint: Endpoint = format!("tcp://{address}").parse().unwrap();
    let sender = Sender::connect(SocketKind::Push, &endpoint, 4).unwrap();
    let listener = std::net::TcpListener::bind(address).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let mut greeting = [0; 64];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting[..16], *b"\xff\0\0\0\0\0\0\0\0\x7f\x03\0NULL");
    drop(sender);
}
