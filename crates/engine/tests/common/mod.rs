//! Small kinds of nodes to try the engine with.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use beamstream_core::{FrameCounts, Ledger};
use beamstream_engine::{Plan, PlanError, PlanOptions};
use beamstream_graph::Graph;
use beamstream_node::ImageReader;
use beamstream_node::prelude::*;
use serde_json::Value;

/// Sends series of frames whose pixels hold the frame's number.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountSourceConfig {
    /// Frames of a series.
    pub frames: u64,
    /// Series.
    #[serde(default = "one")]
    pub series: u64,
    /// Edge of a frame in pixels.
    #[serde(default = "one")]
    pub size: u64,
    /// Fail after so many frames.
    pub fail_after: Option<u64>,
    /// Go on for ever.
    #[serde(default)]
    pub endless: bool,
}

fn one() -> u64 {
    1
}

pub(crate) struct CountSource(CountSourceConfig);

impl SourceConfig for CountSourceConfig {
    const KIND: &'static str = "count_source";
    type Source = CountSource;
    fn build(self, _cx: &BuildContext) -> Result<CountSource, BuildError> {
        Ok(CountSource(self))
    }
}

impl CountSource {
    fn header_of(&self, ordinal: u64) -> SeriesHeader {
        let size = self.0.size as usize;
        let id = SeriesId { number: ordinal, ordinal };
        let mut header = SeriesHeader::frames(id, Format::frame(ElementType::U32, size, size));
        header.expected_frames = Some(self.0.frames);
        header
    }
}

impl Source for CountSource {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        Ok(Some(self.header_of(0)))
    }
    fn buffers(&self, _header: &SeriesHeader) -> usize {
        1
    }
    fn run(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        for ordinal in 0..self.0.series {
            let header = self.header_of(ordinal);
            out.begin(header.clone(), 1)?;
            let mut ledger = Ledger::new(header.expected_frames);
            let mut number = 0;
            while (number < self.0.frames || self.0.endless) && !out.is_draining() {
                if self.0.fail_after == Some(number) {
                    return Err(NodeError::io("the cable was cut"));
                }
                let mut lease = out.lease(header.format)?;
                lease.elements_mut::<u32>()?.fill(number as u32);
                ledger.receive(FrameId::new(number));
                out.push(lease.freeze(BlockMeta::new(FrameId::new(number), Role::Projection)))?;
                number += 1;
            }
            let counts: FrameCounts = ledger.counts();
            out.journal().series(header.id, |record| record.counts = counts.clone());
            out.end(SeriesSummary { counts, aborted: number < self.0.frames })?;
        }
        Ok(())
    }
}

/// Everything that a `probe` sink saw, by node.
pub(crate) static SEEN: Mutex<Vec<(String, Saw)>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Saw {
    Begin(u64),
    Block { number: u64, pixel: u32, epoch: u32 },
    End { aborted: bool },
}

/// What the sink named `node` saw.
pub(crate) fn seen_by(node: &str) -> Vec<Saw> {
    SEEN.lock().unwrap().iter().filter(|(who, _)| who == node).map(|(_, saw)| saw.clone()).collect()
}

/// Writes down what comes; can fail, panic or be held.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbeSinkConfig {
    /// Name under which it writes down.
    pub label: String,
    /// Fail at this block.
    pub fail_at: Option<u64>,
    /// Panic at this block, once.
    pub panic_at: Option<u64>,
    /// Refuse series of this number.
    pub refuse: Option<u64>,
    /// Wait at the first block until the gate opens.
    #[serde(default)]
    pub gated: bool,
}

pub(crate) struct ProbeSink(ProbeSinkConfig);

static PANICS: AtomicU64 = AtomicU64::new(0);
static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// Lets gated sinks go on.
pub(crate) fn open_gate() {
    *GATE.0.lock().unwrap() = true;
    GATE.1.notify_all();
}

