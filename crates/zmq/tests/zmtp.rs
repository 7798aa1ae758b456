//! The receiver against peers that are written out by hand: good ones, broken ones, hostile ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beamstream_zmq::zmtp::{
    Endpoint, Limits, MAX_PARTS, Message, Mode, NoLeases, Options, PartBuffers, Receiver, SocketKind,
};

/// Long enough for any machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

fn greeting() -> Vec<u8> {
    let mut greeting = vec![0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 3, 0];
    greeting.extend(b"NULL");
    greeting.resize(64, 0);
    greeting
}

fn ready(kind: &str) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\x00\x00\x00".to_vec();
    body.push(kind.len() as u8);
    body.extend(kind.as_bytes());
    let mut command = vec![4, body.len() as u8];
    command.extend(body);
    command
}

/// A message on the wire; parts of 256 bytes and more with a long length.
fn frames<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let part = part.as_ref();
        let more = u8::from(at + 1 < parts.len());
        if part.len() < 256 {
            out.extend([more, part.len() as u8]);
        } else {
            out.push(more | 2);
            out.extend((part.len() as u64).to_be_bytes());
        }
        out.extend(part);
    }
    out
}

fn hello(kind: &str) -> Vec<u8> {
    [greeting(), ready(kind)].concat()
}

fn options(socket: SocketKind) -> Options {
    Options::new(Some(socket), 4, 64 << 20)
}

fn listening(options: &Options) -> (Receiver<Vec<u8>>, u16) {
    let endpoint = "tcp://127.0.0.1:0".parse().unwrap();
    let receiver = Receiver::start(&[(endpoint, Mode::Bind)], options, &NoLeases).unwrap();
    let Endpoint::Tcp { port, .. } = receiver.listening()[0] else { unreachable!() };
    (receiver, port)
}

fn connecting(socket: SocketKind) -> (Receiver<Vec<u8>>, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    (Receiver::start(&[(endpoint, Mode::Connect)], &options(socket), &NoLeases).unwrap(), listener)
}

fn visit(port: u16, bytes: &[u8]) -> TcpStream {
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    // A receiver that closes the door early is right.
    drop(peer.write_all(bytes));
    peer
}

fn next<L: beamstream_zmq::zmtp::Lease>(receiver: &Receiver<L>) -> Message<L> {
    receiver.messages().recv_timeout(PATIENCE).expect("a message was sent")
}

fn parts_of<L: beamstream_zmq::zmtp::Lease>(message: &mut Message<L>) -> Vec<Vec<u8>> {
    (0..message.len()).map(|at| message.part(at).unwrap().to_vec()).collect()
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let (receiver, port) = listening(&options(SocketKind::Pull));
    let sent: Vec<Vec<Vec<u8>>> = (0..20_usize)
        .map(|i| vec![vec![i as u8; i], vec![], vec![7; 70_000 * i], vec![1; 255 + i]])
        .collect();
    let wire: Vec<u8> = sent.iter().flat_map(|message| frames(message)).collect();
    let peer = std::thread::spawn(move || visit(port, &[hello("PUSH"), wire].concat()));
    for message in sent {
        assert_eq!(parts_of(&mut next(&receiver)), message);
    }
    drop(peer.join().unwrap());
}

/// Lends buffers for parts of one size.
#[derive(Clone)]
struct OneSize(usize, Arc<AtomicUsize>);

impl PartBuffers for OneSize {
    type Lease = Vec<u8>;

    fn buffer(&mut self, len: usize) -> Option<Vec<u8>> {
        (len == self.0).then(|| {
            self.1.fetch_add(1, Ordering::Relaxed);
            vec![0; len]
        })
    }
}

