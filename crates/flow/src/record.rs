//! The end of a branch that keeps everything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use beamstream_core::Content;
use beamstream_node::Journal;
use beamstream_node::prelude::*;
use beamstream_tape::{TapeError, TapeReader, TapeWriter};

/// Most series whose account is remembered, for frames that come after their end; the oldest are forgotten beyond.
const MAX_SERIES: usize = 20_000;

/// Records all that comes, for `replay_source`: frames, when they came, and the account of each series.
///
/// One file holds all series of a run. What came is in it at once, so that a run that was killed loses nothing of it;
/// such a file is never replaced, but continued by the next run that records there.
///
/// ```yaml
/// version: 1
/// nodes:
///   detector: { kind: zmq_source, endpoint: "tcp://127.0.0.1:9999" }
///   tape:     { kind: record, input: detector, path: "out/{date}.tape" }
///   correct:  { kind: flat_field, input: detector }
///   volume:   { kind: recon, input: correct }
///   keep:     { kind: hdf5_sink, input: volume, path: "out/{series}.h5" }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordConfig {
    /// The file. `{date}` and `{node}` are replaced.
    pub path: String,
    /// Whether to replace a recording that was finished.
    #[serde(default)]
    pub overwrite: bool,
}

impl NodeConfig for RecordConfig {
    const KIND: &'static str = "record";
    const CLASS: KindClass = KindClass::Sink;
    type Node = Recorder;

    fn build(self, cx: &BuildContext) -> Result<Recorder, BuildError> {
        let path = self.path.replace("{date}", &cx.date).replace("{node}", &cx.node);
        if path.contains("{series}") {
            let text = "a recording holds all series of a run: leave {series} out, and take {date} to tell runs apart";
            return Err(BuildError::key("path", text));
        }
        if path.contains(['{', '}']) {
            return Err(BuildError::key(
                "path",
                format!("expected no braces but {{date}} and {{node}}, found '{path}'"),
            ));
        }
        Ok(Recorder {
            path: path.into(),
            overwrite: self.overwrite || cx.overwrite,
            journal: cx.journal.clone(),
            tape: None,
            open: false,
            received: BTreeMap::new(),
        })
    }
}

/// Writes blocks as they are. In: anything.
pub struct Recorder {
    path: PathBuf,
    overwrite: bool,
    journal: Journal,
    /// Begun by the first series, so that a run that gets none leaves no file.
    tape: Option<TapeWriter>,
    /// Whether a series is under way.
    open: bool,
    /// Frames of each series that its end accounted for, by ordinal.
    received: BTreeMap<u64, u64>,
}

impl Recorder {
    fn open_tape(&self) -> Result<TapeWriter, NodeError> {
        let path = &self.path;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                NodeError::because(
                    NodeErrorKind::Config,
                    format!("cannot record in {}", folder.display()),
                    error,
                )
            })?;
        }
        if !path.exists() {
            return TapeWriter::create(path).map_err(failed);
        }
        if TapeReader::open(path).is_ok_and(|tape| !tape.is_whole()) {
            return self.go_on(path);
        }
        if self.overwrite {
            return TapeWriter::create(path).map_err(failed);
        }
        Err(NodeError::config(format!(
            "{} exists: take another path, {{date}} in it, or allow --overwrite",
            path.display()
        )))
    }

    /// Goes on with a recording that was cut off; the series that it ends in is closed there.
    fn go_on(&self, path: &Path) -> Result<TapeWriter, NodeError> {
        let (mut tape, found) = TapeWriter::go_on(path).map_err(failed)?;
        let what = found.cut.unwrap_or_else(|| "it had no index".to_owned());
        self.journal.warn(format!("the recording {} was cut off and is continued: {what}", path.display()));
        if found.open.is_some() {
            tape.end(&SeriesSummary { aborted: true, ..SeriesSummary::default() }).map_err(failed)?;
        }
        Ok(tape)
    }

    fn tape(&mut self) -> Result<&mut TapeWriter, NodeError> {
        let tape = match self.tape.take() {
            Some(tape) => tape,
            None => self.open_tape()?,
        };
        Ok(self.tape.insert(tape))
    }

    /// Writes what came of series after their end, and the index.
    fn finish(&mut self) -> Result<(), TapeError> {
        // A series that is not ended is left as it is: the next run may go on with it.
        let Some(mut tape) = self.tape.take().filter(|_| !self.open) else { return Ok(()) };
        for record in self.journal.all_series() {
            if self.received.get(&record.id.ordinal) != Some(&record.counts.received) {
                let summary = SeriesSummary { counts: record.counts, aborted: record.aborted };
                tape.account(record.id, &summary)?;
            }
        }
        tape.finish()
    }
}

impl Node for Recorder {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }

    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        self.tape()?.series(header).map_err(failed)?;
        self.open = true;
        Ok(())
    }

    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        self.tape()?.block(&block.meta, block.format(), block.bytes()).map_err(failed)
    }

    fn end(&mut self, summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError> {
        if !self.open {
            return Ok(());
        }
        self.tape()?.end(summary).map_err(failed)?;
        self.open = false;
        // Only the source accounts for frames; its own summary is the same on this edge.
        if let Some(header) = out.header().filter(|header| header.content == Content::Frames) {
            self.received.insert(header.id.ordinal, summary.counts.received);
            if self.received.len() > MAX_SERIES {
                self.received.pop_first();
            }
        }
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            self.journal.warn(failed(error).full_text());
        }
    }
}

fn failed(error: TapeError) -> NodeError {
    let kind = match error {
        TapeError::Io { .. } => NodeErrorKind::Io,
        _ => NodeErrorKind::Config,
    };
    let what = if error.is_full() { "the recording has no space left" } else { "the recording failed" };
    NodeError::because(kind, what, error)
}
