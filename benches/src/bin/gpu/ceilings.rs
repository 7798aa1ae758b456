//! What the hardware itself can do: copies between pinned memory and the device, on the device, and pinning.

use std::time::Instant;

use beamstream_buffer::{Block, LeaseMut, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_ops::Transfer;

use crate::Outcome;
use crate::machine::{Machine, wait};
use crate::results::{Figure, Results};
use crate::settings::Settings;

/// Bytes of one large copy.
const LARGE_BYTES: usize = 64 << 20;
/// Bytes copied in a round.
const ROUND_BYTES: usize = 4 << 30;
/// Bytes of one copy on the device, and how many there are in a round.
const DEVICE_BYTES: usize = 1 << 30;
const DEVICE_COPIES: usize = 32;
/// Bytes that are pinned to see how long it takes.
const PINNED_BYTES: usize = 4 << 30;
const ROUNDS: usize = 5;

/// Rates in bytes per second; infinite where there is no device to copy to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ceilings {
    pub(crate) up: f64,
    pub(crate) down: f64,
    /// Up and down at once, both together.
    pub(crate) both: f64,
    /// Up, frame by frame.
    pub(crate) frames_up: f64,
}

impl Ceilings {
    /// Least seconds that so many bytes up and down take, one beside the other.
    pub(crate) fn copies_secs(&self, up_bytes: f64, down_bytes: f64) -> f64 {
        (up_bytes / self.up).max(down_bytes / self.down).max((up_bytes + down_bytes) / self.both)
    }
}

/// Measures all of them.
pub(crate) fn measure(machine: &Machine, settings: &Settings, results: &mut Results) -> Outcome<Ceilings> {
    if machine.gpu().is_none() {
        let none = f64::INFINITY;
        return Ok(Ceilings { up: none, down: none, both: none, frames_up: none });
    }
    let frame = settings.extent.rows * settings.extent.columns * ElementType::U16.size();
    let mut large = Copies::new(machine, LARGE_BYTES)?;
    let up = rate(results, "copies to the device", || large.up(ROUND_BYTES))?;
    let down = rate(results, "copies to the host", || large.down(ROUND_BYTES))?;
    let both = rate(results, "both at once, sum", || large.both(ROUND_BYTES))?;
    drop(large);
    let mut frames = Copies::new(machine, frame)?;
    let frames_up = rate(results, "copies to the device, frame by frame", || frames.up(ROUND_BYTES / 4))?;
    drop(frames);
    let mut device = Copies::on_device(machine)?;
    rate(results, "copy on the device, read and written", || {
        device.copy(DEVICE_BYTES * DEVICE_COPIES).map(|r| 2.0 * r)
    })?;
    drop(device);
    let began = Instant::now();
    drop(machine.pinned().allocate(PINNED_BYTES)?);
    let per_gib = began.elapsed().as_secs_f64() / (PINNED_BYTES >> 30) as f64;
    results.add(Figure::new("pinning of host memory, a GiB", per_gib, "s"));
    Ok(Ceilings { up, down, both, frames_up })
}

fn rate(results: &mut Results, what: &str, mut round: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
    round()?;
    let rates: Result<Vec<f64>, _> = (0..ROUNDS).map(|_| round()).collect();
    let gigabytes: Vec<f64> = rates?.iter().map(|rate| rate * 1e-9).collect();
    let figure = Figure::median(what, &gigabytes, "GB/s");
    let median = figure.value * 1e9;
    results.add(figure);
    Ok(median)
}

/// Buffers on both sides and a stream for each direction.
struct Copies {
    format: Format,
    sources: [Block; 2],
    host: Pool,
    device: Pool,
    up: Box<dyn Transfer>,
    down: Box<dyn Transfer>,
}

/// Copies that are under way at once.
const DEPTH: usize = 4;

impl Copies {
    /// Between pinned memory and the device.
    fn new(machine: &Machine, bytes: usize) -> Outcome<Self> {
        let format = Format::frame(ElementType::U8, 1, bytes);
        let host = Pool::new("pinned", &*machine.pinned(), DEPTH + 1, bytes)?;
        let device = machine.pool(DEPTH + 1, format)?;
        let (mut up, down) = (machine.transfer("up")?, machine.transfer("down")?);
        let mut lease = host.lease(format)?;
        lease.bytes_mut().fill(7);
        let on_host = freeze(lease);
        let mut lease = device.lease(format)?;
        up.copy(&on_host, &mut lease)?;
        let sources = [on_host, freeze(lease)];
        Ok(Self { format, sources, host, device, up, down })
    }

    /// On the device alone.
    fn on_device(machine: &Machine) -> Outcome<Self> {
        let format = Format::frame(ElementType::U8, 1, DEVICE_BYTES);
        let device = machine.pool(3, format)?;
        let source = freeze(device.lease(format)?);
        let (up, down) = (machine.transfer("on device")?, machine.transfer("idle")?);
        Ok(Self { format, sources: [source.clone(), source], host: device.clone(), device, up, down })
    }

    fn up(&mut self, bytes: usize) -> Outcome<f64> {
        run(&mut *self.up, &self.sources[0], &self.device, self.format, bytes)
    }

    fn down(&mut self, bytes: usize) -> Outcome<f64> {
        run(&mut *self.down, &self.sources[1], &self.host, self.format, bytes)
    }

    fn copy(&mut self, bytes: usize) -> Outcome<f64> {
        self.up(bytes)
    }

    /// Each direction from a thread of its own, as nodes do it.
    fn both(&mut self, bytes: usize) -> Outcome<f64> {
        let began = Instant::now();
        let Self { format, sources: [on_host, on_device], host, device, up, down } = self;
        let (there, back) = std::thread::scope(|scope| {
            let there = scope
                .spawn(|| run(&mut **up, on_host, device, *format, bytes).map_err(|error| error.to_string()));
            let back = run(&mut **down, on_device, host, *format, bytes);
            (there.join(), back)
        });
        there.map_err(|_panic| "the copying thread panicked")??;
        back?;
        Ok(2.0 * bytes as f64 / began.elapsed().as_secs_f64())
    }
}

fn freeze(lease: LeaseMut) -> Block {
    lease.freeze(BlockMeta::new(FrameId::new(0), Role::Projection))
}

/// Copies `from` again and again until `bytes` are there; gives bytes per second.
fn run(transfer: &mut dyn Transfer, from: &Block, to: &Pool, format: Format, bytes: usize) -> Outcome<f64> {
    let copies = bytes.div_ceil(format.bytes());
    let began = Instant::now();
    let mut last = None;
    for _ in 0..copies {
        let mut lease = to.lease(format)?;
        transfer.copy(from, &mut lease)?;
        last = Some(freeze(lease));
    }
    last.iter().for_each(wait);
    Ok((copies * format.bytes()) as f64 / began.elapsed().as_secs_f64())
}
