//! The source against simulated detectors, whose messages are encoded independently of this crate.

use beamstream_core::{ElementType, Format, FrameCounts, Role};
use beamstream_node::{Event, StopController};
use beamstream_sim_wire::{
    Encoding, FrameInfo, Protocol as Sent, Sender, SeriesInfo, SocketKind as Sends, Stop,
};
use serde_json::{Value, json};

use super::*;
use crate::outlet;

const FORMAT: Format = Format::frame(ElementType::U16, 13, 21);
const TIMEOUT: Duration = Duration::from_mins(1);

fn source(settings: Value) -> ZmqSource {
    serde_json::from_value::<ZmqSourceConfig>(settings).unwrap().source().unwrap()
}

/// A detector that a source can connect to.
fn detector(kind: Sends) -> (Sender, String) {
    let sender = Sender::bind(kind, &"tcp://127.0.0.1:0".parse().unwrap(), 1000).unwrap();
    let endpoint = sender.endpoint().to_string();
    (sender, endpoint)
}

fn pixels(number: u64) -> Vec<u8> {
    (0..FORMAT.bytes()).map(|at| (at as u64 * 7 + number * 31) as u8).collect()
}

/// The messages of a series.
fn series(
    protocol: Sent,
    encoding: Encoding,
    number: u64,
    role: Role,
    frames: u64,
) -> Vec<beamstream_sim_wire::Message> {
    let encoder = protocol.encoder(encoding).unwrap();
    let omega_deg = Some((10.0, 0.5));
    let info = SeriesInfo { number, role, format: FORMAT, frames, omega_deg, frame_time_secs: 0.1 };
    let image = |frame| {
        let info = FrameInfo {
            series: number,
            number: frame,
            role,
            angle_deg: None,
            format: FORMAT,
            frame_time_secs: 0.1,
        };
        encoder.image(&info, encoder.payload(&pixels(frame), FORMAT))
    };
    encoder.header(&info).into_iter().chain((0..frames).map(image)).chain(encoder.end(number)).collect()
}

/// Runs a source while `messages` are sent; gives what it sent on and its outlet.
fn run(
    mut source: ZmqSource,
    sender: &Sender,
    messages: Vec<beamstream_sim_wire::Message>,
) -> (Vec<Event>, Outlet) {
    let (mut out, events, _controller): (_, _, StopController) = outlet::open(40, 4096);
    std::thread::scope(|scope| {
        let stop = Stop::default();
        scope.spawn(move || {
            sender.wait_for_peer(&stop).unwrap();
            for message in messages {
                sender.send(message, &stop).unwrap();
            }
        });
        source.run(&mut out).unwrap();
    });
    (events.try_iter().collect(), out)
}

/// Roles, numbers and pixels of the blocks.
fn frames(events: &[Event]) -> Vec<(Role, u64, Vec<u8>)> {
    let frame = |event: &Event| match event {
        Event::Block(block) => Some((block.meta.role, block.meta.frame.number, block.bytes().to_vec())),
        _ => None,
    };
    events.iter().filter_map(frame).collect()
}

fn summaries(events: &[Event]) -> Vec<FrameCounts> {
    let summary = |event: &Event| {
        if let Event::End(summary) = event { Some(summary.counts.clone()) } else { None }
    };
    events.iter().filter_map(summary).collect()
}

#[test]
fn every_protocol_and_encoding_gives_the_same_frames() {
    for protocol in Sent::ALL {
        for encoding in Encoding::ALL {
            let Ok(_) = protocol.encoder(encoding) else {
                continue;
            };
            let (sender, endpoint) = detector(Sends::Push);
            let settings = json!({ "endpoint": endpoint, "role": "projection", "max_series": 1, "series_timeout_secs": 0.5 });
            let messages = series(protocol, encoding, 3, Role::Projection, 9);
            let (events, out) = run(source(settings), &sender, messages);
            let expected: Vec<_> = (0..9).map(|number| (Role::Projection, number, pixels(number))).collect();
            assert_eq!(frames(&events), expected, "{} {}", protocol.name(), encoding.name());
            assert_eq!((summaries(&events)[0].processed, summaries(&events)[0].lost), (9, 0));
            assert_eq!(out.journal().all_series()[0].counts.processed, 9);
        }
    }
}