impl ProbeSink {
    fn note(&self, saw: Saw) {
        SEEN.lock().unwrap().push((self.0.label.clone(), saw));
    }
}

impl NodeConfig for ProbeSinkConfig {
    const KIND: &'static str = "probe_sink";
    const CLASS: KindClass = KindClass::Sink;
    type Node = ProbeSink;
    fn build(self, _cx: &BuildContext) -> Result<ProbeSink, BuildError> {
        Ok(ProbeSink(self))
    }
}

impl Node for ProbeSink {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        match self.0.refuse {
            Some(refused) if refused == header.id.number => {
                Err(NodeError::series("this series is not for me"))
            }
            _ => Ok(Negotiated::unchanged(header)),
        }
    }
    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        self.note(Saw::Begin(header.id.number));
        Ok(())
    }
    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        let number = block.meta.frame.number;
        if self.0.gated {
            let opened = GATE.1.wait_while(GATE.0.lock().unwrap(), |open| !*open).unwrap();
            drop(opened);
        }
        if self.0.fail_at == Some(number) {
            return Err(NodeError::io("no space left on the disk"));
        }
        let first = self.0.panic_at == Some(number) && PANICS.fetch_add(1, Ordering::Relaxed) == 0;
        assert!(!first, "a programming error");
        self.note(Saw::Block { number, pixel: block.elements::<u32>()?[0], epoch: block.meta.epoch });
        Ok(())
    }
    fn end(&mut self, summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        self.note(Saw::End { aborted: summary.aborted });
        Ok(())
    }
}

/// Adds a number to every pixel; the number can be changed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddConfig {
    /// What is added.
    pub add: u32,
    /// Memory that it claims.
    #[serde(default)]
    pub memory_bytes: usize,
}

pub(crate) struct Add(AddConfig);

impl NodeConfig for AddConfig {
    const KIND: &'static str = "add";
    const CLASS: KindClass = KindClass::Step;
    type Node = Add;
    fn build(self, _cx: &BuildContext) -> Result<Add, BuildError> {
        Ok(Add(self))
    }
}

impl Node for Add {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated { memory_bytes: self.0.memory_bytes, ..Negotiated::unchanged(header) })
    }
    fn begin(&mut self, _header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let mut lease = out.lease(block.format())?;
        for (to, from) in lease.elements_mut::<u32>()?.iter_mut().zip(block.elements::<u32>()?) {
            *to = from + self.0.add;
        }
        out.push(lease.freeze(block.meta))
    }
    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
    fn set(&mut self, key: &str, value: &Value) -> Result<TakesEffect, SetError> {
        match (key, value.as_u64()) {
            ("add", Some(add)) => {
                self.0.add = add as u32;
                Ok(TakesEffect::WithNextBlock)
            }
            _ => Err(SetError::Fixed(key.to_owned())),
        }
    }
}

pub(crate) fn registry() -> Arc<Registry> {
    let mut registry = Registry::default();
    registry.source::<CountSourceConfig>();
    registry.node::<ProbeSinkConfig>();
    registry.node::<AddConfig>();
    Arc::new(registry)
}

struct NoImages;

impl ImageReader for NoImages {
    fn mean_image(&self, path: &str) -> Result<(Shape, Vec<f32>), String> {
        Err(format!("{path}: not here"))
    }
}

pub(crate) fn options(memory_bytes: u64) -> PlanOptions {
    let ops = Arc::new(beamstream_cpu::CpuBackend::new(1));
    PlanOptions { memory_bytes, ..PlanOptions::new(ops, Arc::new(NoImages)) }
}

/// Plans a launch line.
pub(crate) fn plan_with(line: &str, memory_bytes: u64) -> Result<Plan, PlanError> {
    let registry = registry();
    let graph = Graph::launch(line, &registry, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    Plan::new(&graph, &registry, &options(memory_bytes))
}

pub(crate) fn plan(line: &str) -> Plan {
    plan_with(line, 1 << 30).unwrap_or_else(|error| panic!("{error}"))
}
