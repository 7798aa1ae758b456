//! A sink that sends frames on over ZeroMQ.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use beamstream_node::prelude::*;
use beamstream_node::{KindClass, Stop};
use bytes::Bytes;
use serde_json::json;
use tokio::runtime::Runtime;
use zeromq::{PubSocket, PushSocket, Socket, SocketSend, ZmqError, ZmqMessage};

use crate::source::ModeSetting;
use crate::zmtp::Endpoint;

/// Blocks that are on their way into the socket at most.
const UNDER_WAY: usize = 4;
/// How often a wait looks around.
const GLANCE: Duration = Duration::from_millis(2);
/// How long the end of a run waits for a receiver to take what was sent.
const LINGER: Duration = Duration::from_secs(10);

/// Sends frames or slices over ZeroMQ, each as a message of `array-1.0`: a JSON header and the pixels.
///
/// A `push` socket waits for a receiver and then for as long as it takes; a `pub` socket never waits, and
/// leaves out, counted, what its subscribers do not take. Series, role (`image_key`) and angle of a frame are
/// told in its header.
///
/// ```yaml
/// version: 1
/// nodes:
///   scan: { kind: phantom_source, size: 64, angles: 90 }
///   send: { kind: zmq_sink, input: scan, endpoint: "tcp://127.0.0.1:5555" }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ZmqSinkConfig {
    /// Where to: `tcp://host:port`, `tcp://*:port` or `ipc://path`.
    pub endpoint: String,
    /// `push` shares the frames out among receivers, `pub` sends all to each.
    #[serde(default)]
    pub socket: SendSocket,
    /// `bind` and wait for receivers, or `connect` to one.
    #[serde(default = "bind")]
    pub mode: ModeSetting,
    /// How frames are written.
    #[serde(default)]
    pub protocol: SendProtocol,
}

/// The kind of a sending socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SendSocket {
    /// Each frame to one receiver; waits for it.
    #[default]
    Push,
    /// Each frame to all subscribers; does not wait for them.
    Pub,
}

/// How frames are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum SendProtocol {
    /// JSON header and pixels, as PSI and areaDetector send them.
    #[default]
    #[serde(rename = "array-1.0")]
    Array,
}

const fn bind() -> ModeSetting {
    ModeSetting::Bind
}

impl NodeConfig for ZmqSinkConfig {
    const KIND: &'static str = "zmq_sink";
    const CLASS: KindClass = KindClass::Sink;
    type Node = ZmqSink;

    fn build(self, _cx: &BuildContext) -> Result<ZmqSink, BuildError> {
        self.sink()
    }
}

impl ZmqSinkConfig {
    /// The sink that these settings describe.
    fn sink(self) -> Result<ZmqSink, BuildError> {
        let endpoint: Endpoint =
            self.endpoint.parse().map_err(|error| BuildError::key("endpoint", format!("{error}")))?;
        let endpoint = match endpoint {
            Endpoint::Tcp { host, port } if host == "*" && self.mode == ModeSetting::Bind => {
                Endpoint::Tcp { host: "0.0.0.0".to_owned(), port }
            }
            other => other,
        };
        let endpoint = endpoint.to_string();
        Ok(ZmqSink { config: self, endpoint, line: None, series: 0, under_way: Arc::default(), left_out: 0 })
    }
}

/// Sends each block as one message. In: any block, any element type.
pub struct ZmqSink {
    config: ZmqSinkConfig,
    endpoint: String,
    line: Option<SendLine>,
    /// The detector's number of the series.
    series: u64,
    /// Blocks that the socket holds.
    under_way: Arc<AtomicUsize>,
    /// Blocks that subscribers did not take.
    left_out: u64,
}

/// An open socket and the threads that serve it.
struct SendLine {
    runtime: Runtime,
    socket: Sending,
    /// Tells when the end need not wait for receivers.
    stop: Stop,
}

enum Sending {
    Push(PushSocket),
    Pub(PubSocket),
}

