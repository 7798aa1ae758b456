//! Receiving frames over TCP into the buffers of a pool: a plain socket, or our ZeroMQ receiver.
//!
//! `receive raw|zmtp HOST:PORT FRAME_BYTES FRAMES` connects, receives, and prints seconds from the first frame to the
//! last and processor seconds of the process. `benches/peers/receive.py` sends, and measures libzmq beside it.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use beamstream_buffer::{LeaseMut, Pool};
use beamstream_core::{ElementType, Format};
use beamstream_zmq::zmtp::{Lease, Mode, Options, PartBuffers, Receiver};

/// Size of the pool, in bytes and in buffers.
const POOL_BYTES: usize = 64 << 20;
const BUFFERS: std::ops::RangeInclusive<usize> = 8..=256;

/// Lends a buffer for each part of the frame size.
#[derive(Clone)]
struct Frames {
    pool: Pool,
    format: Format,
}

struct Lent(LeaseMut);

impl Lease for Lent {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl PartBuffers for Frames {
    type Lease = Lent;

    fn buffer(&mut self, len: usize) -> Option<Lent> {
        if len != self.format.bytes() {
            return None;
        }
        self.pool.try_lease(self.format).ok().flatten().map(Lent)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, address, bytes, frames] = arguments.as_slice() else {
        return Err("expected raw|zmtp HOST:PORT FRAME_BYTES FRAMES".into());
    };
    let (bytes, frames): (usize, usize) = (bytes.parse()?, frames.parse()?);
    let format = Format::frame(ElementType::U8, 1, bytes);
    let buffers = (POOL_BYTES / bytes.max(1)).clamp(*BUFFERS.start(), *BUFFERS.end());
    let pool = Pool::host("frames", buffers, bytes)?;
    // Touch every buffer once: page faults are set-up.
    let mut touched = Vec::new();
    while let Some(mut lease) = pool.try_lease(format)? {
        lease.bytes_mut().fill(1);
        touched.push(lease);
    }
    drop(touched);
    let cpu_before = cpu_secs()?;
    let secs = match kind.as_str() {
        "raw" => raw(address, &pool, format, frames)?,
        _ => zmtp(address, &Frames { pool, format }, frames)?,
    };
    writeln!(io::stdout(), "{secs:.4} {:.2}", cpu_secs()? - cpu_before)?;
    Ok(())
}

fn raw(address: &str, pool: &Pool, format: Format, frames: usize) -> Result<f64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    let mut start = Instant::now();
    for frame in 0..frames {
        let mut lease = pool.lease(format)?;
        stream.read_exact(lease.bytes_mut())?;
        if frame == 0 {
            start = Instant::now();
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn zmtp(address: &str, buffers: &Frames, frames: usize) -> Result<f64, Box<dyn Error>> {
    let endpoint = format!("tcp://{address}").parse()?;
    // One buffer is being filled and one taken while the others wait.
    let waiting = (buffers.pool.stats().slots - 2) as u64 * buffers.format.bytes() as u64;
    let receiver = Receiver::start(&[(endpoint, Mode::Connect)], &Options::new(None, 256, waiting), buffers)?;
    let mut start = Instant::now();
    let mut copied = 0;
    for frame in 0..frames {
        let mut message = receiver.messages().recv()?;
        if message.take_lease(1).is_none() {
            copied += 1;
        }
        if frame == 0 {
            start = Instant::now();
        }
    }
    if copied > 0 {
        writeln!(io::stderr(), "{copied} of {frames} frames came through scratch memory")?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Processor seconds of this process so far, user and system; the kernel counts in hundredths.
fn cpu_secs() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    Ok((ticks(11) + ticks(12)) / 100.0)
}
