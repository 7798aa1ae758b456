//! The simulated detector itself: takes frames from a source and sends them in time.

use std::time::{Duration, Instant};

use beamstream_core::Format;
use beamstream_sim_wire::{
    Encoder, Encoding, Endpoint, FrameInfo, Message, Protocol, Sender, SenderError, SocketKind, Stop,
    Stopped, UnsupportedEncoding,
};
use bytes::Bytes;

use crate::faults::{FaultError, Faults};
use crate::plan::{Damage, ImageStep, Step, Terms, plan};
use crate::source::{FrameSource, ReadError};

/// Delays up to this are made up for by sending faster afterwards; longer ones shift what follows.
const CATCH_UP: Duration = Duration::from_millis(100);
/// How long receivers have to take the last frames and to close their side.
const LINGER: Duration = Duration::from_secs(30);
/// The same after a stop.
const LINGER_AFTER_STOP: Duration = Duration::from_secs(1);
/// The exposure that is told where frames are sent as fast as they can be.
const NOMINAL_FRAME_TIME_SECS: f64 = 0.01;
/// Bytes of a compressed payload that noise leaves alone: sizes that a receiver checks first.
const SIZES_BYTES: usize = 12;
/// Bytes of the first part that noise overwrites where pixels are plain.
const NOISE_BYTES: usize = 16;

/// How a simulated detector sends.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The protocol.
    pub protocol: Protocol,
    /// How pixels are packed; by default as is usual for the protocol.
    pub encoding: Option<Encoding>,
    /// PUSH or PUB.
    pub socket: SocketKind,
    /// Where the socket is.
    pub endpoint: Endpoint,
    /// Whether the socket connects to a receiver that binds, instead of binding itself.
    pub connect: bool,
    /// Messages that wait for each receiver; by default as is usual for the socket.
    pub queue_messages: Option<usize>,
    /// Frames a second; `None` for as many as receivers take.
    pub rate_hz: Option<f64>,
    /// How often the scan is sent; 0 for until stopped.
    pub repeat: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// Whether nothing is sent before a receiver is there.
    pub wait_for_peer: bool,
    /// Whether all frames are read and packed before the first is sent.
    pub preload: bool,
    /// Number of the first series.
    pub first_series: u64,
}

impl Settings {
    /// One pass over the scan, as fast as receivers take it, on a PUSH socket that binds.
    pub fn new(protocol: Protocol, endpoint: Endpoint) -> Self {
        Self {
            protocol,
            encoding: None,
            socket: SocketKind::Push,
            endpoint,
            connect: false,
            queue_messages: None,
            rate_hz: None,
            repeat: 1,
            faults: Faults::default(),
            wait_for_peer: false,
            preload: false,
            first_series: 1,
        }
    }
}

