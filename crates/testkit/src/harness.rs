//! One node without the engine: settings in, events in, blocks out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use beamstream_buffer::{Block, Pool};
use beamstream_core::{
    BlockMeta, Element, ElementType, Format, FrameCounts, FrameId, Role, SeriesHeader, SeriesId,
    SeriesSummary, Shape,
};
use beamstream_cpu::CpuBackend;
use beamstream_node::{
    Board, BuildContext, Built, Emit, Event, ImageReader, Journal, Negotiated, Node, NodeConfig, NodeError,
    Outlet, Registry, Stop, StopController, TakesEffect,
};
use bytemuck::Pod;
use serde_json::Value;

/// Buffers for input and output; more than any test holds at once.
const BUFFERS: usize = 512;
/// Largest block that a test feeds or gets, in bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Runs one node, step by step, in the calling thread.
pub struct Harness<C: NodeConfig> {
    node: C::Node,
    outlet: Outlet,
    sent: Arc<Mutex<Sent>>,
    input: Pool,
    board: Board,
    journal: Journal,
    header: SeriesHeader,
    _controller: StopController,
}

#[derive(Default)]
struct Sent {
    headers: Vec<Arc<SeriesHeader>>,
    blocks: Vec<Block>,
    previews: Vec<Block>,
    summaries: Vec<Arc<SeriesSummary>>,
}

impl<C: NodeConfig> Harness<C> {
    /// Builds a node named `node`.
    ///
    /// # Panics
    /// If the settings are refused.
    pub fn new(settings: Value) -> Self {
        match Self::build(settings) {
            Ok(harness) => harness,
            Err(refusal) => panic!("the settings were refused: {refusal}"),
        }
    }

    /// The text with which settings are refused.
    ///
    /// # Panics
    /// If they are accepted.
    pub fn refusal(settings: Value) -> String {
        match Self::build(settings) {
            Ok(_) => panic!("the settings were accepted"),
            Err(refusal) => refusal,
        }
    }