#[test]
fn parts_of_the_frame_size_land_in_leases() {
    let lent = Arc::new(AtomicUsize::new(0));
    let endpoint = "tcp://127.0.0.1:0".parse().unwrap();
    let buffers = OneSize(100_000, lent.clone());
    let mut receiver =
        Receiver::start(&[(endpoint, Mode::Bind)], &options(SocketKind::Pull), &buffers).unwrap();
    let Endpoint::Tcp { port, .. } = receiver.listening()[0] else { unreachable!() };
    let pixels = vec![42; 100_000];
    let peer = visit(port, &[hello("PUSH"), frames(&[b"header".as_slice(), &pixels, b"tail"])].concat());
    let mut message = next(&receiver);
    let mut slices = [[].as_slice(); MAX_PARTS];
    assert_eq!(message.parts(&mut slices), [b"header".as_slice(), &pixels, b"tail"]);
    assert!(message.take_lease(0).is_none());
    assert_eq!(message.take_lease(1), Some(pixels));
    assert_eq!(lent.load(Ordering::Relaxed), 1);
    receiver.stop();
    drop(peer);
}

#[test]
fn hostile_peers_cost_nothing_but_their_connection() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let notes = said.clone();
    let mut options = options(SocketKind::Pull);
    options.notify = Arc::new(move |text| notes.lock().unwrap().push(text));
    let (receiver, port) = listening(&options);
    let attacks: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        (0..=255).collect(),
        greeting()[..11].to_vec(),
        [hello("PUSH"), vec![2], (1_u64 << 62).to_be_bytes().to_vec(), vec![b'x'; 65536]].concat(),
        [greeting(), vec![6], (1_u64 << 40).to_be_bytes().to_vec()].concat(),
        [hello("PUSH"), vec![6], (1_u64 << 40).to_be_bytes().to_vec()].concat(),
        [hello("PUSH"), [1, 0].repeat(200_000)].concat(),
        hello("REP"),
        [greeting(), b"\x00\x05hello".to_vec()].concat(),
        vec![1, 0],
        vec![],
    ];
    let peers: Vec<TcpStream> =
        attacks.iter().flat_map(|attack| [visit(port, attack), visit(port, attack)]).collect();
    let good = visit(port, &[hello("PUSH"), frames(&[b"good"])].concat());
    assert_eq!(parts_of(&mut next(&receiver)), [b"good"]);
    // Those that are refused at once are told, and each kind once.
    let words = ["REP", "does not speak ZeroMQ", "a part of 4611686018427387904"];
    let give_up = Instant::now() + PATIENCE;
    while !words.iter().all(|word| said.lock().unwrap().iter().any(|text| text.contains(word))) {
        assert!(Instant::now() < give_up, "{:?}", said.lock().unwrap());
        std::thread::yield_now();
    }
    drop((good, peers, receiver));
    let said = said.lock().unwrap();
    assert!(said.iter().filter(|text| text.contains("REP")).count() == 1, "{said:?}");
}

#[test]
fn a_message_that_breaks_off_is_not_delivered() {
    let (receiver, port) = listening(&options(SocketKind::Pull));
    let wire = frames(&[b"first".as_slice(), &[9; 1000]]);
    drop(visit(port, &[hello("PUSH"), wire[..500].to_vec()].concat()));
    let peer = visit(port, &[hello("PUSH"), frames(&[b"whole"])].concat());
    assert_eq!(parts_of(&mut next(&receiver)), [b"whole"]);
    drop(peer);
    drop(receiver);
}

#[test]
fn parts_beyond_the_limit_are_discarded_and_said() {
    let (receiver, port) = listening(&options(SocketKind::Pull));
    let many = vec![b"x"; 3000];
    let peer = visit(port, &[hello("PUSH"), frames(&many), frames(&[b"next"])].concat());
    let message = next(&receiver);
    assert_eq!((message.len(), message.discarded_parts), (MAX_PARTS, 3000 - MAX_PARTS as u64));
    assert_eq!(parts_of(&mut next(&receiver)), [b"next"]);
    drop(peer);
}

