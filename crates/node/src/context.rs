//! What a node may use while it is built.

use std::sync::Arc;

use beamstream_core::Shape;
use beamstream_ops::Backend;

use crate::{Board, Journal};

/// Reads reference images from files, so that nodes need not know file formats.
pub trait ImageReader: Send + Sync {
    /// The mean of all frames of a file, f32 `(row, column)`, and its shape. `path` may name a dataset behind a colon.
    ///
    /// # Errors
    /// A text that names the file and what is wrong with it.
    fn mean_image(&self, path: &str) -> Result<(Shape, Vec<f32>), String>;
}

/// What a node may use: its name, the computations of its device, the journal, the board.
#[derive(Clone)]
pub struct BuildContext {
    /// The node's id in the pipeline.
    pub node: String,
    /// The computations of the device on which the node is placed.
    pub ops: Arc<dyn Backend>,
    /// Reads reference images from files.
    pub images: Arc<dyn ImageReader>,
    /// Where what happened is written down.
    pub journal: Journal,
    /// Where images for people are pinned.
    pub board: Board,
    /// Start of the run, for paths with `{date}`: `YYYYMMDD-HHMMSS`.
    pub date: String,
    /// Whether sinks may replace files that exist.
    pub overwrite: bool,
}
