//! A run that is made up, a real socket, and a WebSocket client small enough to be read.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beamstream_buffer::{Block, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameCounts, FrameId, Role, SeriesHeader, SeriesId};
use beamstream_engine::{NodeStatus, RunState, SetFailure, Status, WorkerState};
use beamstream_node::{Board, SeriesRecord, SetError, View};
use serde_json::{Value, json};

use crate::http::MAX_VIEWERS;
use crate::picture::HEADER_BYTES;
use crate::{LiveRun, Server, ServerError};

/// Long enough for any machine; reached only when a test fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// A run that does what a test says.
#[derive(Default)]
pub(crate) struct FakeRun {
    pub(crate) board: Board,
    ended: AtomicBool,
    changes: Mutex<Vec<(String, String, Value)>>,
}

impl LiveRun for FakeRun {
    fn status(&self) -> Status {
        let mut counts =
            FrameCounts { expected: Some(100), received: 40, processed: 40, ..FrameCounts::default() };
        counts.lost = 60;
        counts.lost_ranges = vec![[40, 99]];
        let ended = self.ended.load(Ordering::Relaxed);
        Status {
            state: if ended { RunState::Ended } else { RunState::Running },
            series: vec![record(7, counts)],
            ..run_status()
        }
    }

    fn views(&self) -> BTreeMap<String, View> {
        self.board.snapshot()
    }

    fn set(&self, node: &str, key: &str, value: Value) -> Result<u32, SetFailure> {
        if node != "volume" {
            let message = format!("no node is named '{node}'");
            return Err(SetError::Value { key: key.to_owned(), message }.into());
        }
        let mut changes = self.changes.lock().unwrap();
        changes.push((node.to_owned(), key.to_owned(), value));
        Ok(changes.len() as u32)
    }
}

pub(crate) fn run_status() -> Status {
    let node = NodeStatus {
        id: "detector".to_owned(),
        kind: "zmq_source",
        state: WorkerState::Working,
        blocks_in: 0,
        blocks_out: 40,
        bytes_out: 4000,
    };
    Status {
        state: RunState::Running,
        elapsed: Duration::from_secs(1),
        nodes: vec![node],
        series: Vec::new(),
    }
}

pub(crate) fn record(number: u64, counts: FrameCounts) -> SeriesRecord {
    SeriesRecord {
        counts,
        rotation_axis_px: Some(31.5),
        first_frame: Some(Instant::now()),
        ..SeriesRecord::new(SeriesId { number, ordinal: number })
    }
}

/// A slice of `n` x `n` voxels of one value.
pub(crate) fn image(n: usize, value: f32) -> Block {
    let format = Format::slice(ElementType::F32, n);
    let mut lease = Pool::host("test", 1, format.bytes()).unwrap().lease(format).unwrap();
    lease.elements_mut::<f32>().unwrap().fill(value);
    lease.freeze(BlockMeta::new(FrameId::new(0), Role::Projection))
}

fn serve() -> (Server, Arc<FakeRun>) {
    let run = Arc::new(FakeRun::default());
    let server = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), run.clone()).unwrap();
    (server, run)
}

