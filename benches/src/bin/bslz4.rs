//! Bitshuffle/LZ4 on one core: GB/s of decoded pixels.
//!
//! `bslz4 BLOB BYTES ELEMENT_BYTES [ROUNDS]` decodes a file with the 12-byte header into a buffer that is used
//! again, and prints the median. `benches/peers/bslz4.py` makes such a file and measures a peer beside it.

use std::io::{self, Write};
use std::time::Instant;

use beamstream_codec::{Compression, decode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [blob, bytes, element, rounds @ ..] = arguments.as_slice() else {
        return Err("expected BLOB BYTES ELEMENT_BYTES [ROUNDS]".into());
    };
    let blob = std::fs::read(blob)?;
    let mut pixels = vec![0; bytes.parse()?];
    let element = element.parse()?;
    let rounds: usize = rounds.first().map_or(Ok(9), |rounds| rounds.parse())?;
    let mut secs = Vec::new();
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        decode(Compression::Bslz4, &blob, &mut pixels, element)?;
        secs.push(start.elapsed().as_secs_f64());
    }
    secs.sort_by(f64::total_cmp);
    writeln!(io::stdout(), "{:.3}", pixels.len() as f64 / secs[secs.len() / 2] / 1e9)?;
    Ok(())
}
