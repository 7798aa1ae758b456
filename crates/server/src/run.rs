//! What the server needs of a run.

use std::collections::BTreeMap;

use beamstream_engine::{SetFailure, Status};
use beamstream_node::View;
use serde_json::Value;

/// A run that can be looked at and steered while it goes on.
///
/// Whoever owns the run decides how its handle is shared: all that is asked here needs it for reading only.
pub trait LiveRun: Send + Sync + 'static {
    /// A look at the run; asked for a few times a second, whether anybody watches or not.
    fn status(&self) -> Status;

    /// What the `view` nodes show now, by node. The pixels are shared with the pipeline: let go of them soon.
    fn views(&self) -> BTreeMap<String, View>;

    /// Changes a parameter of a node and gives the epoch that begins with it. May block for seconds.
    ///
    /// # Errors
    /// [`SetFailure`] if the node refuses it or does not answer in time.
    fn set(&self, node: &str, key: &str, value: Value) -> Result<u32, SetFailure>;
}
