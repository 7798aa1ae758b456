//! What a simulated detector puts on the wire, read with a receiver of its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::thread::{self, JoinHandle};

use beamstream_core::{ElementType, Format, Role};
use beamstream_sim::{Encoding, Protocol, Sent, Settings, SimError, Simulator, SocketKind, Stack, Stop};
use beamstream_testkit::Receiver;
use serde_json::{Value, json};

const FORMAT: Format = Format::frame(ElementType::U16, 4, 6);

/// The pixels of frame `number` of the scan.
fn pixels(number: u8) -> Vec<u8> {
    (0..48).map(|i| number * 50 + i).collect()
}

/// A flat, a dark and three projections at 0, 60 and 120 degrees; frame `i` shows `pixels(i)`.
fn scan() -> Stack {
    let mut stack = Stack::new(FORMAT);
    let frames = [
        (Role::Flat, None),
        (Role::Dark, None),
        (Role::Projection, Some(0.0)),
        (Role::Projection, Some(60.0)),
        (Role::Projection, Some(120.0)),
    ];
    for (number, (role, angle_deg)) in (0..).zip(frames) {
        stack.push(role, angle_deg, &pixels(number));
    }
    stack
}

struct Running {
    endpoint: String,
    stop: Stop,
    thread: JoinHandle<Result<Sent, SimError>>,
}

/// Sends the scan in a thread.
fn start(protocol: Protocol, change: impl FnOnce(&mut Settings)) -> Running {
    let mut settings = Settings::new(protocol, "tcp://127.0.0.1:0".parse().unwrap());
    settings.encoding = Some(Encoding::None);
    change(&mut settings);
    let simulator = Simulator::open(Box::new(scan()), settings).unwrap();
    let (endpoint, stop) = (simulator.endpoint().to_string(), simulator.stop());
    Running { endpoint, stop, thread: thread::spawn(|| simulator.run(|_| ())) }
}

/// All messages that a PULL socket gets, until the simulator closes.
fn pull_all(running: Running) -> (Vec<Vec<Vec<u8>>>, Sent) {
    let mut receiver = Receiver::pull(&running.endpoint).unwrap();
    let messages = std::iter::from_fn(|| receiver.message().ok()).collect();
    drop(receiver);
    (messages, running.thread.join().unwrap().unwrap())
}

fn json_of(part: &[u8]) -> Value {
    serde_json::from_slice(part).unwrap()
}

/// A short text for each DECTRIS V1 message: `H1k2` header of series 1 with image key 2, `1:0` frame, `E1` end.
fn short(messages: &[Vec<Vec<u8>>]) -> String {
    let texts = messages.iter().map(|message| {
        let first = json_of(&message[0]);
        match first["htype"].as_str().unwrap() {
            "dheader-1.0" => format!("H{}k{}", first["series"], json_of(&message[2])["image_key"]),
            "dimage-1.0" => format!("{}:{}", first["series"], first["frame"]),
            _ => format!("E{}", first["series"]),
        }
    });
    texts.collect::<Vec<_>>().join(" ")
}

#[test]
fn dectris_v1_sends_darks_flats_and_projections_as_series() {
    let (messages, sent) = pull_all(start(Protocol::DectrisV1, |_| ()));
    assert_eq!(short(&messages), "H1k2 1:0 E1 H2k1 2:0 E2 H3k0 3:0 3:1 3:2 E3");
    assert_eq!(sent.frames, 5);
    let configuration = json_of(&messages[6][1]);
    assert_eq!((&configuration["nimages"], &configuration["omega_increment"]), (&json!(3), &json!(60.0)));
    let images = messages.iter().filter(|m| m.len() == 4).map(|m| m[2].clone());
    assert_eq!(images.collect::<Vec<_>>(), [1, 0, 2, 3, 4].map(pixels));
}

#[test]
fn dectris_v2_sends_one_part_a_message() {
    let (messages, _) = pull_all(start(Protocol::DectrisV2, |s| s.first_series = 40));
    assert_eq!(messages.len(), 11);
    assert!(messages.iter().all(|m| m.len() == 1 && m[0].starts_with(b"\xd9\xd9\xf7")));
    assert!(messages[8][0].ends_with(&pixels(3)));
    let holds = |message: &[u8], text: &[u8]| message.windows(text.len()).any(|w| w == text);
    assert!(holds(&messages[6][0], b"\x69series_id\x18\x2a"), "projections are series 42");
    assert!(holds(&messages[6][0], b"\x69increment\xfb\x40\x4e\0\0\0\0\0\0"), "60 degrees as a double");
}