#[test]
fn parts_and_messages_have_a_limit() {
    let mut options = options(SocketKind::Pull);
    options.limits = Limits { part_bytes: 1000, message_bytes: 1500, ..Limits::default() };
    let (receiver, port) = listening(&options);
    let long_part = visit(port, &[hello("PUSH"), frames(&[[0; 1001]])].concat());
    let long_message = visit(port, &[hello("PUSH"), frames(&[[0; 800]; 2])].concat());
    let good = visit(port, &[hello("PUSH"), frames(&[[0; 1000]])].concat());
    assert_eq!(next(&receiver).len(), 1);
    drop((long_part, long_message, good));
}

#[test]
fn a_lost_connection_is_made_again() {
    let (receiver, listener) = connecting(SocketKind::Pull);
    for round in 0..3_u8 {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(&[hello("PUSH"), frames(&[[round]])].concat()).unwrap();
        let mut message = next(&receiver);
        assert_eq!((message.peer, parts_of(&mut message)), (0, vec![vec![round]]));
    }
}

#[test]
fn a_subscriber_asks_for_everything_and_answers_pings() {
    let (receiver, listener) = connecting(SocketKind::Sub);
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(&hello("XPUB")).unwrap();
    let mut hello = vec![0; 64 + ready("SUB").len() + 3];
    peer.read_exact(&mut hello).unwrap();
    assert_eq!(hello[64..], [ready("SUB"), vec![0, 1, 1]].concat());
    peer.write_all(b"\x04\x0a\x04PING\x00\x10hey").unwrap();
    let mut pong = vec![0; 10];
    peer.read_exact(&mut pong).unwrap();
    assert_eq!(pong, b"\x04\x08\x04PONGhey");
    peer.write_all(&frames(&[b"published"])).unwrap();
    assert_eq!(parts_of(&mut next(&receiver)), [b"published"]);
}

#[test]
fn a_consumer_that_stalls_stops_the_sender_and_a_stop_frees_everybody() {
    let (mut receiver, port) = listening(&options(SocketKind::Pull));
    let mut peer = visit(port, &hello("PUSH"));
    peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let megabyte = frames(&[vec![0; 1 << 20]]);
    let taken = (0..500).take_while(|_| peer.write_all(&megabyte).is_ok()).count();
    assert!(taken < 100, "{taken} MiB were taken by a receiver that nobody reads");
    receiver.stop();
    assert!(receiver.messages().try_iter().count() >= 4, "whole messages can still be taken");
}

#[test]
fn without_a_kind_the_receiver_is_what_fits_the_peer() {
    let options = Options::new(None, 4, 64 << 20);
    let (receiver, port) = listening(&options);
    for kind in ["PUSH", "PUB", "XPUB"] {
        let mut peer = visit(port, &[hello(kind), frames(&[kind])].concat());
        assert_eq!(parts_of(&mut next(&receiver)), [kind.as_bytes()]);
        let mut answer = vec![0; 64 + ready("SUB").len()];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer.ends_with(b"SUB"), kind != "PUSH", "{kind}");
    }
}

#[test]
fn bytes_that_wait_are_bounded() {
    let (receiver, port) = listening(&Options::new(None, 1000, 3_000_000));
    let mut peer = visit(port, &hello("PUSH"));
    peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let megabyte = frames(&[vec![0; 1_000_000]]);
    while peer.write_all(&megabyte).is_ok() {}
    assert_eq!(receiver.messages().len(), 3);
}

#[test]
fn local_sockets_leave_nothing_behind() {
    let path = std::env::temp_dir().join(format!("beamstream-zmtp-{}", std::process::id()));
    let endpoint = Endpoint::Ipc(path.clone());
    for _ in 0..2 {
        let receiver =
            Receiver::start(&[(endpoint.clone(), Mode::Bind)], &options(SocketKind::Pull), &NoLeases)
                .unwrap();
        let mut peer = std::os::unix::net::UnixStream::connect(&path).unwrap();
        peer.write_all(&[hello("PUSH"), frames(&[b"local"])].concat()).unwrap();
        assert_eq!(parts_of(&mut next(&receiver)), [b"local"]);
        drop(receiver);
        assert!(!path.exists());
    }
}