    fn build(settings: Value) -> Result<Self, String> {
        let journal = Journal::new("node");
        let board = Board::default();
        let cx = build_context(&journal, &board);
        let config: C = serde_json::from_value(settings).map_err(|error| error.to_string())?;
        let node = config.build(&cx).map_err(|error| error.to_string())?;
        let (controller, stop) = StopController::new();
        let sent = Arc::new(Mutex::new(Sent::default()));
        let outlet = outlet(&sent, stop, &journal).map_err(|error| error.to_string())?;
        let input = Pool::host("input", BUFFERS, BUFFER_BYTES).map_err(|error| error.to_string())?;
        let header =
            SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::F32, 2, 2));
        Ok(Self { node, outlet, sent, input, board, journal, header, _controller: controller })
    }

    /// Sets the header of the series that follow.
    #[must_use]
    pub fn with_header(mut self, header: SeriesHeader) -> Self {
        self.header = header;
        self
    }

    /// What the node would make of the series.
    ///
    /// # Errors
    /// As the node says.
    pub fn negotiate(&self) -> Result<Negotiated, NodeError> {
        self.node.negotiate(&self.header)
    }

    /// Begins a series.
    ///
    /// # Errors
    /// As the node says.
    pub fn begin(&mut self) -> Result<(), NodeError> {
        let agreed = self.node.negotiate(&self.header)?;
        self.node.release();
        self.outlet.begin(agreed.output, agreed.writes_blocks)?;
        self.node.begin(&self.header, &mut self.outlet)
    }

    /// Feeds one block of the series' format.
    ///
    /// # Errors
    /// As the node says.
    pub fn feed<T: Element + Pod>(&mut self, meta: BlockMeta, pixels: &[T]) -> Result<(), NodeError> {
        let mut lease = self.input.lease(self.header.format)?;
        lease.elements_mut::<T>()?.copy_from_slice(pixels);
        self.node.process(lease.freeze(meta), &mut self.outlet)
    }

    /// Feeds several blocks of the series' format at once, as to a node that takes what waits.
    ///
    /// # Errors
    /// As the node says.
    pub fn feed_all<T: Element + Pod>(&mut self, frames: &[(BlockMeta, Vec<T>)]) -> Result<(), NodeError> {
        let mut blocks = Vec::with_capacity(frames.len());
        for (meta, pixels) in frames {
            let mut lease = self.input.lease(self.header.format)?;
            lease.elements_mut::<T>()?.copy_from_slice(pixels);
            blocks.push(lease.freeze(*meta));
        }
        self.node.process_all(&mut blocks, &mut self.outlet)
    }

    /// Ends the series, complete.
    ///
    /// # Errors
    /// As the node says.
    pub fn end(&mut self) -> Result<(), NodeError> {
        let summary = SeriesSummary { counts: FrameCounts::default(), aborted: false };
        self.node.end(&summary, &mut self.outlet)?;
        self.outlet.end(summary)
    }

    /// Changes a parameter as the engine would, and lets the node make again what it can.
    ///
    /// # Errors
    /// The text of a refusal or failure.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<TakesEffect, String> {
        let effect = self.node.set(key, value).map_err(|error| error.to_string())?;
        if effect == TakesEffect::Now {
            self.node.changed(&mut self.outlet).map_err(|error| error.full_text())?;
        }
        Ok(effect)
    }

    /// A whole series of uniform f32 projections, one for each value.
    ///
    /// # Panics
    /// If the node fails.
    pub fn series(&mut self, values: &[f32]) {
        let pixels = self.header.format.shape.len();
        let fed = self.begin().and_then(|()| {
            for (number, value) in values.iter().enumerate() {
                let meta = BlockMeta::new(FrameId::new(number as u64), Role::Projection);
                self.feed(meta, &vec![*value; pixels])?;
            }
            self.end()
        });
        if let Err(error) = fed {
            panic!("the node failed: {}", error.full_text());
        }
    }

    /// The blocks that came out so far.
    pub fn blocks(&self) -> Vec<Block> {
        self.sent().blocks.clone()
    }

    /// The looks at unfinished work that came out so far.
    pub fn previews(&self) -> Vec<Block> {
        self.sent().previews.clone()
    }

    /// The headers that came out so far.
    pub fn headers(&self) -> Vec<Arc<SeriesHeader>> {
        self.sent().headers.clone()
    }

    /// The first pixel of each f32 block that came out.
    ///
    /// # Panics
    /// If a block is not f32.
    pub fn first_pixels(&self) -> Vec<f32> {
        let first = |block: &Block| match block.elements::<f32>() {
            Ok(pixels) => pixels.first().copied().unwrap_or(f32::NAN),
            Err(error) => panic!("{error}"),
        };
        self.sent().blocks.iter().map(first).collect()
    }

    /// Buffers of the input that the node has not given back.
    pub fn input_buffers_out(&self) -> usize {
        let stats = self.input.stats();
        stats.slots - stats.free
    }

    /// What the node warned of.
    pub fn warnings(&self) -> Vec<String> {
        self.journal.warnings().into_iter().map(|warning| warning.message).collect()
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The board.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// The node itself.
    pub fn node(&mut self) -> &mut C::Node {
        &mut self.node
    }

    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A context as the engine would give: two threads on the CPU, no files to read images from.
pub fn build_context(journal: &Journal, board: &Board) -> BuildContext {
    BuildContext {
        node: "node".to_owned(),
        ops: Arc::new(CpuBackend::new(2)),
        images: Arc::new(NoImages),
        journal: journal.clone(),
        board: board.clone(),
        date: "20260101-000000".to_owned(),
        overwrite: false,
    }
}

/// Builds the node of a kind that is registered in `registry`.
///
/// # Panics
/// If the kind is unknown or the settings are refused.
pub fn build_kind(registry: &Registry, kind: &str, settings: &Value) -> Built {
    let journal = Journal::new("node");
    let built =
        registry.get(kind).map(|info| info.build(settings, &build_context(&journal, &Board::default())));
    match built {
        Some(Ok(built)) => built,
        Some(Err(error)) => panic!("{kind}: {error}"),
        None => panic!("no kind is named {kind}"),
    }
}

fn outlet(
    sent: &Arc<Mutex<Sent>>,
    stop: Stop,
    journal: &Journal,
) -> Result<Outlet, beamstream_buffer::PoolError> {
    let pool = Pool::host("output", BUFFERS, BUFFER_BYTES)?;
    Ok(Outlet::new(Box::new(Collect { sent: sent.clone(), pool }), stop, journal.clone()))
}

/// Collects what a node sends.
struct Collect {
    sent: Arc<Mutex<Sent>>,
    pool: Pool,
}

impl Emit for Collect {
    fn emit(&mut self, event: Event) -> Result<(), NodeError> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Begin(header) => sent.headers.push(header),
            Event::Block(block) => sent.blocks.push(block),
            Event::End(summary) => sent.summaries.push(summary),
        }
        Ok(())
    }

    fn preview(&mut self, block: Block) -> Result<(), NodeError> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).previews.push(block);
        Ok(())
    }

    fn wants_previews(&self) -> bool {
        true
    }

    fn pool(
        &mut self,
        _header: &SeriesHeader,
        _own: usize,
        _likes: usize,
    ) -> Result<Option<Pool>, NodeError> {
        Ok(Some(self.pool.clone()))
    }
}

/// Reads no images: a test that needs some gives its own context.
struct NoImages;

impl ImageReader for NoImages {
    fn mean_image(&self, path: &str) -> Result<(Shape, Vec<f32>), String> {
        Err(format!("{path}: this test reads no files"))
    }
}
