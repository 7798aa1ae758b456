//! How fast a file is read into memory: `read_rate FILE FRAME_BYTES around|through|plain [FIRST BYTES]`.
//!
//! With FIRST and BYTES only that stretch of every frame is read, 16 frames at once. Prints GB/s, and CPU seconds a GB.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for the terminal")]

use std::path::Path;
use std::time::Instant;

use beamstream_disk::{Cache, Piece, Reader};

/// User and system time of this process; the kernel counts in hundredths of a second.
fn cpu_secs() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = Path::new(&arguments[0]);
    let number = |at: usize| arguments[at].parse::<usize>().unwrap();
    let frame_bytes = number(1);
    let cache = if arguments[2] == "around" { Cache::Around } else { Cache::Through };
    let mut reader = Reader::open(path, cache).unwrap();
    if arguments[2] == "plain" {
        reader = reader.without_ring();
    }
    let (first, bytes, together) =
        if arguments.len() > 4 { (number(3), number(4), 16) } else { (0, frame_bytes, 4) };
    let frames = std::fs::metadata(path).unwrap().len() as usize / frame_bytes;
    // Memory that begins at a page, as the buffers of a pool do.
    let mut memory = vec![1_u8; together * bytes + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let (started, cpu) = (Instant::now(), cpu_secs());
    for batch in (0..frames).step_by(together) {
        let targets = memory[skip..].chunks_exact_mut(bytes).zip(batch..frames.min(batch + together));
        let mut pieces: Vec<Piece<'_>> = targets
            .map(|(bytes, frame)| Piece { offset: (frame * frame_bytes + first) as u64, bytes })
            .collect();
        reader.read(&mut pieces).unwrap();
    }
    let gigabytes = (frames * bytes) as f64 / 1e9;
    let rate = gigabytes / started.elapsed().as_secs_f64();
    println!("{rate:.3} GB/s {:.3} cpu s/GB", (cpu_secs() - cpu) / gigabytes);
}
