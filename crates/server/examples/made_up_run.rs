//! Shows a made-up run, for work on the page: `cargo run --release -p beamstream-server --example made_up_run`.
//!
//! Optional arguments: the address (127.0.0.1:8642) and the seconds that a series takes (20).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use beamstream_buffer::{Block, Pool};
use beamstream_core::{
    BlockMeta, Content, ElementType, Format, FrameCounts, FrameId, Pass, Role, SeriesHeader, SeriesId,
};
use beamstream_engine::{NodeStatus, RunState, SetFailure, Status, WorkerState};
use beamstream_node::{Board, SeriesRecord, SetError, View};
use beamstream_server::{LiveRun, Server};
use serde_json::Value;

const EDGE: usize = 640;
const ROWS: usize = 512;
const PROJECTIONS: u64 = 3600;
/// Share of a series' time during which its finished volume is on show.
const REST: f64 = 0.3;

/// Series after series of a phantom whose noise falls as its projections come in.
struct MadeUp {
    started: Instant,
    series_secs: f64,
    board: Board,
    axis_px: Mutex<f64>,
    epoch: AtomicU32,
}

impl MadeUp {
    /// Count of the series, and its progress: 1 when all projections are there, more while it rests.
    fn progress(&self) -> (u64, f64) {
        let t = self.started.elapsed().as_secs_f64() / (self.series_secs * (1.0 + REST));
        (t as u64, t.fract() * (1.0 + REST))
    }

    fn record(&self, ordinal: u64, progress: f64) -> SeriesRecord {
        let first = self.started + Duration::from_secs_f64(ordinal as f64 * self.series_secs * (1.0 + REST));
        let last = first + Duration::from_secs_f64(self.series_secs * progress.min(1.0));
        let done = progress.min(1.0) * PROJECTIONS as f64;
        let lost = if progress > 0.6 { 3 } else { 0 };
        let received = (done as u64).saturating_sub(lost);
        let expected = Some(PROJECTIONS);
        let counts = FrameCounts { expected, received, processed: received, lost, ..FrameCounts::default() };
        SeriesRecord {
            counts,
            rotation_axis_px: self.axis_px.lock().ok().map(|axis| *axis),
            projections: Some(received),
            first_frame: Some(first),
            last_frame: Some(last),
            volume_done: (progress >= 1.02).then(|| last + Duration::from_millis(118)),
            ..SeriesRecord::new(SeriesId { number: ordinal + 41, ordinal })
        }
    }

    /// Pins three slices with the noise of so many projections.
    fn paint(&self, truths: &[(u64, Vec<f32>)], progress: f64, seed: &mut u32) -> Option<()> {
        for (z, truth) in truths {
            let format = Format::slice(ElementType::F32, EDGE);
            let mut lease = Pool::host("made up", 1, format.bytes()).ok()?.lease(format).ok()?;
            let noise = 0.012 / (progress.clamp(1e-3, 1.0) * 60.0).sqrt();
            for (voxel, value) in lease.elements_mut::<f32>().ok()?.iter_mut().zip(truth) {
                *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *voxel = value + (noise * (f64::from(*seed >> 8) / f64::from(1 << 23) - 1.0)) as f32;
            }
            let mut meta = BlockMeta::new(FrameId::new(*z), Role::Projection);
            meta.preview = progress < 1.0;
            meta.epoch = self.epoch.load(Ordering::Relaxed);
            let block: Block = lease.freeze(meta);
            self.board.pin("eyes", *z, block);
        }
        Some(())
    }
}

impl LiveRun for MadeUp {
    fn status(&self) -> Status {
        let (ordinal, progress) = self.progress();
        let all = (ordinal as f64 + progress.min(1.0)) * PROJECTIONS as f64;
        let frame_bytes = 2.0 * EDGE as f64 * ROWS as f64;
        let node = |id: &str, kind, out: f64| NodeStatus {
            id: id.to_owned(),
            kind,
            state: WorkerState::Working,
            blocks_in: 0,
            blocks_out: out as u64,
            bytes_out: (out * frame_bytes) as u64,
        };
        Status {
            state: RunState::Running,
            elapsed: self.started.elapsed(),
            nodes: vec![
                node("detector", "zmq_source", all),
                node("volume", "recon", 0.0),
                node("eyes", "view", 0.0),
            ],
            series: (0..=ordinal)
                .map(|n| self.record(n, if n == ordinal { progress } else { 2.0 }))
                .collect(),
        }
    }

    fn views(&self) -> BTreeMap<String, View> {
        self.board.snapshot()
    }

    fn set(&self, node: &str, key: &str, value: Value) -> Result<u32, SetFailure> {
        if (node, key) != ("volume", "rotation_axis") {
            return Err(SetError::Fixed(key.to_owned()).into());
        }
        if let (Ok(mut axis), Some(px)) = (self.axis_px.lock(), value.as_f64()) {
            *axis = px;
        }
        Ok(self.epoch.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8642".to_owned()).parse()?;
    let series_secs = arguments.next().map_or(Ok(20.0), |text| text.parse())?;
    let run = Arc::new(MadeUp {
        started: Instant::now(),
        series_secs,
        board: Board::default(),
        axis_px: Mutex::new(EDGE as f64 / 2.0 - 0.75),
        epoch: AtomicU32::new(0),
    });
    let _server = Server::start(address, run.clone())?;

    let places = [ROWS / 6, ROWS / 2, ROWS * 5 / 6].map(|z| z as u64);
    let truths: Vec<(u64, Vec<f32>)> = places
        .iter()
        .zip(beamstream_phantom::heights(places.len()))
        .map(|(z, height)| (*z, beamstream_phantom::truth(EDGE, height)))
        .collect();
    let (mut seed, mut shown) = (1, None);
    // Nobody sends: this only waits.
    let (_sender, pause) = sync_channel::<()>(0);
    while pause.recv_timeout(Duration::from_millis(200)).is_err() {
        let (ordinal, progress) = run.progress();
        if shown != Some(ordinal) {
            shown = Some(ordinal);
            let id = SeriesId { number: ordinal + 41, ordinal };
            let mut header = SeriesHeader::frames(id, Format::slice(ElementType::F32, EDGE));
            header.content = Content::Volume;
            header.pass = Pass::whole(ROWS);
            run.board.begin("eyes", Arc::new(header));
        }
        if progress < 1.05 && progress > 0.02 && run.paint(&truths, progress, &mut seed).is_none() {
            return Err("no memory for the images".into());
        }
    }
    Ok(())
}