#[test]
fn concert_sends_three_streams_with_an_end_each() {
    let (messages, _) = pull_all(start(Protocol::Concert, |_| ()));
    let ends: Vec<usize> = (0..messages.len()).filter(|&i| messages[i] == [br#"{"end":true}"#]).collect();
    assert_eq!((messages.len(), ends), (8, vec![1, 3, 7]));
    assert_eq!(json_of(&messages[4][0]), json!({"dtype": "uint16", "shape": [4, 6]}));
    assert_eq!(messages[5][1], pixels(3));
}

#[test]
fn array_sends_one_numbered_stream_with_roles_and_angles() {
    let (messages, _) = pull_all(start(Protocol::Array, |s| s.repeat = 2));
    let told = |key: &str| messages.iter().map(|m| json_of(&m[0])[key].clone()).collect::<Vec<_>>();
    assert_eq!(told("frame"), (0..10).map(|n| json!(n)).collect::<Vec<_>>());
    assert_eq!(told("image_key")[..5], [2, 1, 0, 0, 0].map(|key| json!(key)));
    assert_eq!(told("angle_deg")[..5], [Value::Null, Value::Null, json!(0.0), json!(60.0), json!(120.0)]);
}

#[test]
fn repetitions_count_series_on_and_packed_frames_stay_the_same() {
    let (messages, _) = pull_all(start(Protocol::DectrisV1, |s| {
        (s.repeat, s.preload, s.encoding) = (2, true, Some(Encoding::Bslz4));
    }));
    let (first, second) = messages.split_at(11);
    assert_eq!(short(second), "H4k2 4:0 E4 H5k1 5:0 E5 H6k0 6:0 6:1 6:2 E6");
    for (once, again) in first.iter().zip(second).filter(|(once, _)| once.len() == 4) {
        assert_eq!(once[2], again[2]);
    }
}

#[test]
fn damaged_frames_are_damaged_as_asked() {
    let (messages, _) = pull_all(start(Protocol::DectrisV1, |s| {
        s.faults = "wrong-shape=0;truncate=1;corrupt=2".parse().unwrap();
    }));
    let images: Vec<_> = messages[7..10].iter().collect();
    assert_eq!(json_of(&images[0][1])["shape"], json!([6, 2]));
    assert_eq!(images[0][2], pixels(2)[..24]);
    assert_eq!(json_of(&images[1][1])["shape"], json!([6, 4]));
    assert_eq!(images[1][2], pixels(3)[..24]);
    assert!(serde_json::from_slice::<Value>(&images[2][0]).is_err());
}

#[test]
fn packed_frames_are_damaged_behind_their_sizes() {
    let (messages, _) = pull_all(start(Protocol::DectrisV1, |s| {
        (s.faults, s.encoding) = ("corrupt=1".parse().unwrap(), Some(Encoding::Bslz4));
    }));
    let blob = &messages[8][2];
    assert_eq!(blob[..12], [0, 0, 0, 0, 0, 0, 0, 48, 0, 0, 32, 0]);
    assert!(blob[12..].iter().all(|byte| *byte == 0xFF) && blob.len() > 12);
}

#[test]
fn a_late_frame_comes_after_the_end() {
    let (messages, sent) = pull_all(start(Protocol::DectrisV1, |s| {
        s.faults = "late=1:0.05".parse().unwrap();
    }));
    assert!(short(&messages).ends_with("H3k0 3:0 3:2 E3 3:1"), "{}", short(&messages));
    assert_eq!(sent.frames, 5);
}

#[test]
fn a_disconnected_receiver_comes_back_for_the_rest() {
    let running = start(Protocol::Array, |s| s.faults = "disconnect=1".parse().unwrap());
    let mut numbers = Vec::new();
    while numbers.len() < 5 {
        let mut receiver = Receiver::pull(&running.endpoint).unwrap();
        while let Ok(message) = receiver.message() {
            numbers.push(json_of(&message[0])["frame"].as_u64().unwrap());
        }
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    assert_eq!(running.thread.join().unwrap().unwrap().frames, 5);
}

#[test]
fn a_publisher_that_waits_for_its_subscriber_loses_nothing() {
    let running = start(Protocol::Array, |s| {
        (s.socket, s.wait_for_peer) = (SocketKind::Pub, true);
    });
    let mut receiver = Receiver::subscribe(&running.endpoint, b"").unwrap();
    let mut bytes = 0;
    for number in 0..5 {
        let message = receiver.message().unwrap();
        assert_eq!(json_of(&message[0])["frame"], number);
        bytes += message.iter().map(|part| part.len() as u64).sum::<u64>();
    }
    assert!(receiver.message().is_err());
    drop(receiver);
    assert_eq!(running.thread.join().unwrap().unwrap(), Sent { frames: 5, dropped: 0, bytes });
}

#[test]
fn a_stop_ends_a_simulator_that_nobody_listens_to() {
    let running = start(Protocol::Concert, |s| s.repeat = 0);
    running.stop.set();
    assert!(matches!(running.thread.join().unwrap(), Err(SimError::Stopped(_))));
}

#[test]
fn contradictions_are_refused_before_anything_is_sent() {
    let open = |change: fn(&mut Settings)| {
        let mut settings = Settings::new(Protocol::Array, "tcp://127.0.0.1:0".parse().unwrap());
        change(&mut settings);
        Simulator::open(Box::new(scan()), settings).map(drop).unwrap_err()
    };
    assert!(matches!(open(|s| s.encoding = Some(Encoding::Lz4)), SimError::Encoding(_)));
    assert!(matches!(open(|s| s.faults = "no-end".parse().unwrap()), SimError::Fault(_)));
    assert!(matches!(open(|s| s.rate_hz = Some(f64::NAN)), SimError::Rate(_)));
    assert!(matches!(open(|s| s.endpoint = "tcp://256.0.0.1:1".parse().unwrap()), SimError::Sender(_)));
}
