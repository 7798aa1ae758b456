//! What one hop between two nodes costs, beside a bare crossbeam hop, and whether it allocates.
//!
//! Both pass the same number of messages from one thread to another through a channel of 16. The bare hop also takes
//! a token from a pool of buffers and gives it back, as the pipeline does, since without it the sender would run ahead.
#![allow(clippy::print_stderr, reason = "a program for the terminal")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use beamstream_core::Shape;
use beamstream_engine::{Plan, PlanOptions};
use beamstream_graph::Graph;
use beamstream_node::ImageReader;
use beamstream_node::prelude::*;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[allow(unsafe_code, reason = "a global allocator cannot be written without")]
// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps the contract of `alloc`, which is handed on.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps the contract of `dealloc`, which is handed on.
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Sends blocks that it does not write, and measures itself.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct PumpConfig {
    /// Blocks to send.
    blocks: u64,
    /// Bytes of a block.
    bytes: usize,
}

struct Pump(PumpConfig);

static NANOS: AtomicU64 = AtomicU64::new(0);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

impl SourceConfig for PumpConfig {
    const KIND: &'static str = "pump_source";
    type Source = Pump;
    fn build(self, _cx: &BuildContext) -> Result<Pump, BuildError> {
        Ok(Pump(self))
    }
}

impl Source for Pump {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        Ok(None)
    }
    fn buffers(&self, _header: &SeriesHeader) -> usize {
        1
    }
    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        let format = Format::frame(ElementType::U8, 1, self.0.bytes);
        out.begin(SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, format), 1)?;
        let warm_up = self.0.blocks / 10;
        let mut started = Instant::now();
        let mut allocated = 0;
        for number in 0..self.0.blocks + warm_up {
            if number == warm_up {
                started = Instant::now();
                allocated = ALLOCATIONS.load(Ordering::Relaxed);
            }
            let lease = out.lease(format)?;
            out.push(lease.freeze(BlockMeta::new(FrameId::new(number), Role::Projection)))?;
        }
        NANOS.store(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        ALLOCATED.store(ALLOCATIONS.load(Ordering::Relaxed) - allocated, Ordering::Relaxed);
        out.end(SeriesSummary::default())
    }
}

struct NoImages;

impl ImageReader for NoImages {
    fn mean_image(&self, path: &str) -> Result<(Shape, Vec<f32>), String> {
        Err(path.to_owned())
    }
}

/// Time and allocations a block of a pipeline `pump -> (throttle-free) steps -> null_sink`.
fn pipeline(blocks: u64, bytes: usize) -> (Duration, f64) {
    let mut registry = Registry::default();
    registry.source::<PumpConfig>();
    beamstream_flow::register(&mut registry);
    let registry = Arc::new(registry);
    let line =
        format!("pump_source blocks={blocks} bytes={bytes} ! null_sink capacity_bytes={}", 1_u64 << 40);
    let options = PlanOptions {
        memory_bytes: 1 << 40,
        ..PlanOptions::new(Arc::new(beamstream_cpu::CpuBackend::new(1)), Arc::new(NoImages))
    };
    let report = Graph::launch(&line, &registry, &|_| None)
        .map_err(|error| error.to_string())
        .and_then(|graph| Plan::new(&graph, &registry, &options).map_err(|error| error.to_string()))
        .and_then(|plan| plan.start().map_err(|error| error.to_string()))
        .map(|mut run| run.wait());
    match report {
        Ok(report) if report.exit_code() == 0 => {}
        other => eprintln!("the pipeline failed: {other:?}"),
    }
    let time = Duration::from_nanos(NANOS.load(Ordering::Relaxed)).div_f64(blocks as f64);
    (time, ALLOCATED.load(Ordering::Relaxed) as f64 / blocks as f64)
}

/// A message as large as what moves along an edge.
type Message = [u8; size_of::<Event>()];

/// Time a message of a bare crossbeam channel of 16; with `recycle`, tokens come back through a second one.
fn crossbeam(messages: u64, recycle: bool) -> Duration {
    let (send, receive) = crossbeam_channel::bounded::<Message>(16);
    let (give, take) = crossbeam_channel::bounded::<u32>(32);
    for token in 0..18 {
        let _full = give.try_send(token);
    }
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Ok(message) = receive.recv() {
                std::hint::black_box(&message);
                if recycle {
                    let _gone = give.send(0);
                }
            }
        });
        for _ in 0..messages {
            if recycle {
                let _gone = take.recv();
            }
            let _gone = send.send([0; size_of::<Event>()]);
        }
        drop(send);
    });
    started.elapsed().div_f64(messages as f64)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[allow(clippy::print_stdout, reason = "the result of a benchmark")]
fn main() {
    const ROUNDS: usize = 7;
    const BLOCKS: u64 = 200_000;
    let sizes = [1 << 10, 8 << 20];
    let mut hops: Vec<Vec<Duration>> = vec![Vec::new(); sizes.len()];
    let (mut bare, mut recycled, mut allocations) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..ROUNDS {
        bare.push(crossbeam(BLOCKS, false));
        recycled.push(crossbeam(BLOCKS, true));
        for (size, hops) in sizes.iter().zip(&mut hops) {
            let (time, allocated) = pipeline(BLOCKS, *size);
            hops.push(time);
            allocations = allocations.max(allocated);
        }
    }
    let (bare, recycled) = (median(bare), median(recycled));
    println!("message size: {} bytes; medians of {ROUNDS} rounds of {BLOCKS} messages", size_of::<Event>());
    println!("crossbeam, bare:                {bare:>10.0?} a message");
    println!("crossbeam, buffers recycled:    {recycled:>10.0?} a message");
    for (size, hops) in sizes.iter().zip(hops) {
        let hop = median(hops);
        let (to_bare, to_recycled) = (hop.div_duration_f64(bare), hop.div_duration_f64(recycled));
        println!(
            "hop of {size:>8} bytes:           {hop:>10.0?} a block = {to_bare:.2} x bare, {to_recycled:.2} x recycled"
        );
    }
    println!("allocations a block, at most:   {allocations:.4}");
}