#[test]
fn a_scan_of_three_published_series_keeps_roles_and_angles() {
    let (sender, endpoint) = detector(Sends::Pub);
    let protocol = Sent::DectrisV2;
    let roles = [(1, Role::Dark, 2), (2, Role::Flat, 3), (3, Role::Projection, 5)];
    let scan = |(number, role, count)| series(protocol, Encoding::Bslz4, number, role, count);
    let settings = json!({ "endpoint": endpoint, "protocol": "auto", "max_series": 1 });
    let (events, _) = run(source(settings), &sender, roles.into_iter().flat_map(scan).collect());
    let seen: Vec<_> = frames(&events).into_iter().map(|(role, number, _)| (role, number)).collect();
    let expected = roles.into_iter().flat_map(|(_, role, count)| (0..count).map(move |n| (role, n)));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    let angles: Vec<_> = events
        .iter()
        .filter_map(|event| if let Event::Block(block) = event { block.meta.angle_rad } else { None })
        .map(|angle| (angle.to_degrees() * 10.0).round() / 10.0)
        .collect();
    assert_eq!(angles[angles.len() - 5..], [10.0, 10.5, 11.0, 11.5, 12.0]);
}

#[test]
fn uncompressed_frames_are_received_into_their_blocks() {
    // One buffer more than is lent to the connection: the frames could not pass if they were kept.
    let (sender, endpoint) = detector(Sends::Push);
    let settings = json!({ "endpoint": endpoint, "role": "projection", "max_series": 1 });
    let messages = series(Sent::DectrisV1, Encoding::None, 3, Role::Projection, 35);
    let (events, _) = run(source(settings), &sender, messages);
    assert_eq!(frames(&events).len(), 35);
}

#[test]
fn a_drain_uses_what_arrived_and_says_that_it_was_cut_short() {
    let (sender, endpoint) = detector(Sends::Push);
    let mut source = source(json!({ "endpoint": endpoint, "role": "projection" }));
    let (mut out, events, controller) = outlet::open(40, 4096);
    let mut messages = series(Sent::DectrisV1, Encoding::Lz4, 3, Role::Projection, 9);
    messages.truncate(1 + 5);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| source.run(&mut out));
        let stop = Stop::default();
        for message in messages {
            sender.send(message, &stop).unwrap();
        }
        let blocks: Vec<Event> = (0..6).map(|_| events.recv_timeout(TIMEOUT).unwrap()).collect();
        assert_eq!(frames(&blocks).len(), 5);
        controller.drain();
        running.join().unwrap().unwrap();
    });
    let Some(Event::End(summary)) = events.try_iter().last() else { panic!("the series was not ended") };
    assert!(summary.aborted);
    assert_eq!((summary.counts.processed, summary.counts.lost), (5, 4));
}

#[test]
fn settings_that_cannot_work_are_named() {
    let refused = |settings: Value| {
        let config = serde_json::from_value::<ZmqSourceConfig>(settings).unwrap();
        let error = config.source().err().unwrap();
        (error.key.unwrap(), error.message)
    };
    let endpoint = "tcp://127.0.0.1:1";
    for (settings, key) in [
        (json!({ "endpoint": "127.0.0.1:1" }), "endpoint"),
        (json!({ "endpoint": "tcp://*:1" }), "endpoint"),
        (json!({ "endpoint": [] }), "endpoint"),
        (json!({ "endpoint": endpoint, "max_series": 0 }), "max_series"),
        (json!({ "endpoint": endpoint, "roles": { "dark": "0:9", "flat": "8:12" } }), "roles"),
        (json!({ "endpoint": endpoint, "end_grace_secs": -1.0 }), "end_grace_secs"),
        (json!({ "endpoint": endpoint, "angles": { "start_deg": 0.0 } }), "angles"),
        (json!({ "endpoint": endpoint, "angles": { "file": "/nowhere/angles.txt" } }), "angles"),
    ] {
        let (found, message) = refused(settings);
        assert_eq!(found, key, "{message}");
    }
    let typo = json!({ "endpoint": endpoint, "protocoll": "auto" });
    assert!(serde_json::from_value::<ZmqSourceConfig>(typo).is_err());
}

#[test]
fn settings_are_read_as_they_are_written() {
    let path = std::env::temp_dir().join(format!("beamstream-angles-{}.txt", std::process::id()));
    std::fs::write(&path, "# degrees\n0\n90, 180\n").unwrap();
    let source = source(json!({
        "endpoint": ["tcp://a:1", "ipc:///tmp/b"], "protocol": "array-1.0", "socket": "sub", "mode": "connect",
        "roles": { "dark": "0:20", "flat": ["20:40", "60:70"] }, "series_roles": ["dark", "projection"],
        "angles": { "file": path, "override": true }, "channel": "threshold_2", "end_grace_secs": 0,
    }));
    std::fs::remove_file(path).unwrap();
    assert_eq!(source.endpoints.len(), 2);
    assert_eq!((source.protocol, source.socket), (Protocol::Array, Some(SocketKind::Sub)));
    assert_eq!(source.rules.roles.len(), 3);
    let table = source.rules.angles.table_rad.as_ref().unwrap();
    assert!(
        source.rules.angles.wins
            && (table[1] - std::f64::consts::FRAC_PI_2).abs() < 1e-12
            && table.len() == 3
    );
}