/// Why a simulated detector cannot send.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The source has no frame to send.
    #[error("the scan has no darks, flats or projections")]
    NoFrames,
    /// The rate is no rate.
    #[error("{0} frames a second cannot be sent, expected a rate between 0.0001 and 1000000")]
    Rate(f64),
    /// The protocol cannot carry the encoding.
    #[error(transparent)]
    Encoding(#[from] UnsupportedEncoding),
    /// The protocol cannot show a fault.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The socket cannot be opened.
    #[error(transparent)]
    Sender(#[from] SenderError),
    /// A frame cannot be read.
    #[error("cannot read frame {index} of the scan")]
    Source {
        /// Which frame of the source.
        index: usize,
        /// Why.
        source: ReadError,
    },
    /// A stop was asked for.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Image messages.
    pub frames: u64,
    /// Bytes of all messages.
    pub bytes: u64,
    /// Messages that a PUB dropped because a receiver was too slow.
    pub dropped: u64,
}

/// A simulated detector.
pub struct Simulator {
    frames: Frames,
    settings: Settings,
    sender: Sender,
    stop: Stop,
    clock: Clock,
    late: Vec<(Instant, Message)>,
    sent: Sent,
}

impl Simulator {
    /// Opens the socket; nothing is sent yet.
    ///
    /// # Errors
    /// If settings contradict each other, or the socket cannot be opened.
    pub fn open(source: Box<dyn FrameSource>, settings: Settings) -> Result<Self, SimError> {
        let encoding = settings.encoding.unwrap_or(settings.protocol.usual_encoding());
        let encoder = settings.protocol.encoder(encoding)?;
        settings.faults.check(settings.protocol)?;
        if let Some(rate) = settings.rate_hz.filter(|rate| !(1e-4..=1e6).contains(rate)) {
            return Err(SimError::Rate(rate));
        }
        let queue = settings.queue_messages.unwrap_or(settings.socket.usual_queue());
        let open = if settings.connect { Sender::connect } else { Sender::bind };
        let sender = open(settings.socket, &settings.endpoint, queue)?;
        let period = settings.rate_hz.map(|rate| Duration::from_secs_f64(1.0 / rate));
        let frames = Frames { source, encoder, encoding, pixels: Vec::new(), packed: Vec::new() };
        let (stop, clock) = (Stop::default(), Clock { period, next: Instant::now() });
        Ok(Self { frames, settings, sender, stop, clock, late: Vec::new(), sent: Sent::default() })
    }

    /// The endpoint, with the port that was found where 0 was asked for.
    pub fn endpoint(&self) -> &Endpoint {
        self.sender.endpoint()
    }

    /// Ends [`Self::run`] from another thread.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Frames of one pass over the scan.
    pub fn frames_per_pass(&self) -> u64 {
        self.plan(0).iter().filter(|step| matches!(step, Step::Image(_))).count() as u64
    }

    /// Sends everything and waits until receivers have it. `progress` is told how many frames were sent.
    ///
    /// # Errors
    /// If a frame cannot be read, or a stop was asked for.
    pub fn run(mut self, progress: impl FnMut(u64)) -> Result<Sent, SimError> {
        let mut result = self.send_all(progress);
        let Self { sender, stop, mut sent, settings, .. } = self;
        // A PUSH waits for receivers however long it takes; a subscriber that does not read is given up in time.
        if result.is_ok() && settings.socket == SocketKind::Push {
            result = sender.flush(&stop).map_err(SimError::from);
        }
        sent.dropped = sender.dropped();
        sender.close(if result.is_ok() { LINGER } else { LINGER_AFTER_STOP });
        result.map(|()| sent)
    }

    fn plan(&self, repetition: u64) -> Vec<Step> {
        let terms = Terms {
            frames: self.frames.source.frames(),
            format: self.frames.source.format(),
            protocol: self.settings.protocol,
            frame_time_secs: self.settings.rate_hz.map_or(NOMINAL_FRAME_TIME_SECS, |rate| 1.0 / rate),
            repetition,
            first_series: self.settings.first_series,
        };
        plan(&terms, &self.settings.faults)
    }

    fn send_all(&mut self, mut progress: impl FnMut(u64)) -> Result<(), SimError> {
        if self.plan(0).is_empty() {
            return Err(SimError::NoFrames);
        }
        if self.settings.preload {
            self.frames.preload(&self.stop)?;
        }
        if self.settings.wait_for_peer {
            self.sender.wait_for_peer(&self.stop)?;
        }
        self.clock.next = Instant::now();
        let mut repetition = 0;
        while self.settings.repeat == 0 || repetition < self.settings.repeat {
            for step in self.plan(repetition) {
                self.carry_out(&step)?;
                progress(self.sent.frames);
            }
            while let Some(due) = self.late.iter().map(|(due, _)| *due).min() {
                self.wait_until(due)?;
            }
            repetition += 1;
        }
        Ok(())
    }

    fn carry_out(&mut self, step: &Step) -> Result<(), SimError> {
        match step {
            Step::Header(series) => {
                let header = self.frames.encoder.header(series);
                header.map_or(Ok(()), |message| self.send(message))?;
            }
            Step::End { series } => {
                let end = self.frames.encoder.end(*series);
                end.map_or(Ok(()), |message| self.send(message))?;
            }
            Step::Image(image) => {
                let message = self.frames.message(image)?;
                let turn = self.clock.turn();
                self.wait_until(turn)?;
                self.sent.frames += 1;
                match image.late_secs {
                    Some(secs) => self.late.push((Instant::now() + Duration::from_secs_f64(secs), message)),
                    None => self.send(message)?,
                }
            }
            Step::Pause { secs } => self.wait_until(Instant::now() + Duration::from_secs_f64(*secs))?,
            Step::Disconnect => self.sender.disconnect_peers(),
        }
        Ok(())
    }

    fn send(&mut self, message: Message) -> Result<(), Stopped> {
        self.sent.bytes += message.iter().map(|part| part.len() as u64).sum::<u64>();
        self.sender.send(message, &self.stop)
    }

    /// Waits, and sends the late frames that are due meanwhile.
    fn wait_until(&mut self, deadline: Instant) -> Result<(), Stopped> {
        while let Some(at) = self.next_late(deadline) {
            let (due, message) = self.late.swap_remove(at);
            self.stop.wait_until(due)?;
            self.send(message)?;
        }
        self.stop.wait_until(deadline)
    }

    /// The first of the late frames that are due before `deadline`.
    fn next_late(&self, deadline: Instant) -> Option<usize> {
        let due = self.late.iter().enumerate().filter(|(_, (due, _))| *due <= deadline);
        due.min_by_key(|(_, (due, _))| *due).map(|(at, _)| at)
    }
}

/// When frames are sent.
struct Clock {
    period: Option<Duration>,
    next: Instant,
}

impl Clock {
    /// The time at which the next frame is to be sent.
    fn turn(&mut self) -> Instant {
        let now = Instant::now();
        let Some(period) = self.period else { return now };
        if self.next + CATCH_UP < now {
            self.next = now;
        }
        let turn = self.next;
        self.next += period;
        turn
    }
}

/// The frames of the source as messages.
struct Frames {
    source: Box<dyn FrameSource>,
    encoder: Box<dyn Encoder>,
    encoding: Encoding,
    pixels: Vec<u8>,
    /// Payloads by frame of the source, where all were packed ahead.
    packed: Vec<Bytes>,
}

impl Frames {
    fn preload(&mut self, stop: &Stop) -> Result<(), SimError> {
        for index in 0..self.source.frames().len() {
            if stop.is_set() {
                return Err(Stopped.into());
            }
            let payload = self.pack(index, self.source.format())?;
            self.packed.push(payload);
        }
        Ok(())
    }

    fn message(&mut self, image: &ImageStep) -> Result<Message, SimError> {
        let frame = match image.damage {
            Some(Damage::WrongShape) => FrameInfo { format: half(image.frame.format), ..image.frame },
            _ => image.frame,
        };
        let payload = match self.packed.get(image.index) {
            Some(payload) if frame == image.frame => payload.clone(),
            _ => self.pack(image.index, frame.format)?,
        };
        Ok(match image.damage {
            Some(Damage::Truncate) => self.encoder.image(&frame, payload.slice(..payload.len() / 2)),
            Some(Damage::Corrupt) if self.encoding == Encoding::None => {
                let mut message = self.encoder.image(&frame, payload);
                if let Some(first) = message.first_mut() {
                    *first = with_noise(first, 0, NOISE_BYTES);
                }
                message
            }
            Some(Damage::Corrupt) => {
                self.encoder.image(&frame, with_noise(&payload, SIZES_BYTES, payload.len()))
            }
            Some(Damage::WrongShape) | None => self.encoder.image(&frame, payload),
        })
    }

    /// Reads a frame and packs as much of it as `format` holds.
    fn pack(&mut self, index: usize, format: Format) -> Result<Bytes, SimError> {
        let read = self.source.read(index, &mut self.pixels);
        read.map_err(|source| SimError::Source { index, source })?;
        self.pixels.truncate(format.bytes());
        Ok(self.encoder.payload(&self.pixels, format))
    }
}

/// Half of the rows; where there is one only, half of the columns.
fn half(format: Format) -> Format {
    let shape = format.shape;
    if shape.rows > 1 {
        Format::frame(format.element, shape.rows / 2, shape.columns)
    } else {
        Format::frame(format.element, 1, shape.columns.div_ceil(2))
    }
}

/// `bytes` with ones from `first` to `end`.
fn with_noise(bytes: &Bytes, first: usize, end: usize) -> Bytes {
    let mut noisy = bytes.to_vec();
    let end = end.min(noisy.len());
    noisy[first.min(end)..end].fill(0xFF);
    noisy.into()
}
