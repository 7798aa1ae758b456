use std::io::Read;

use beamstream_testkit::Receiver;
use bytes::Bytes;

use super::*;

fn pull(sender: &Sender) -> Receiver {
    Receiver::pull(&sender.endpoint().to_string()).unwrap()
}

/// The numbers of the next `count` messages.
fn numbers(receiver: &mut Receiver, count: usize) -> Vec<u8> {
    (0..count).map(|_| receiver.message().unwrap()[0][0]).collect()
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
        let mut receiver = pull(&sender);
        for number in 0..100 {
            let message = receiver.message().unwrap();
            assert_eq!(message, [vec![number], vec![number; 40_000]]);
        }
    });
}

#[test]
fn two_pull_peers_take_turns() {
    let sender = local(SocketKind::Push, 8);
    let mut receivers = [pull(&sender), pull(&sender)];
    until(&sender, |state| state.peers.len() == 2);
    for number in 0..8 {
        sender.send(numbered(number), &Stop::default()).unwrap();
    }
    sender.flush(&Stop::default()).unwrap();
    let mut both = receivers.each_mut().map(|r| numbers(r, 4));
    both.sort();
    assert_eq!(both, [[0, 2, 4, 6], [1, 3, 5, 7]]);
}

#[test]
fn a_peer_that_went_away_finds_the_rest_when_it_comes_back() {
    let sender = local(SocketKind::Push, 4);
    let stop = Stop::default();
    let mut first = pull(&sender);
    sender.send(numbered(0), &stop).unwrap();
    assert_eq!(numbers(&mut first, 1), [0]);
    drop(first);
    until(&sender, |state| state.peers.is_empty());
    let mut second = pull(&sender);
    for number in 1..4 {
        sender.send(numbered(number), &stop).unwrap();
    }
    assert_eq!(numbers(&mut second, 3), [1, 2, 3]);
}

#[test]
fn what_a_lost_peer_had_not_taken_goes_to_the_next() {
    let sender = local(SocketKind::Push, 64);
    let stop = Stop::default();
    let silent = pull(&sender);
    until(&sender, |state| state.peers.len() == 1);
    let big = |number: u8| vec![Bytes::from(vec![number]), Bytes::from(vec![number; 16 << 20])];
    for number in 0..4 {
        sender.send(big(number), &stop).unwrap();
    }
    // The first is stuck in a stream that nobody reads; the others wait.
    until(&sender, |state| state.in_flight == 1);
    drop(silent);
    let mut next = pull(&sender);
    let mut numbers = numbers(&mut next, 4);
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3]);
}

#[test]
fn closing_delivers_what_is_queued() {
    let sender = local(SocketKind::Push, 64);
    let mut receiver = pull(&sender);
    until(&sender, |state| state.peers.len() == 1);
    for number in 0..50 {
        sender.send(numbered(number), &Stop::default()).unwrap();
    }
    let closing = thread::spawn(move || sender.close(Duration::from_mins(1)));
    assert_eq!(numbers(&mut receiver, 50), (0..50).collect::<Vec<_>>());
    assert!(receiver.message().is_err(), "the stream ends after the last message");
    drop(receiver);
    closing.join().unwrap();
}

#[test]
fn peers_that_are_disconnected_may_come_back() {
    let sender = local(SocketKind::Push, 8);
    let stop = Stop::default();
    let mut first = pull(&sender);
    sender.send(numbered(0), &stop).unwrap();
    sender.disconnect_peers();
    assert_eq!(numbers(&mut first, 1), [0]);
    assert!(first.message().is_err());
    let mut second = pull(&sender);
    sender.send(numbered(1), &stop).unwrap();
    assert_eq!(numbers(&mut second, 1), [1]);
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
    let mut wants = Receiver::subscribe(&sender.endpoint().to_string(), &[7]).unwrap();
    sender.wait_for_peer(&stop).unwrap();
    sender.send(numbered(6), &stop).unwrap();
    sender.send(numbered(7), &stop).unwrap();
    sender.flush(&stop).unwrap();
    assert_eq!(numbers(&mut wants, 1), [7]);
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
