//! The board on which `view` nodes pin what people should see; a front end reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use beamstream_buffer::Block;
use beamstream_core::SeriesHeader;

/// One image that is shown.
#[derive(Debug, Clone)]
pub struct ViewImage {
    /// The pixels, shared with the pipeline.
    pub block: Block,
    /// Rises with every image of this place.
    pub version: u64,
}

/// What one `view` node shows.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The series on show.
    pub header: Option<Arc<SeriesHeader>>,
    /// The newest image of each place: slices by their row, or the newest frame at 0.
    pub images: BTreeMap<u64, ViewImage>,
    /// Rises with every change.
    pub version: u64,
}

/// The views of a run, by node. Cheap to clone; looking never slows the pipeline.
#[derive(Clone, Default)]
pub struct Board {
    views: Arc<Mutex<BTreeMap<String, View>>>,
}

impl Board {
    /// Announces a view, so that it is known before its first image.
    pub fn open(&self, node: &str) {
        self.lock().entry(node.to_owned()).or_default();
    }

    /// Shows a new series: the images of the earlier one go.
    pub fn begin(&self, node: &str, header: Arc<SeriesHeader>) {
        let mut views = self.lock();
        let view = views.entry(node.to_owned()).or_default();
        view.header = Some(header);
        view.images.clear();
        view.version += 1;
    }

    /// Shows an image at a place; the one that hung there goes.
    pub fn pin(&self, node: &str, place: u64, block: Block) {
        let mut views = self.lock();
        let view = views.entry(node.to_owned()).or_default();
        view.version += 1;
        let version = view.version;
        view.images.insert(place, ViewImage { block, version });
    }

    /// Takes down what a node shows, so that its buffers are free.
    pub fn clear(&self, node: &str) {
        if let Some(view) = self.lock().get_mut(node) {
            view.images.clear();
        }
    }

    /// What all nodes show now; the pixels are shared, not copied.
    pub fn snapshot(&self) -> BTreeMap<String, View> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, View>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}