impl Node for ZmqSink {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        let mut agreed = Negotiated::unchanged(header);
        agreed.keeps_blocks = UNDER_WAY;
        // The socket writes each message from a copy of its own.
        agreed.memory_bytes = header.format.bytes().saturating_mul(2);
        Ok(agreed)
    }

    fn begin(&mut self, header: &SeriesHeader, out: &mut Outlet) -> Result<(), NodeError> {
        self.series = header.id.number;
        if self.line.is_none() {
            self.line = Some(self.open(out)?);
        }
        Ok(())
    }

    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let publishes = self.config.socket == SendSocket::Pub;
        while self.under_way.load(Ordering::Acquire) >= UNDER_WAY {
            if publishes {
                self.left_out += 1;
                return Ok(());
            }
            out.sleep_until(Instant::now() + GLANCE)?;
        }
        let mut message = ZmqMessage::from(self.header_of(&block).into_bytes());
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let pixels = Counted { block, under_way: self.under_way.clone() };
        message.push_back(Bytes::from_owner(pixels));
        let Some(line) = &mut self.line else {
            return Err(NodeError::new(NodeErrorKind::Internal, "a block came outside a series"));
        };
        loop {
            match line.send(message) {
                Ok(()) => return Ok(()),
                // No receiver is there yet, or it went away.
                Err(ZmqError::ReturnToSender { message: returned, .. }) => message = returned,
                Err(error) => {
                    let text = format!("cannot send to {}", self.endpoint);
                    return Err(NodeError::because(NodeErrorKind::Io, text, error));
                }
            }
            out.sleep_until(Instant::now() + GLANCE)?;
        }
    }

    fn end(&mut self, _summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError> {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            out.journal()
                .warn(format!("subscribers were too slow for {left_out} blocks, which were left out"));
        }
        Ok(())
    }
}

impl ZmqSink {
    fn open(&self, out: &Outlet) -> Result<SendLine, NodeError> {
        let failed = |what: &str, error: Box<dyn std::error::Error + Send + Sync>| {
            NodeError::because(NodeErrorKind::Io, format!("cannot {what} {}", self.endpoint), error)
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("zmq send")
            .enable_all()
            .build()
            .map_err(|error| failed("start a thread for", error.into()))?;
        let socket = {
            let _inside = runtime.enter();
            match self.config.socket {
                SendSocket::Push => Sending::Push(PushSocket::new()),
                SendSocket::Pub => Sending::Pub(PubSocket::new()),
            }
        };
        let mut line = SendLine { runtime, socket, stop: out.stop().clone() };
        match self.config.mode {
            ModeSetting::Bind => {
                line.bind(&self.endpoint).map_err(|error| failed("listen on", error.into()))?;
            }
            ModeSetting::Connect => {
                // Waits for a receiver that is not there yet, as long as the run goes on.
                while let Err(error) = line.connect(&self.endpoint) {
                    tracing::debug!(endpoint = self.endpoint, %error, "not reachable, trying again");
                    out.sleep_until(Instant::now() + 25 * GLANCE)?;
                }
            }
        }
        Ok(line)
    }

    fn header_of(&self, block: &Block) -> String {
        let (format, meta) = (block.format(), &block.meta);
        let mut header = json!({
            "htype": "array-1.0",
            "type": format.element.numpy_name(),
            "shape": [format.shape.rows, format.shape.columns],
            "frame": meta.frame.number,
            "endianness": "little",
            "series": self.series,
            "image_key": meta.role.image_key(),
        });
        if let Some(angle) = meta.angle_rad {
            header["angle_deg"] = angle.to_degrees().into();
        }
        header.to_string()
    }
}

impl Drop for ZmqSink {
    /// Waits until receivers have what was sent to them, but not for ever, and not when everything is to stop.
    fn drop(&mut self) {
        let Some(SendLine { runtime, socket, stop }) = self.line.take() else {
            return;
        };
        runtime.block_on(async {
            let until = Instant::now() + LINGER;
            let patient = || Instant::now() < until && !stop.is_halted();
            // Listening goes on while blocks wait for a receiver.
            while self.under_way.load(Ordering::Acquire) > 0 && patient() {
                tokio::time::sleep(GLANCE).await;
            }
            let errors = match socket {
                Sending::Push(socket) => socket.close().await,
                Sending::Pub(socket) => socket.close().await,
            };
            tracing::debug!(?errors, "socket closed");
            // The tasks that write end by themselves after the last byte.
            while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 && patient() {
                tokio::time::sleep(GLANCE).await;
            }
        });
        runtime.shutdown_background();
    }
}

impl SendLine {
    fn bind(&mut self, endpoint: &str) -> Result<(), ZmqError> {
        let bound = match &mut self.socket {
            Sending::Push(socket) => self.runtime.block_on(socket.bind(endpoint)),
            Sending::Pub(socket) => self.runtime.block_on(socket.bind(endpoint)),
        };
        bound.map(|_| ())
    }

    fn connect(&mut self, endpoint: &str) -> Result<(), ZmqError> {
        let attempt = Duration::from_millis(500);
        let timed_out = |_elapsed| ZmqError::Other("no answer");
        self.runtime.block_on(async {
            match &mut self.socket {
                Sending::Push(socket) => tokio::time::timeout(attempt, socket.connect(endpoint)).await,
                Sending::Pub(socket) => tokio::time::timeout(attempt, socket.connect(endpoint)).await,
            }
            .map_err(timed_out)?
        })
    }

