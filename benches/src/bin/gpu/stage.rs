//! The ends of the measured pipelines: a source that plays a scan from pinned memory, and sinks that look at the clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beamstream_core::{Ledger, Pass, RoleCounts, Window};
use beamstream_node::prelude::*;

use crate::Outcome;
use crate::machine::wait;
use crate::scan::Scan;

/// Darks, and as many flats, before the projections.
const REFERENCES: u64 = 10;
/// Voxels of a sampled slice that every volume is held against: one in so many.
const COMPARED_EVERY: usize = 997;
/// How often the source looks whether the run ends while it waits for a volume.
const LOOK: Duration = Duration::from_millis(100);

/// How a scan is played.
#[derive(Debug, Clone, Default)]
pub(crate) struct Play {
    /// Times that it is played; each begins when the volume of the one before is there.
    pub(crate) series: u64,
    /// Projections of each.
    pub(crate) projections: u64,
    /// Frames a second; as fast as they are taken if `None`.
    pub(crate) rate_hz: Option<f64>,
    /// Slices of the first volume that are kept.
    pub(crate) samples: Vec<u64>,
}

/// When what happened to a series.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// The first frame was offered.
    pub(crate) first_frame: Instant,
    /// The last frame was offered.
    pub(crate) last_frame: Instant,
    /// The last block came out and was written.
    pub(crate) volume: Instant,
}

/// What was seen of all series.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) series: Vec<Times>,
    /// Slices that were kept, by z.
    pub(crate) samples: BTreeMap<u64, Vec<f32>>,
    /// Blocks of the series at hand.
    blocks: u64,
    /// When the first and the last frame of the series at hand were offered.
    offered: Option<[Instant; 2]>,
    /// What is not as it should be.
    pub(crate) wrong: Vec<String>,
}

impl Seen {
    /// Keeps a slice of the first volume; later ones have to be the same.
    fn sample(&mut self, block: &Block) -> Result<(), NodeError> {
        let z = block.meta.frame.number;
        let values: Vec<f32> = match block.format().element {
            ElementType::U16 => block.elements::<u16>()?.iter().map(|&value| f32::from(value)).collect(),
            _ => block.elements::<f32>()?.to_vec(),
        };
        let Some(kept) = self.samples.get(&z) else {
            self.samples.insert(z, values);
            return Ok(());
        };
        let same = |at: usize| kept[at].to_bits() == values[at].to_bits();
        if !(0..kept.len()).step_by(COMPARED_EVERY).all(same) {
            self.wrong.push(format!("slice {z} of a later volume differs from that of the first"));
        }
        Ok(())
    }

    /// The first frame of a series is that of its first band, the last one that of its last.
    fn offer(&mut self, band: usize, first: Instant, last: Instant) {
        self.offered = match self.offered {
            Some([begun, _]) if band > 0 => Some([begun, last]),
            _ => Some([first, last]),
        };
    }
}

/// What source and sink share.
pub(crate) struct Stage {
    scan: Arc<Scan>,
    play: Play,
    seen: Mutex<Seen>,
    changed: Condvar,
}

/// The stage of the pipeline that is being built: settings of nodes are text and cannot carry it.
static STAGE: Mutex<Option<Arc<Stage>>> = Mutex::new(None);

impl Stage {
    /// Sets the stage for the pipeline that is built next.
    pub(crate) fn set(scan: Arc<Scan>, play: Play) -> Arc<Self> {
        let stage = Arc::new(Self { scan, play, seen: Mutex::default(), changed: Condvar::new() });
        *STAGE.lock().unwrap_or_else(PoisonError::into_inner) = Some(stage.clone());
        stage
    }

    /// Lets the source go on, where another sink than those here looks at the volume.
    pub(crate) fn volume_came(&self) {
        let now = Instant::now();
        self.lock().series.push(Times { first_frame: now, last_frame: now, volume: now });
        self.changed.notify_all();
    }

    fn current() -> Result<Arc<Self>, BuildError> {
        let stage = STAGE.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stage.ok_or_else(|| BuildError::new("the stage is not set"))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen, once the run is over.
    ///
    /// # Errors
    /// If something was not as it should be.
    pub(crate) fn seen(&self) -> Outcome<Seen> {
        let seen = std::mem::take(&mut *self.lock());
        match seen.wrong.first() {
            Some(wrong) => Err(format!("{} findings, first: {wrong}", seen.wrong.len()).into()),
            None => Ok(seen),
        }
    }
}

pub(crate) fn register(registry: &mut Registry) {
    registry.source::<StageSourceConfig>();
    registry.node::<HostSinkConfig>();
    registry.node::<DeviceSinkConfig>();
}

/// Plays the scan of the stage.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct StageSourceConfig {}

struct StageSource(Arc<Stage>);

impl SourceConfig for StageSourceConfig {
    const KIND: &'static str = "stage_source";
    type Source = StageSource;

