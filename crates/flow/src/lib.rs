//! Nodes about the stream itself, whatever flows in it.

mod null_sink;
mod record;
mod replay_source;
mod tap;
mod throttle;
mod view;

pub use null_sink::{NullSink, NullSinkConfig};
pub use record::{RecordConfig, Recorder};
pub use replay_source::{ReplaySource, ReplaySourceConfig};
pub use tap::{Tap, TapConfig};
pub use throttle::{Throttle, ThrottleConfig};
pub use view::{ViewConfig, ViewNode};

use beamstream_node::Registry;

/// Lists the kinds of this crate.
pub fn register(registry: &mut Registry) {
    registry.node::<NullSinkConfig>();
    registry.node::<RecordConfig>();
    registry.source::<ReplaySourceConfig>();
    registry.node::<TapConfig>();
    registry.node::<ThrottleConfig>();
    registry.node::<ViewConfig>();
}