    fn send(&mut self, message: ZmqMessage) -> Result<(), ZmqError> {
        match &mut self.socket {
            Sending::Push(socket) => self.runtime.block_on(socket.send(message)),
            Sending::Pub(socket) => self.runtime.block_on(socket.send(message)),
        }
    }
}

/// The pixels of a block in a message; counts how many are under way.
struct Counted {
    block: Block,
    under_way: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        self.block.bytes()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outlet;
    use crate::zmtp::{Mode, NoLeases, Options, Receiver};
    use beamstream_core::FrameCounts;

    fn sink(endpoint: &str, mode: &str, socket: &str) -> ZmqSink {
        let settings = json!({ "endpoint": endpoint, "mode": mode, "socket": socket });
        serde_json::from_value::<ZmqSinkConfig>(settings).unwrap().sink().unwrap()
    }

    /// Receives from a sink that connects to us.
    fn receiver() -> (Receiver<Vec<u8>>, String) {
        let endpoint = "tcp://127.0.0.1:0".parse().unwrap();
        let options = Options::new(None, 64, 1 << 20);
        let receiver = Receiver::start(&[(endpoint, Mode::Bind)], &options, &NoLeases).unwrap();
        let endpoint = receiver.listening()[0].to_string();
        (receiver, endpoint)
    }

    fn blocks(count: u64) -> (SeriesHeader, Vec<Block>) {
        let format = Format::frame(ElementType::U16, 20, 30);
        let pool = Pool::host("frames", 64, format.bytes()).unwrap();
        let header = SeriesHeader::frames(SeriesId { number: 5, ordinal: 0 }, format);
        let block = |number| {
            let mut lease = pool.lease(format).unwrap();
            lease.bytes_mut().fill(number as u8);
            let mut meta = BlockMeta::new(FrameId::new(number), Role::Flat);
            meta.angle_rad = Some(1.0);
            lease.freeze(meta)
        };
        (header, (0..count).map(block).collect())
    }

    #[test]
    fn all_blocks_arrive_before_the_sink_is_gone() {
        let (receiver, endpoint) = receiver();
        let mut sink = sink(&endpoint, "connect", "push");
        let (header, blocks) = blocks(50);
        let (mut out, _events, _controller) = outlet::open(1, 1024);
        let taker = std::thread::spawn(move || {
            let take = || receiver.messages().recv_timeout(Duration::from_mins(1)).unwrap();
            (0..50_u8)
                .map(|number| {
                    let mut message = take();
                    assert_eq!((message.len(), message.part(1).unwrap()), (2, [number; 1200].as_slice()));
                    serde_json::from_slice::<serde_json::Value>(message.part(0).unwrap()).unwrap()
                })
                .collect::<Vec<_>>()
        });
        sink.begin(&header, &mut out).unwrap();
        for block in blocks {
            sink.process(block, &mut out).unwrap();
        }
        let summary = SeriesSummary { counts: FrameCounts::default(), aborted: false };
        sink.end(&summary, &mut out).unwrap();
        drop(sink);
        let headers = taker.join().unwrap();
        let expected = json!({
            "htype": "array-1.0", "type": "uint16", "shape": [20, 30], "frame": 49, "endianness": "little",
            "series": 5, "image_key": 1, "angle_deg": 1.0_f64.to_degrees(),
        });
        assert_eq!(headers[49], expected);
    }

    #[test]
    fn a_publisher_without_subscribers_does_not_wait() {
        let mut sink = sink("tcp://127.0.0.1:0", "bind", "pub");
        let (header, blocks) = blocks(50);
        let (mut out, _events, _controller) = outlet::open(1, 1024);
        sink.begin(&header, &mut out).unwrap();
        for block in blocks {
            sink.process(block, &mut out).unwrap();
        }
    }

    #[test]
    fn a_halt_ends_the_wait_for_a_receiver() {
        let mut sink = sink("tcp://127.0.0.1:0", "bind", "push");
        let (header, blocks) = blocks(1);
        let (mut out, _events, controller) = outlet::open(1, 1024);
        sink.begin(&header, &mut out).unwrap();
        let halting = std::thread::spawn(move || controller.halt());
        let stopped =
            blocks.into_iter().map(|block| sink.process(block, &mut out)).find_map(Result::err).unwrap();
        assert_eq!(stopped.kind(), NodeErrorKind::Stopped);
        halting.join().unwrap();
    }

    #[test]
    fn settings_are_checked() {
        let config: ZmqSinkConfig = serde_json::from_value(json!({ "endpoint": "http://x" })).unwrap();
        assert_eq!(config.sink().err().unwrap().key, Some("endpoint"));
    }
}
