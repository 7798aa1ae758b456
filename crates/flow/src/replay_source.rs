//! A recording as a detector.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beamstream_core::{FrameCounts, Ledger};
use beamstream_node::prelude::*;
use beamstream_tape::{Content, Entry, TapeError, TapeReader};

/// How often the account goes into the journal.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// How long it sleeps at most before it looks for a stop.
const NAP: Duration = Duration::from_millis(50);
/// Why a damaged frame is left out.
const DAMAGED: &str = "damaged in the recording";
/// Most series of a recording that accounts can still refer to.
const MAX_SERIES: usize = 20_000;

/// Replays what `record` has kept: the same frames in the same order, with the same account of what was lost.
///
/// Frames that are damaged in the recording are left out and counted as rejected. A recording that was cut off is
/// replayed as far as it goes.
///
/// ```yaml
/// version: 1
/// nodes:
///   again:   { kind: replay_source, path: "out/20260101-120000.tape", speed: 10 }
///   correct: { kind: flat_field, input: again }
///   volume:  { kind: recon, input: correct }
///   keep:    { kind: hdf5_sink, input: volume, path: "out/{series}.h5" }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaySourceConfig {
    /// The recording.
    pub path: PathBuf,
    /// How fast, greater than 0; without it as fast as the pipeline takes it. Unit: times the speed of the recording.
    #[serde(default)]
    pub speed: Option<f64>,
}

impl SourceConfig for ReplaySourceConfig {
    const KIND: &'static str = "replay_source";
    type Source = ReplaySource;

    fn build(self, _cx: &BuildContext) -> Result<ReplaySource, BuildError> {
        if let Some(speed) = self.speed.filter(|speed| !(speed.is_finite() && *speed > 0.0)) {
            return Err(BuildError::key("speed", format!("expected a number greater than 0, found {speed}")));
        }
        Ok(ReplaySource { path: self.path, speed: self.speed })
    }
}

/// Out: the blocks that were recorded.
pub struct ReplaySource {
    path: PathBuf,
    speed: Option<f64>,
}

impl Source for ReplaySource {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        let mut tape =
            TapeReader::open(&self.path).map_err(|error| unreadable(NodeErrorKind::Config, error))?;
        // What is wrong with its records is told when they are replayed.
        Ok(match tape.next_entry().ok().flatten().map(|entry| entry.content) {
            Some(Content::Series(header)) => Some(*header),
            _ => None,
        })
    }

    fn buffers(&self, _header: &SeriesHeader) -> usize {
        1
    }

    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        let tape = TapeReader::open(&self.path).map_err(|error| unreadable(NodeErrorKind::Config, error))?;
        let mut replay = Replay {
            tape,
            out,
            clock: self.speed.map(|speed| Clock { speed, began: None }),
            series: None,
            ordinals: BTreeMap::new(),
            next_ordinal: 0,
            next_report: Instant::now(),
        };
        let outcome = replay.run(&self.path);
        // However it ended: what came is accounted for.
        replay.report();
        if outcome.is_ok() && replay.series.is_some() {
            replay.end(None)?;
        }
        outcome
    }
}

/// The pace of a replay.
struct Clock {
    speed: f64,
    /// When the first record was replayed, and its time on the tape.
    began: Option<(Instant, u64)>,
}

impl Clock {
    /// When a record is due.
    fn due(&mut self, time_ns: u64) -> Instant {
        let (began, first_ns) = *self.began.get_or_insert((Instant::now(), time_ns));
        let secs = time_ns.saturating_sub(first_ns) as f64 * 1e-9 / self.speed;
        Duration::try_from_secs_f64(secs).ok().and_then(|after| began.checked_add(after)).unwrap_or(began)
    }
}

/// One run over a recording.
struct Replay<'a> {
    tape: TapeReader,
    out: &'a mut Outlet,
    clock: Option<Clock>,
    series: Option<OpenSeries>,
    /// For the ordinals of the recording, those of this run; `None` for series with damaged frames, whose account
    /// is no longer that of the recording.
    ordinals: BTreeMap<u64, Option<u64>>,
    next_ordinal: u64,
    next_report: Instant,
}

/// The series, or the pass, that is being replayed.
struct OpenSeries {
    id: SeriesId,
    /// Its ordinal in the recording.
    recorded: u64,
    format: Format,
    ledger: Ledger,
    damaged: u64,
    first_frame: Option<Instant>,
    last_frame: Option<Instant>,
    /// The account of the recording, once its end was read.
    told: Option<SeriesSummary>,
}