/// Sends one request and gives the status code and everything behind it.
fn ask(server: &Server, request: &str, headers: &str, body: &str) -> (u16, String) {
    let address = server.address();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let length = body.len();
    let host = if headers.contains("Host:") { String::new() } else { format!("Host: {address}\r\n") };
    let head =
        format!("{request} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    socket.write_all((head + body).as_bytes()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (code, answer)
}

fn get(server: &Server, path: &str) -> (u16, String) {
    ask(server, &format!("GET {path}"), "", "")
}

/// The least that a WebSocket client needs (RFC 6455).
struct Viewer {
    socket: TcpStream,
}

#[derive(Debug, PartialEq)]
enum Heard {
    Status(Value),
    Image(Vec<u8>),
    Ping,
    Close,
}

impl Viewer {
    /// Asks for a WebSocket; gives the status code of the answer too.
    fn connect(address: SocketAddr, origin: &str) -> (u16, Self) {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!(
            "GET /api/v1/live HTTP/1.1\r\nHost: {address}\r\nOrigin: {origin}\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let code = std::str::from_utf8(&head[9..12]).unwrap().parse().unwrap();
        (code, Self { socket })
    }

    fn open(server: &Server) -> Self {
        let address = server.address();
        let (code, viewer) = Self::connect(address, &format!("http://{address}"));
        assert_eq!(code, 101);
        viewer
    }

    fn say(&mut self, text: &str) {
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.socket.write_all(&frame).unwrap();
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn hear(&mut self) -> Heard {
        let [kind, length] = self.bytes();
        let length = match length {
            126 => u16::from_be_bytes(self.bytes()).into(),
            127 => u64::from_be_bytes(self.bytes()),
            short => short.into(),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.socket.read_exact(&mut payload).unwrap();
        match kind {
            0x81 => Heard::Status(serde_json::from_slice(&payload).unwrap()),
            0x82 => Heard::Image(payload),
            0x89 => Heard::Ping,
            0x88 => Heard::Close,
            other => panic!("frame of kind {other:#x}"),
        }
    }

    /// The first voxel of the next image.
    fn next_image(&mut self) -> f32 {
        let deadline = Instant::now() + DEADLINE;
        while Instant::now() < deadline {
            if let Heard::Image(message) = self.hear() {
                return f32::from_le_bytes(message[HEADER_BYTES..HEADER_BYTES + 4].try_into().unwrap());
            }
        }
        panic!("no image came");
    }

    /// How many images come while `count` states of the run do.
    fn images_within_statuses(&mut self, mut count: usize) -> usize {
        let mut images = 0;
        while count > 0 {
            match self.hear() {
                Heard::Status(_) => count -= 1,
                Heard::Image(_) => images += 1,
                Heard::Ping => {}
                Heard::Close => panic!("the connection was closed"),
            }
        }
        images
    }
}

#[test]
fn the_state_of_the_run_is_told() {
    let (server, _run) = serve();
    let (code, answer) = get(&server, "/api/v1/status");
    assert_eq!(code, 200);
    let status: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(status["state"], "running");
    assert_eq!(status["series"][0]["frames"]["received"], 40);
    assert_eq!(status["series"][0]["frames"]["lost"], 0);
    assert_eq!(status["series"][0]["rotation_axis_px"], 31.5);
    let Heard::Status(pushed) = Viewer::open(&server).hear() else { panic!("the state comes first") };
    assert_eq!(pushed["series"][0]["id"], 7);
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let (server, _run) = serve();
    let (code, page) = get(&server, "/");
    assert_eq!(code, 200);
    let head = page.to_ascii_lowercase();
    assert!(
        head.contains("content-type: text/html")
            && head.contains("content-security-policy: default-src 'none'")
    );
    for foreign in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "the page contains {foreign}");
    }
}

#[test]
fn a_viewer_that_acknowledges_nothing_gets_one_image() {
    let (server, run) = serve();
    run.board.pin("eyes", 0, image(2, 1.0));
    let mut viewer = Viewer::open(&server);
    assert_eq!(viewer.next_image(), 1.0);
    for value in [2.0, 3.0] {
        run.board.pin("eyes", 0, image(2, value));
        assert_eq!(viewer.images_within_statuses(3), 0);
    }
    viewer.say("ack");
    assert_eq!(viewer.next_image(), 3.0, "the newest one, the other was missed");
    viewer.say("ack");
    assert_eq!(viewer.images_within_statuses(3), 0, "nothing is sent twice");
}

#[test]
fn images_of_all_places_take_turns() {
    let (server, run) = serve();
    let header = SeriesHeader::frames(SeriesId { number: 7, ordinal: 0 }, Format::slice(ElementType::F32, 2));
    run.board.begin("eyes", Arc::new(header));
    for place in 0..3 {
        run.board.pin("eyes", place, image(2, place as f32));
    }
    run.board.pin("other", 0, image(2, 99.0));
    let mut viewer = Viewer::open(&server);
    viewer.say("show eyes");
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let value = viewer.next_image();
        // The view was chosen after the first image may have been on its way.
        if value < 99.0 && !seen.contains(&value) {
            seen.push(value);
        }
        viewer.say("ack");
    }
    seen.sort_by(f32::total_cmp);
    assert_eq!(seen, [0.0, 1.0, 2.0]);
}

#[test]
fn there_are_so_many_seats() {
    let (server, _run) = serve();
    let origin = format!("http://{}", server.address());
    let viewers: Vec<Viewer> = (0..MAX_VIEWERS).map(|_| Viewer::open(&server)).collect();
    assert_eq!(Viewer::connect(server.address(), &origin).0, 503);
    drop(viewers);
    let deadline = Instant::now() + DEADLINE;
    while Viewer::connect(server.address(), &origin).0 != 101 {
        assert!(Instant::now() < deadline, "no seat was given back");
    }
}

#[test]
fn viewers_are_told_how_it_ended() {
    let (server, run) = serve();
    let mut viewer = Viewer::open(&server);
    run.ended.store(true, Ordering::Relaxed);
    server.stop();
    let mut last = Value::Null;
    loop {
        match viewer.hear() {
            Heard::Status(status) => last = status,
            Heard::Close => break,
            Heard::Image(_) | Heard::Ping => {}
        }
    }
    assert_eq!(last["state"], "ended");
}

#[test]
fn who_says_something_else_is_let_go() {
    let (server, _run) = serve();
    let mut viewer = Viewer::open(&server);
    viewer.say("more!");
    while viewer.hear() != Heard::Close {}
}

#[test]
fn other_pages_and_other_names_are_refused() {
    let (server, run) = serve();
    let port = server.address().port();
    assert_eq!(Viewer::connect(server.address(), "http://example.org").0, 403);
    assert_eq!(Viewer::connect(server.address(), &format!("http://localhost:{port}")).0, 403);
    assert_eq!(ask(&server, "GET /api/v1/status", "Host: rebound.example.org\r\n", "").0, 403);
    let change = "POST /api/v1/nodes/volume/parameters";
    let headers = "Content-Type: application/json\r\nOrigin: http://example.org\r\n";
    assert_eq!(ask(&server, change, headers, "{\"rotation_axis\": 1}").0, 403);
    let form = "Content-Type: text/plain\r\n";
    assert_eq!(ask(&server, change, form, "{\"rotation_axis\": 1}").0, 400);
    assert!(run.changes.lock().unwrap().is_empty());
}

#[test]
fn parameters_are_changed_and_refused_with_a_reason() {
    let (server, run) = serve();
    let json_body = "Content-Type: application/json\r\n";
    let change = |node: &str, body: &str| {
        ask(&server, &format!("POST /api/v1/nodes/{node}/parameters"), json_body, body)
    };
    let (code, answer) = change("volume", "{\"rotation_axis\": 31.25}");
    assert!(code == 200 && answer.ends_with("{\"epoch\":1}"), "{answer}");
    assert_eq!(
        *run.changes.lock().unwrap(),
        [("volume".to_owned(), "rotation_axis".to_owned(), json!(31.25))]
    );
    let (code, answer) = change("nobody", "{\"rotation_axis\": 1}");
    assert!(code == 422 && answer.contains("nobody"), "{answer}");
    for body in ["{\"broken", "[1]", "{}", "{\"a\": 1, \"b\": 2}"] {
        assert_eq!(change("volume", body).0, 400, "{body}");
    }
    assert_eq!(change("volume", &format!("{{\"a\": \"{}\"}}", "x".repeat(5000))).0, 400);
    assert_eq!(run.changes.lock().unwrap().len(), 1);
}

#[test]
fn metrics_are_text() {
    let (server, _run) = serve();
    metrics::counter!("beamstream_node_blocks_total", "node" => "source").absolute(5);
    let (code, answer) = get(&server, "/metrics");
    assert_eq!(code, 200);
    assert!(answer.contains("\nbeamstream_node_blocks_total{node=\"source\"} 5\n"), "{answer}");
    assert!(answer.contains("\nbeamstream_frames_received_total 40\n"), "{answer}");
}

#[test]
fn strange_requests_get_a_client_error() {
    let (server, _run) = serve();
    let long = format!("/api/v1/{}", "x".repeat(20_000));
    for path in
        ["/api/v1/nothing-here", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/api/v1/live", &long]
    {
        let (code, answer) = get(&server, path);
        assert!((400..500).contains(&code) && !answer.contains("root:"), "GET {path:.40} gives {code}");
    }
}

#[test]
fn only_this_machine_is_served() {
    let run = Arc::new(FakeRun::default());
    let refused = Server::start(SocketAddr::from(([0, 0, 0, 0], 0)), run.clone()).unwrap_err();
    assert!(matches!(refused, ServerError::NotLoopback(_)));
    assert!(refused.to_string().contains("token"));
    let first = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), run.clone()).unwrap();
    let taken = Server::start(first.address(), run.clone()).unwrap_err();
    assert!(matches!(taken, ServerError::AddressTaken(address) if address == first.address()));
    let address = first.address();
    first.stop();
    assert!(Server::start(address, run).is_ok(), "a server that was stopped has given its port back");
}
