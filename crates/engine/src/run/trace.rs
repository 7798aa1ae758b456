//! Traces: when each node worked and waited, how full the edges were, and what devices did meanwhile, as a file for
//! Perfetto or `chrome://tracing`.
//!
//! A run without a trace pays one branch for each span.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use beamstream_ops::{Device, DeviceSpan};
use serde_json::{Value, json};

/// Spans and counts that one row remembers; what comes beyond is counted and not remembered.
const MOST_EVENTS: usize = 1 << 18;
/// The process of the rows of nodes; devices have those that follow.
const NODES: usize = 1;

/// What a node did in a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Something with the block of this number.
    Block(u64),
    /// Began a series.
    Begin,
    /// Ended a series.
    End,
    /// Made again what a changed parameter changes.
    Change,
    /// Waited for its input.
    WaitForInput,
    /// Waited until a device had written its input.
    WaitForDevice,
    /// Waited for room behind it.
    WaitForRoom,
}

impl Doing {
    fn name(self) -> &'static str {
        match self {
            Self::Block(_) => "process",
            Self::Begin => "begin",
            Self::End => "end",
            Self::Change => "change",
            Self::WaitForInput => "wait for input",
            Self::WaitForDevice => "wait for device",
            Self::WaitForRoom => "wait for room",
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    Span { doing: Doing, began: Duration, ended: Duration },
    Count { at: Duration, blocks: usize },
}

#[derive(Default)]
struct Row {
    name: String,
    entries: Vec<Entry>,
    dropped: u64,
}

/// A row of a trace: one node, or one edge.
#[derive(Clone)]
pub(crate) struct Track {
    origin: Instant,
    row: Arc<Mutex<Row>>,
}

impl Track {
    /// Remembers what was done from `since` until now.
    pub(crate) fn span(&self, doing: Doing, since: Instant) {
        let (began, ended) = (since.saturating_duration_since(self.origin), self.origin.elapsed());
        self.add(Entry::Span { doing, began, ended });
    }

    /// Remembers how many blocks wait now.
    pub(crate) fn count(&self, blocks: usize) {
        self.add(Entry::Count { at: self.origin.elapsed(), blocks });
    }

    fn add(&self, entry: Entry) {
        let mut row = lock(&self.row);
        if row.entries.len() < MOST_EVENTS {
            row.entries.push(entry);
        } else {
            row.dropped += 1;
        }
    }
}

/// The trace of a run.
pub(crate) struct Tracer {
    path: PathBuf,
    origin: Instant,
    rows: Mutex<Vec<Arc<Mutex<Row>>>>,
    devices: Vec<Arc<dyn Device>>,
}

impl Tracer {
    /// A trace that becomes the file `path`; devices remember their work from now on.
    pub(crate) fn start(path: &Path, devices: &[Arc<dyn Device>]) -> Self {
        let origin = Instant::now();
        for device in devices {
            if let Err(error) = device.start_trace(origin) {
                tracing::warn!("the trace is without the work of {}: {error}", device.id());
            }
        }
        Self { path: path.to_owned(), origin, rows: Mutex::default(), devices: devices.to_vec() }
    }

    /// A new row.
    pub(crate) fn track(&self, name: &str) -> Track {
        let row = Arc::new(Mutex::new(Row { name: name.to_owned(), ..Row::default() }));
        lock(&self.rows).push(row.clone());
        Track { origin: self.origin, row }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// If it cannot be written; the text names it.
    pub(crate) fn finish(&self) -> Result<(), String> {
        self.write().map_err(|error| format!("the trace {} cannot be written: {error}", self.path.display()))
    }

    fn write(&self) -> io::Result<()> {
        let mut events = Events::new(BufWriter::new(std::fs::File::create(&self.path)?))?;
        events.name("process_name", NODES, 0, "nodes")?;
        for (number, row) in lock(&self.rows).iter().enumerate() {
            events.row(number + 1, &lock(row))?;
        }
        for (number, device) in self.devices.iter().enumerate() {
            let process = NODES + 1 + number;
            events.name("process_name", process, 0, &device.id().to_string())?;
            events.device(process, device.take_spans())?;
        }
        events.finish()
    }
}

/// Events of the file, one a line.
struct Events<W: Write> {
    out: W,
    dropped: u64,
    is_first: bool,
}

impl<W: Write> Events<W> {
    fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"traceEvents\":[\n")?;
        Ok(Self { out, dropped: 0, is_first: true })
    }

    fn add(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.out.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut self.out, event)?;
        Ok(())
    }

    fn name(&mut self, what: &str, process: usize, thread: usize, name: &str) -> io::Result<()> {
        let args = json!({ "name": name });
        self.add(&json!({ "ph": "M", "name": what, "pid": process, "tid": thread, "args": args }))
    }

    fn span(
        &mut self,
        place: [usize; 2],
        name: &str,
        time: [Duration; 2],
        number: Option<u64>,
    ) -> io::Result<()> {
        let ([process, thread], [began, ended]) = (place, time);
        let mut event = json!({
            "ph": "X", "name": name, "pid": process, "tid": thread,
            "ts": micros(began), "dur": micros(ended.saturating_sub(began)),
        });
        if let Some(number) = number {
            event["args"] = json!({ "number": number });
        }
        self.add(&event)
    }

    fn row(&mut self, thread: usize, row: &Row) -> io::Result<()> {
        self.dropped += row.dropped;
        if row.entries.iter().any(|entry| matches!(entry, Entry::Span { .. })) {
            self.name("thread_name", NODES, thread, &row.name)?;
        }
        for entry in &row.entries {
            match *entry {
                Entry::Span { doing, began, ended } => {
                    let number = if let Doing::Block(number) = doing { Some(number) } else { None };
                    self.span([NODES, thread], doing.name(), [began, ended], number)?;
                }
                Entry::Count { at, blocks } => {
                    let args = json!({ "blocks": blocks });
                    self.add(&json!({
                        "ph": "C", "name": row.name, "pid": NODES, "ts": micros(at), "args": args,
                    }))?;
                }
            }
        }
        Ok(())
    }

    /// The work of a device, a row for each stream.
    fn device(&mut self, process: usize, (spans, dropped): (Vec<DeviceSpan>, u64)) -> io::Result<()> {
        self.dropped += dropped;
        let mut streams: Vec<&str> = spans.iter().map(|span| span.stream.as_str()).collect();
        streams.sort_unstable();
        streams.dedup();
        for (thread, stream) in streams.iter().enumerate() {
            self.name("thread_name", process, thread, stream)?;
        }
        for span in &spans {
            let thread = streams.binary_search(&span.stream.as_str()).unwrap_or(0);
            self.span([process, thread], &span.name, [span.began, span.ended], None)?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        let dropped = self.dropped;
        write!(self.out, "\n],\"otherData\":{{\"events_not_remembered\":{dropped}}}}}\n")?;
        self.out.flush()
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 * 1e-3
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