    fn build(self, _cx: &BuildContext) -> Result<StageSource, BuildError> {
        Stage::current().map(StageSource)
    }
}

impl StageSource {
    fn series_header(&self, ordinal: u64, band: usize) -> SeriesHeader {
        let extent = &self.0.scan.extent;
        let rows = extent.band(band);
        let projections = self.0.play.projections;
        SeriesHeader {
            window: Window { first_row: rows.start, ..Window::default() },
            pass: Pass { index: band, count: extent.bands, first_row: rows.start, total_rows: extent.rows },
            expected_frames: Some(2 * REFERENCES + projections),
            roles: Some(RoleCounts {
                darks: REFERENCES,
                flats: REFERENCES,
                projections,
                references_first: true,
            }),
            angles_rad: Some((0..projections).map(|at| extent.angle_rad(at)).collect()),
            rotation_axis_px: Some(extent.axis_px()),
            ..SeriesHeader::frames(SeriesId { number: ordinal + 1, ordinal }, extent.frame_format())
        }
    }

    /// Sends one band; gives the time at which the first and the last frame were offered.
    fn send(&self, band: usize, out: &mut Outlet) -> Result<[Instant; 2], NodeError> {
        let Stage { scan, play, .. } = &*self.0;
        let started = Instant::now();
        let mut last = started;
        for number in 0..2 * REFERENCES + play.projections {
            if out.is_draining() {
                break;
            }
            let (role, projection) = match number {
                dark if dark < REFERENCES => (Role::Dark, 0),
                flat if flat < 2 * REFERENCES => (Role::Flat, 0),
                number => (Role::Projection, number - 2 * REFERENCES),
            };
            if let Some(rate_hz) = play.rate_hz {
                out.sleep_until(started + Duration::from_secs_f64(number as f64 / rate_hz))?;
            }
            let mut block = scan.frame(band, role, projection);
            block.meta = BlockMeta::new(FrameId::new(number), role);
            if role == Role::Projection {
                block.meta.projection = projection;
                block.meta.angle_rad = Some(scan.extent.angle_rad(projection));
            }
            last = Instant::now();
            out.push(block)?;
        }
        Ok([started, last])
    }

    /// Waits until the volume of the series at hand is there; says whether it came.
    fn wait_for_volume(&self, series: usize, out: &Outlet) -> bool {
        let mut seen = self.0.lock();
        while seen.series.len() < series && seen.wrong.is_empty() {
            if out.is_draining() {
                return false;
            }
            seen = self.0.changed.wait_timeout(seen, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Source for StageSource {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        Ok(Some(self.series_header(0, 0)))
    }

    fn buffers(&self, _header: &SeriesHeader) -> usize {
        1
    }

    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        for ordinal in 0..self.0.play.series {
            for band in 0..self.0.scan.extent.bands {
                let header = self.series_header(ordinal, band);
                let (id, expected) = (header.id, header.expected_frames);
                out.begin(header, 1)?;
                let [first, last] = self.send(band, out)?;
                self.0.lock().offer(band, first, last);
                let mut ledger = Ledger::new(expected);
                (0..expected.unwrap_or(0)).for_each(|number| {
                    ledger.receive(FrameId::new(number));
                });
                ledger.close();
                let counts = ledger.counts();
                out.journal().series(id, |record| record.counts = counts.clone());
                out.end(SeriesSummary { counts, aborted: false })?;
            }
            if !self.wait_for_volume(ordinal as usize + 1, out) {
                break;
            }
        }
        Ok(())
    }
}

/// The end of a pipeline on the host: what comes is there to be read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct HostSinkConfig {}

/// The end of a pipeline on the device: what comes is there for the next computation.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct DeviceSinkConfig {}

impl NodeConfig for HostSinkConfig {
    const KIND: &'static str = "host_sink";
    const CLASS: KindClass = KindClass::Sink;
    type Node = StageSink;

    fn build(self, _cx: &BuildContext) -> Result<StageSink, BuildError> {
        StageSink::new()
    }
}

impl NodeConfig for DeviceSinkConfig {
    const KIND: &'static str = "device_sink";
    const CLASS: KindClass = KindClass::Sink;
    const COMPUTES: bool = true;
    type Node = StageSink;

    fn build(self, _cx: &BuildContext) -> Result<StageSink, BuildError> {
        StageSink::new()
    }
}

/// Waits for every block to be written, counts them, keeps samples, looks at the clock.
struct StageSink {
    stage: Arc<Stage>,
    pass: Pass,
}

impl StageSink {
    fn new() -> Result<Self, BuildError> {
        Ok(Self { stage: Stage::current()?, pass: Pass::whole(0) })
    }
}

impl Node for StageSink {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }

    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        self.pass = header.pass;
        if header.pass.is_first() {
            self.stage.lock().blocks = 0;
        }
        Ok(())
    }

    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        wait(&block);
        let mut seen = self.stage.lock();
        let expected = seen.blocks;
        if block.meta.frame.number != expected {
            let found = block.meta.frame.number;
            seen.wrong.push(format!("expected block {expected}, found {found}"));
        }
        seen.blocks += 1;
        if block.kind().is_host() && self.stage.play.samples.contains(&block.meta.frame.number) {
            seen.sample(&block)?;
        }
        Ok(())
    }

    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        if !self.pass.is_last() {
            return Ok(());
        }
        let volume = Instant::now();
        let mut seen = self.stage.lock();
        match seen.offered {
            Some([first_frame, last_frame]) if seen.blocks > 0 => {
                seen.series.push(Times { first_frame, last_frame, volume });
            }
            _ => seen.wrong.push("a series ended without a block".to_owned()),
        }
        self.stage.changed.notify_all();
        Ok(())
    }
}
