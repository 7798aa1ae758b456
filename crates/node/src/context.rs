//! What a node may use while it is built.

use std::sync::Arc;

use beamstream_ops::Backend;

use crate::{Board, Journal};

/// What a node may use: its name, the computations of its device, the journal, the board.
#[derive(Clone)]
pub struct BuildContext {
    /// The node's id in the pipeline.
    pub node: String,
    /// The computations of the device on which the node is placed.
    pub ops: Arc<dyn Backend>,
    /// Where what happened is written down.
    pub journal: Journal,
    /// Where images for people are pinned.
    pub board: Board,
    /// Start of the run, for paths with `{date}`: `YYYYMMDD-HHMMSS`.
    pub date: String,
    /// Whether sinks may replace files that exist.
    pub overwrite: bool,
}