impl Replay<'_> {
    fn run(&mut self, path: &Path) -> Result<(), NodeError> {
        while !self.out.is_draining() {
            let entry = match self.tape.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(()),
                Err(error @ (TapeError::Cut { .. } | TapeError::Damaged { .. })) if !self.tape.is_whole() => {
                    self.out
                        .journal()
                        .warn(format!("the recording was cut off and is replayed up to there: {error}"));
                    return Ok(());
                }
                Err(error) => return Err(unreadable(NodeErrorKind::Io, error)),
            };
            if !self.wait_for(entry.time_ns)? {
                return Ok(());
            }
            match &entry.content {
                Content::Series(header) => self.begin(header)?,
                Content::Block { meta, format } => self.block(&entry, *meta, *format)?,
                Content::End(summary) => self.end(Some((**summary).clone()))?,
                Content::Account { id, summary } => self.account(*id, summary),
                Content::Index => {}
            }
            if Instant::now() >= self.next_report {
                self.report();
            }
        }
        tracing::debug!(path = %path.display(), "the replay was stopped");
        Ok(())
    }

    /// Waits until a record is due; says whether the replay goes on.
    fn wait_for(&mut self, time_ns: u64) -> Result<bool, NodeError> {
        let Some(clock) = &mut self.clock else { return Ok(true) };
        let due = clock.due(time_ns);
        while Instant::now() < due {
            if self.out.is_draining() {
                return Ok(false);
            }
            self.out.sleep_until(due.min(Instant::now() + NAP))?;
        }
        Ok(true)
    }

    fn begin(&mut self, recorded: &SeriesHeader) -> Result<(), NodeError> {
        if self.series.is_some() {
            // Its end is missing: the run that recorded it was killed and went on later.
            self.end(None)?;
        }
        let mut header = recorded.clone();
        if header.pass.is_first() {
            self.next_ordinal += 1;
        }
        header.id.ordinal = self.next_ordinal.saturating_sub(1);
        self.ordinals.insert(recorded.id.ordinal, Some(header.id.ordinal));
        if self.ordinals.len() > MAX_SERIES {
            self.ordinals.pop_first();
        }
        self.series = Some(OpenSeries {
            id: header.id,
            recorded: recorded.id.ordinal,
            format: header.format,
            ledger: Ledger::new(header.expected_frames),
            damaged: 0,
            first_frame: None,
            last_frame: None,
            told: None,
        });
        self.out.begin(header, 1)
    }

    fn block(&mut self, entry: &Entry, meta: BlockMeta, format: Format) -> Result<(), NodeError> {
        let Some(series) = &mut self.series else {
            return Err(NodeError::io("the recording is damaged: a block stands outside a series"));
        };
        let now = Instant::now();
        series.first_frame.get_or_insert(now);
        series.last_frame = Some(now);
        if format != series.format {
            series.reject(meta.frame, "another format than its series");
            return Ok(());
        }
        let mut lease = self.out.lease(format)?;
        match self.tape.read_pixels(entry, lease.bytes_mut()) {
            Ok(()) => {
                series.ledger.receive(meta.frame);
                self.out.push(lease.freeze(meta))
            }
            Err(error @ TapeError::Damaged { .. }) => {
                self.out.journal().warn(format!("frame {} is left out: {error}", meta.frame));
                series.reject(meta.frame, DAMAGED);
                Ok(())
            }
            Err(error) => Err(unreadable(NodeErrorKind::Io, error)),
        }
    }

    /// Ends the series as the recording says, or cut short where it says nothing.
    fn end(&mut self, told: Option<SeriesSummary>) -> Result<(), NodeError> {
        let Some(mut series) = self.series.take() else { return Ok(()) };
        series.ledger.close();
        // The end that a later run gave to a series that was cut off knows nothing of its frames.
        series.told = told.filter(|summary| summary.counts.received > 0);
        let summary = series.summary();
        if series.damaged > 0 {
            self.ordinals.insert(series.recorded, None);
        }
        self.series = Some(series);
        self.report();
        self.series = None;
        self.out.end(summary)
    }

    /// The account of a series with what came after its end, or of one of which only strays came.
    fn account(&mut self, recorded: SeriesId, summary: &SeriesSummary) {
        let ordinal = match self.ordinals.get(&recorded.ordinal) {
            Some(Some(ordinal)) => *ordinal,
            Some(None) => return,
            None => {
                self.next_ordinal += 1;
                self.next_ordinal - 1
            }
        };
        let id = SeriesId { number: recorded.number, ordinal };
        self.out.journal().series(id, |record| {
            record.counts = FrameCounts { spilled: 0, ..summary.counts.clone() };
            record.aborted |= summary.aborted;
        });
    }

    fn report(&mut self) {
        self.next_report = Instant::now() + REPORT_EVERY;
        let Some(series) = &self.series else { return };
        let summary = series.summary();
        self.out.journal().series(series.id, |record| {
            record.counts = summary.counts;
            record.first_frame = record.first_frame.or(series.first_frame);
            record.last_frame = series.last_frame.or(record.last_frame);
            record.aborted |= summary.aborted && series.ledger.is_closed();
        });
    }
}

impl OpenSeries {
    fn reject(&mut self, frame: FrameId, reason: &str) {
        self.ledger.reject(Some(frame), reason);
        self.damaged += 1;
    }

    /// The account as it stands: that of the recording, without what could not be read of it.
    fn summary(&self) -> SeriesSummary {
        let Some(told) = &self.told else {
            return SeriesSummary { counts: self.ledger.counts(), aborted: true };
        };
        let mut summary = told.clone();
        let counts = &mut summary.counts;
        counts.spilled = 0;
        counts.processed = counts.processed.saturating_sub(self.damaged);
        counts.rejected += self.damaged;
        counts.unreplaced += self.damaged;
        if self.damaged > 0 {
            *counts.rejected_by_reason.entry(DAMAGED.to_owned()).or_default() += self.damaged;
        }
        summary
    }
}

fn unreadable(kind: NodeErrorKind, error: TapeError) -> NodeError {
    NodeError::because(kind, "the recording cannot be replayed", error)
}
