//! What is noted of a series while its blocks pass: how many bytes, and when the last of them was there.

use std::sync::Arc;
use std::time::Instant;

use beamstream_buffer::{Block, DeviceId, Fence};
use beamstream_core::{Content, SeriesHeader, SeriesId};
use beamstream_node::{Event, Journal, KindClass};

use crate::plan::{PlannedNode, TRANSFER};

/// Which account of a series the blocks of a node are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    In,
    Copied,
    Out,
    None,
}

/// Keeps account of the series that passes one node. Costs a count per block.
pub(crate) struct SeriesAccount {
    side: Side,
    /// Whether a device writes the blocks.
    on_device: bool,
    /// Whether they are written into host memory.
    to_host: bool,
    journal: Journal,
    header: Option<Arc<SeriesHeader>>,
    bytes: u64,
    /// When the block that passed last is written.
    written: Option<Arc<dyn Fence>>,
    /// The series whose last slice was noted: should it be made again, its times stay those of the first.
    noted: Option<SeriesId>,
}

impl SeriesAccount {
    pub(crate) fn new(node: &PlannedNode) -> Self {
        let side = match node.class {
            KindClass::Source => Side::In,
            KindClass::Step if node.kind == TRANSFER => Side::Copied,
            // What is only looked at does not count as a result.
            KindClass::Sink if !node.previews => Side::Out,
            KindClass::Step | KindClass::Sink => Side::None,
        };
        Self {
            side,
            on_device: node.device != DeviceId::Cpu,
            to_host: node.pool.kind().is_host(),
            journal: node.cx.journal.clone(),
            header: None,
            bytes: 0,
            written: None,
            noted: None,
        }
    }

    /// Takes note of an event that passes.
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::Begin(header) => self.header = Some(header.clone()),
            Event::Block(block) => self.block(block),
            Event::End(_) => {}
        }
    }

    fn block(&mut self, block: &Block) {
        self.bytes += block.format().bytes() as u64;
        if self.on_device {
            self.written = block.written().cloned();
        }
    }

    /// The series, or a pass, is over and its end was handed on: writes down what was counted.
    ///
    /// Behind the last slice of a volume it waits until the device has made it: the only wait for a device in a series,
    /// when nothing more is to be enqueued for it.
    pub(crate) fn close(&mut self) {
        let Some(header) = self.header.take() else { return };
        let (side, bytes) = (self.side, std::mem::take(&mut self.bytes));
        let is_whole = header.content == Content::Volume && header.pass.is_last();
        let done = self.written.take().filter(|_| is_whole && self.noted != Some(header.id));
        if done.is_some() {
            self.noted = Some(header.id);
        }
        let done = done.map(|written| {
            written.wait();
            Instant::now()
        });
        let to_host = self.to_host;
        self.journal.series(header.id, |record| {
            match side {
                Side::In => record.bytes_in += bytes,
                Side::Copied => record.bytes_copied += bytes,
                Side::Out => record.bytes_out += bytes,
                Side::None => {}
            }
            if let Some(done) = done {
                let noted = if to_host { &mut record.volume_done } else { &mut record.volume_on_device };
                *noted = Some(done);
            }
        });
    }
}
