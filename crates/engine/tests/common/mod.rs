//! Small kinds of nodes to try the engine with.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use beamstream_core::{FrameCounts, Ledger};
use beamstream_engine::{Plan, PlanError, PlanOptions};
use beamstream_graph::Graph;
use beamstream_node::ImageReader;
use beamstream_node::prelude::*;
use beamstream_testkit::SimDevice;
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
    /// Stay after the last series until the run is drained.
    #[serde(default)]
    pub stay: bool,
    /// Pixels are f32 rather than u32.
    #[serde(default)]
    pub float: bool,
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
        let element = if self.0.float { ElementType::F32 } else { ElementType::U32 };
        let mut header = SeriesHeader::frames(id, Format::frame(element, size, size));
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
                if self.0.float {
                    lease.elements_mut::<f32>()?.fill(number as f32);
                } else {
                    lease.elements_mut::<u32>()?.fill(number as u32);
                }
                ledger.receive(FrameId::new(number));
                out.push(lease.freeze(BlockMeta::new(FrameId::new(number), Role::Projection)))?;
                number += 1;
            }
            let counts: FrameCounts = ledger.counts();
            out.journal().series(header.id, |record| record.counts = counts.clone());
            out.end(SeriesSummary { counts, aborted: number < self.0.frames })?;
        }
        while self.0.stay && !out.is_draining() {
            out.sleep_until(Instant::now() + Duration::from_millis(1))?;
        }
        Ok(())
    }
}

/// Everything that a `probe` sink saw, by node.
pub(crate) static SEEN: Mutex<Vec<(String, Saw)>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Saw {
    Begin(u64),
    /// A series that was begun with a later epoch.
    BeginAgain {
        number: u64,
        epoch: u32,
    },
    Block {
        number: u64,
        pixel: u32,
        epoch: u32,
    },
    End {
        aborted: bool,
    },
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
/// Labels of the sinks that may go on.
static OPEN: (Mutex<Vec<String>>, Condvar) = (Mutex::new(Vec::new()), Condvar::new());

/// Lets a gated sink go on.
pub(crate) fn open_gate(label: &str) {
    OPEN.0.lock().unwrap().push(label.to_owned());
    OPEN.1.notify_all();
}

/// The value of all pixels.
fn uniform<T: Copy + PartialEq + std::fmt::Debug>(pixels: &[T]) -> T {
    assert!(pixels.iter().all(|pixel| *pixel == pixels[0]), "a block of mixed pixels: {pixels:?}");
    pixels[0]
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
        let number = header.id.number;
        self.note(match header.epoch {
            0 => Saw::Begin(number),
            epoch => Saw::BeginAgain { number, epoch },
        });
        Ok(())
    }
    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        let number = block.meta.frame.number;
        if self.0.gated {
            let shut = |open: &mut Vec<String>| !open.contains(&self.0.label);
            drop(OPEN.1.wait_while(OPEN.0.lock().unwrap(), shut).unwrap());
        }
        if self.0.fail_at == Some(number) {
            return Err(NodeError::io("no space left on the disk"));
        }
        let first = self.0.panic_at == Some(number) && PANICS.fetch_add(1, Ordering::Relaxed) == 0;
        assert!(!first, "a programming error");
        let pixel = match block.format().element {
            ElementType::F32 => uniform(block.elements::<f32>()?) as u32,
            _ => uniform(block.elements::<u32>()?),
        };
        self.note(Saw::Block { number, pixel, epoch: block.meta.epoch });
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

/// Adds a number to every pixel, keeps the series, and hands it on again when the number is changed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgainConfig {
    /// What is added.
    pub add: u32,
    /// Fail when the series is handed on again.
    #[serde(default)]
    pub fails: bool,
}

pub(crate) struct Again {
    config: AgainConfig,
    header: Option<SeriesHeader>,
    /// Number and pixel of each block.
    kept: Vec<(BlockMeta, u32)>,
}

impl NodeConfig for AgainConfig {
    const KIND: &'static str = "again";
    const CLASS: KindClass = KindClass::Step;
    type Node = Again;
    fn build(self, _cx: &BuildContext) -> Result<Again, BuildError> {
        Ok(Again { config: self, header: None, kept: Vec::new() })
    }
}

impl Again {
    fn send(&self, meta: BlockMeta, pixel: u32, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(header) = &self.header else { return Ok(()) };
        let mut lease = out.lease(header.format)?;
        lease.elements_mut::<u32>()?.fill(pixel + self.config.add);
        out.push(lease.freeze(meta))
    }
}

impl Node for Again {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }
    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        self.header = Some(header.clone());
        self.kept.clear();
        Ok(())
    }
    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let pixel = block.elements::<u32>()?[0];
        self.kept.push((block.meta, pixel));
        self.send(block.meta, pixel, out)
    }
    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
    fn set(&mut self, key: &str, value: &Value) -> Result<TakesEffect, SetError> {
        match (key, value.as_u64()) {
            ("add", Some(add)) => {
                self.config.add = add as u32;
                Ok(TakesEffect::Now)
            }
            _ => Err(SetError::Fixed(key.to_owned())),
        }
    }
    fn changed(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(header) = self.header.clone() else { return Ok(()) };
        if out.header().is_some() {
            return Ok(());
        }
        out.begin(header, 1)?;
        for (meta, pixel) in self.kept.clone() {
            if self.config.fails {
                return Err(NodeError::series("it cannot be made again"));
            }
            self.send(meta, pixel, out)?;
        }
        out.end(SeriesSummary::default())
    }
}

