//! Reconstruction on the CPU: seconds a slice and accuracy, on the analytic phantom.
//!
//! `recon [METHOD N ANGLES ROWS THREADS [BATCH [even|golden]]]`; without arguments the sizes of the published table.
//! Times are medians of five: adding all projections, then giving all slices. The error is the root mean square
//! within 0.9 of the inscribed disc after a fit of gain and offset, over the range of the truth.

use std::io::{self, Write};
use std::time::Instant;

use beamstream_benches::{Accuracy, accuracy, median};
use beamstream_core::angular_weights;
use beamstream_cpu::accumulator;
use beamstream_ops::{Method, Projection, ReconSpec};
use beamstream_phantom as phantom;

const REPEATS: usize = 5;

struct Case {
    method: Method,
    n: usize,
    angles: usize,
    rows: usize,
    threads: usize,
    batch: usize,
    golden: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "| method | n | angles | rows | threads | batch | add s/slice | invert s/slice | s/slice | CPU s/slice | GUPS | preview s | nRMSE | gain |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")?;
    let cases = if arguments.is_empty() { table() } else { vec![parse(&arguments)?] };
    for case in cases {
        measure(&case, &mut out)?;
    }
    Ok(())
}

fn table() -> Vec<Case> {
    let case =
        |method, n, angles, rows| Case { method, n, angles, rows, threads: 2, batch: 32, golden: false };
    vec![
        case(Method::Fourier, 512, 720, 16),
        case(Method::Fourier, 1024, 1500, 16),
        case(Method::Fourier, 2048, 1800, 16),
        case(Method::Fourier, 1024, 1500, 4),
        case(Method::Fourier, 2048, 1800, 2),
        case(Method::Fbp, 512, 720, 16),
        case(Method::Fbp, 1024, 1500, 16),
        case(Method::Fbp, 2048, 1800, 16),
    ]
}

fn parse(arguments: &[String]) -> Result<Case, Box<dyn std::error::Error>> {
    let [method, numbers @ ..] = arguments else {
        return Err("expected a method".into());
    };
    let number = |at: usize, default: usize| numbers.get(at).map_or(Ok(default), |text| text.parse());
    Ok(Case {
        method: method.parse()?,
        n: number(0, 512)?,
        angles: number(1, 720)?,
        rows: number(2, 16)?,
        threads: number(3, 2)?,
        batch: number(4, ReconSpec::DEFAULT_BATCH)?,
        golden: numbers.get(5).is_some_and(|text| text == "golden"),
    })
}

fn measure(case: &Case, out: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    let Case { n, rows, .. } = *case;
    let axis_px = (n - 1) as f64 / 2.0;
    let turn = if case.golden { (5.0_f64.sqrt() - 1.0) / 2.0 } else { 1.0 / case.angles as f64 };
    let angles: Vec<f64> =
        (0..case.angles).map(|i| (i as f64 * turn).fract() * std::f64::consts::PI).collect();
    let weights = angular_weights(&angles);
    // All rows show the same slice: what they hold changes neither the time nor the accuracy.
    let sinogram = phantom::sinogram(n, &angles, 0.0, axis_px);
    let frames: Vec<Vec<f32>> = sinogram.chunks(n).map(|row| row.repeat(rows)).collect();
    let projections: Vec<Projection<'_>> = frames
        .iter()
        .zip(angles.iter().zip(weights))
        .map(|(pixels, (&angle_rad, weight))| Projection { pixels, angle_rad, weight })
        .collect();

    let spec = ReconSpec { method: case.method, batch: case.batch, ..ReconSpec::new(rows, n, axis_px) };
    let mut recon = accumulator(&spec, case.threads)?;
    let groups = recon.row_groups();
    let widest = groups.iter().map(ExactSizeIterator::len).max().unwrap_or(1);
    let mut buffers = vec![vec![f32::NAN; n * n]; widest];
    let (mut adding, mut inverting) = (Vec::new(), Vec::new());
    let mut cpu_before = 0.0;
    for round in 0..=REPEATS {
        if round == 1 {
            cpu_before = cpu_secs();
        }
        recon.reset();
        let start = Instant::now();
        recon.accumulate(&projections)?;
        adding.push(start.elapsed().as_secs_f64() / rows as f64);
        let start = Instant::now();
        for (index, group) in groups.iter().enumerate() {
            let mut slices: Vec<&mut [f32]> =
                buffers.iter_mut().take(group.len()).map(|b| &mut b[..]).collect();
            recon.slices(index, &mut slices)?;
        }
        inverting.push(start.elapsed().as_secs_f64() / rows as f64);
    }
    let cpu = (cpu_secs() - cpu_before) / (REPEATS * rows) as f64;
    let start = Instant::now();
    let mut preview = vec![0.0; n * n];
    recon.slice(0, &mut preview)?;
    let preview_secs = start.elapsed().as_secs_f64();

    let Accuracy { nrmse, gain } = accuracy(&buffers[0], &phantom::truth(n, 0.0), n);
    // The first round also asks the system for memory.
    let (add, invert) = (median(&adding[1..]), median(&inverting[1..]));
    let gups = (n * n * case.angles) as f64 / (add + invert) / 1e9;
    writeln!(
        out,
        "| {} | {n} | {} | {rows} | {} | {} | {add:.5} | {invert:.5} | {:.5} | {cpu:.5} | {gups:.2} | {preview_secs:.3} | {nrmse:.5} | {gain:.5} |",
        case.method,
        case.angles,
        case.threads,
        case.batch,
        add + invert,
    )?;
    Ok(())
}

/// Seconds of all processors that this process has used; it tells a slow program from a busy machine.
fn cpu_secs() -> f64 {
    const TICKS_PER_SEC: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time are the 14th and 15th fields, the 12th and 13th after the name in parentheses.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SEC
}
