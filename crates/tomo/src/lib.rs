//! Tomography nodes. Each computes through [`beamstream_ops::Backend`], so it runs wherever that does.

mod axis;
mod batches;
mod flat_field;
mod phantom_source;
mod recon;
mod references;
mod rescale;
mod weights;

pub use axis::AxisSetting;
pub use flat_field::{FlatField, FlatFieldConfig};
pub use phantom_source::{PhantomSource, PhantomSourceConfig};
pub use recon::{Keep, PreviewConfig, Recon, ReconConfig};
pub use rescale::{Rescale, RescaleConfig};

use beamstream_node::{NodeError, NodeErrorKind, Registry};
use beamstream_ops::OpError;

/// Lists the kinds of this crate.
pub fn register(registry: &mut Registry) {
    registry.node::<FlatFieldConfig>();
    registry.node::<ReconConfig>();
    registry.node::<RescaleConfig>();
    registry.source::<PhantomSourceConfig>();
}

/// A device may fail; an operation that refuses what the node had checked is the program's fault.
fn op_failed(error: OpError) -> NodeError {
    match error {
        OpError::Device { .. } => NodeError::because(NodeErrorKind::Io, "a computation failed", error),
        _ => NodeError::because(NodeErrorKind::Internal, "a computation refused its input", error),
    }
}
