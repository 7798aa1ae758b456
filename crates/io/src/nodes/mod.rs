//! The kinds of nodes that read and write files.

mod file_sink;
mod path;
mod scan_source;
mod sinks;

pub use file_sink::FileSink;
pub use scan_source::{ScanSource, ScanSourceConfig};
pub use sinks::{Hdf5SinkConfig, NpySinkConfig, RawSinkConfig, TiffSinkConfig, ZarrSinkConfig};

use beamstream_node::Registry;

/// Adds the kinds of this crate.
pub fn register(registry: &mut Registry) {
    registry.source::<ScanSourceConfig>();
    registry.node::<Hdf5SinkConfig>();
    registry.node::<NpySinkConfig>();
    registry.node::<RawSinkConfig>();
    registry.node::<TiffSinkConfig>();
    registry.node::<ZarrSinkConfig>();
}
