//! The end of a branch that keeps everything.

mod earlier;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use beamstream_core::Content;
use beamstream_node::prelude::*;
use beamstream_node::{Earlier, Journal};
use beamstream_tape::{Stored, TapeError, TapeReader, TapeWriter};

use earlier::{EarlierRecording, needed};

/// Most series whose account is remembered, for frames that come after their end; the oldest are forgotten beyond.
const MAX_SERIES: usize = 20_000;

/// Records all that comes, for `replay_source`: frames, when they came, and the account of each series.
///
/// One file holds all series of a run. What came is in it at once, so that a run that was killed loses nothing of it;
/// such a file is never replaced, but continued by the next run that records there: if the node stands right behind a
/// `zmq_source`, that run sends the series that was cut off from the recording and goes on with the frames that come.
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
            earlier: None,
            stored: None,
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
    /// What the tape holds already, once this run goes on with it.
    earlier: Option<Continued>,
    /// What the tape holds already of the series that is under way.
    stored: Option<Stored>,
    /// Frames of each series that its end accounted for, by ordinal.
    received: BTreeMap<u64, u64>,
}

/// Series of the tape that come again from it.
struct Continued {
    series: VecDeque<Stored>,
    /// Whether they do: the source may begin anew instead.
    taken: Arc<AtomicBool>,
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
        if is_cut_off(path) {
            return Ok(self.go_on(path)?.0);
        }
        if self.overwrite {
            return TapeWriter::create(path).map_err(failed);
        }
        Err(NodeError::config(format!(
            "{} exists: take another path, {{date}} in it, or allow --overwrite",
            path.display()
        )))
    }

    /// Goes on with a recording that was cut off; gives the series that it holds.
    fn go_on(&self, path: &Path) -> Result<(TapeWriter, Vec<Stored>), NodeError> {
        let (tape, found) = TapeWriter::go_on(path).map_err(failed)?;
        let what = found.cut.unwrap_or_else(|| "it had no index".to_owned());
        self.journal.warn(format!("the recording {} was cut off and is continued: {what}", path.display()));
        Ok((tape, found.series))
    }

    /// What the tape holds of a series that begins, if it comes from the tape.
    fn stored(&mut self, id: SeriesId) -> Option<Stored> {
        let earlier = self.earlier.as_mut().filter(|earlier| earlier.taken.load(Ordering::Acquire))?;
        if earlier.series.front()?.id == id { earlier.series.pop_front() } else { None }
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
        self.stored = self.stored(header.id);
        if self.stored.is_none() {
            self.tape()?.series(header).map_err(failed)?;
        }
        self.open = true;
        Ok(())
    }

    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        if self.stored.as_ref().is_some_and(|stored| stored.contains(block.meta.frame)) {
            return Ok(());
        }
        self.tape()?.block(&block.meta, block.format(), block.bytes()).map_err(failed)
    }

    fn end(&mut self, summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError> {
        if !self.open {
            return Ok(());
        }
        if !self.stored.take().is_some_and(|stored| stored.ended) {
            self.tape()?.end(summary).map_err(failed)?;
        }
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

    fn earlier(&mut self) -> Result<Option<Box<dyn Earlier>>, NodeError> {
        if !is_cut_off(&self.path) {
            return Ok(None);
        }
        let (tape, all) = self.go_on(&self.path)?;
        let series = needed(&all);
        let recording = EarlierRecording::new(&self.path, &all, &series).map_err(failed)?;
        self.earlier = Some(Continued { series, taken: recording.taken() });
        self.tape = Some(tape);
        Ok(Some(Box::new(recording)))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            self.journal.warn(failed(error).full_text());
        }
    }
}

/// Whether a recording stands there whose run was killed.
fn is_cut_off(path: &Path) -> bool {
    TapeReader::open(path).is_ok_and(|tape| !tape.is_whole())
}

fn failed(error: TapeError) -> NodeError {
    let kind = match error {
        TapeError::Io { .. } => NodeErrorKind::Io,
        _ => NodeErrorKind::Config,
    };
    let what = if error.is_full() { "the recording has no space left" } else { "the recording failed" };
    NodeError::because(kind, what, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::Harness;
    use serde_json::json;

    fn recorder(path: &Path, overwrite: bool) -> Harness<RecordConfig> {
        Harness::new(json!({ "path": path, "overwrite": overwrite }))
    }

    fn frames(path: &Path) -> usize {
        let mut tape = TapeReader::open(path).unwrap();
        let entries = std::iter::from_fn(|| tape.next_entry().unwrap());
        entries.filter(|entry| entry.format().is_some()).count()
    }

    #[test]
    fn all_series_of_a_run_stand_in_one_file_with_an_index() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/t");
        let mut node = recorder(&path, false);
        node.series(&[1.0, 2.0]);
        node.series(&[3.0]);
        assert!(!TapeReader::open(&path).unwrap().is_whole());
        drop(node);
        assert!(TapeReader::open(&path).unwrap().is_whole());
        assert_eq!(frames(&path), 3);
    }

    #[test]
    fn a_finished_recording_is_replaced_only_if_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        recorder(&path, false).series(&[1.0, 2.0]);
        let error = recorder(&path, false).begin().unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Config);
        assert!(error.full_text().contains("--overwrite"), "{}", error.full_text());
        recorder(&path, true).series(&[1.0]);
        assert_eq!(frames(&path), 1);
    }

    #[test]
    fn a_recording_that_was_cut_off_is_continued_and_gives_what_is_needed_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let mut node = recorder(&path, false);
        node.begin().unwrap();
        for number in 0..3 {
            node.feed(BlockMeta::new(FrameId::new(number), Role::Projection), &[number as f32; 4]).unwrap();
        }
        // Dropped within a series: no index, as after a kill.
        drop(node);
        let mut node = recorder(&path, true);
        let mut earlier = node.node().earlier().unwrap().unwrap();
        assert_eq!(earlier.projection_series(), 0);
        let mut steps = 0;
        while let Some(step) = earlier.step().unwrap() {
            steps += 1;
            if let beamstream_node::EarlierStep::Block { meta, format } = step {
                let mut pixels = vec![0; format.bytes()];
                earlier.read(&mut pixels).unwrap();
                assert_eq!(pixels[..4], (meta.frame.number as f32).to_le_bytes());
            }
        }
        assert_eq!(steps, 4, "a beginning and three frames");
        node.series(&[0.0, 1.0, 2.0, 3.0, 4.0]);
        drop(node);
        assert_eq!(frames(&path), 5, "each frame stands there once");
    }

    #[test]
    fn paths_by_series_are_refused() {
        assert!(Harness::<RecordConfig>::refusal(json!({ "path": "{series}.tape" })).contains("all series"));
        assert!(Harness::<RecordConfig>::refusal(json!({ "path": "{x}.tape" })).contains("{x}"));
    }
}