/// Copies blocks on whatever device it is placed; can gather a whole series first, as a reconstruction does.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputeConfig {
    /// Hand everything on at the end of the series.
    #[serde(default)]
    pub gather: bool,
    /// Take so many blocks in one go.
    #[serde(default)]
    pub takes: usize,
    /// Send each block as a preview, too.
    #[serde(default)]
    pub previews: bool,
}

pub(crate) struct Compute {
    config: ComputeConfig,
    ops: Arc<dyn beamstream_ops::Backend>,
    gathered: Vec<Block>,
}

impl NodeConfig for ComputeConfig {
    const KIND: &'static str = "compute";
    const CLASS: KindClass = KindClass::Step;
    const COMPUTES: bool = true;
    type Node = Compute;
    fn build(self, cx: &BuildContext) -> Result<Compute, BuildError> {
        Ok(Compute { config: self, ops: cx.ops.clone(), gathered: Vec::new() })
    }
}

impl Compute {
    fn copy(&self, block: &Block, out: &Outlet) -> Result<Block, NodeError> {
        let mut lease = out.lease(block.format())?;
        self.ops
            .rescale(block, [0.0, 1.0], &mut lease)
            .map_err(|error| NodeError::because(NodeErrorKind::Internal, "not computed", error))?;
        Ok(lease.freeze(block.meta))
    }
}

impl Node for Compute {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        let frames = if self.config.gather { header.expected_frames.unwrap_or(1) as usize } else { 0 };
        Ok(Negotiated {
            keeps_blocks: frames + self.config.takes,
            takes_blocks: self.config.takes.max(1),
            likes_blocks: frames,
            writes_blocks: 1 + usize::from(self.config.previews),
            ..Negotiated::unchanged(header)
        })
    }
    fn begin(&mut self, _header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        if self.config.previews && out.wants_previews() {
            let look = self.copy(&block, out)?;
            out.preview(look)?;
        }
        if self.config.gather {
            self.gathered.push(block);
            return Ok(());
        }
        let copy = self.copy(&block, out)?;
        out.push(copy)
    }
    fn process_all(&mut self, blocks: &mut Vec<Block>, out: &mut Outlet) -> Result<(), NodeError> {
        assert!((1..=self.config.takes).contains(&blocks.len()));
        if blocks.len() == self.config.takes {
            out.journal().warn("as many as it takes");
        }
        blocks.drain(..).try_for_each(|block| self.process(block, out))
    }
    fn end(&mut self, _summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError> {
        for block in std::mem::take(&mut self.gathered) {
            let copy = self.copy(&block, out)?;
            out.push(copy)?;
        }
        Ok(())
    }
}

/// Hands blocks on as they are.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PassConfig {}

pub(crate) struct Pass;

impl NodeConfig for PassConfig {
    const KIND: &'static str = "pass";
    const CLASS: KindClass = KindClass::Step;
    type Node = Pass;
    fn build(self, _cx: &BuildContext) -> Result<Pass, BuildError> {
        Ok(Pass)
    }
}

impl Node for Pass {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }
    fn begin(&mut self, _header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        out.push(block)
    }
    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
    fn forwards(&self) -> bool {
        true
    }
}

/// A viewer: takes looks at unfinished work.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookSinkConfig {
    /// Name under which it writes down.
    pub label: String,
}

impl NodeConfig for LookSinkConfig {
    const KIND: &'static str = "look_sink";
    const CLASS: KindClass = KindClass::Sink;
    const PREVIEWS: bool = true;
    type Node = ProbeSink;
    fn build(self, _cx: &BuildContext) -> Result<ProbeSink, BuildError> {
        let label = self.label;
        Ok(ProbeSink(ProbeSinkConfig { label, fail_at: None, panic_at: None, refuse: None, gated: false }))
    }
}

pub(crate) fn registry() -> Arc<Registry> {
    let mut registry = Registry::default();
    registry.source::<CountSourceConfig>();
    registry.node::<ProbeSinkConfig>();
    registry.node::<AddConfig>();
    registry.node::<AgainConfig>();
    registry.node::<ComputeConfig>();
    registry.node::<LookSinkConfig>();
    registry.node::<PassConfig>();
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

/// Plans a launch line with a device.
pub(crate) fn plan_on(line: &str, device: &Arc<SimDevice>, options: PlanOptions) -> Result<Plan, PlanError> {
    let registry = registry();
    let graph = Graph::launch(line, &registry, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
    Plan::new(&graph, &registry, &PlanOptions { devices: vec![device.clone()], ..options })
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
