//! The sums of a series.

use std::sync::Arc;

use beamstream_node::NodeError;
use beamstream_ops::{Backend, ReconSpec, Reconstruction};

use crate::op_failed;

/// Sums that were set up, and what for.
pub(super) type Made = (ReconSpec, Box<dyn Reconstruction>);

/// Sums that are set up when they are needed first: by then the axis must be known.
pub(super) struct Sums {
    ops: Arc<dyn Backend>,
    made: Option<Box<dyn Reconstruction>>,
    /// Those of the pass over the rows before: to empty them is quicker than to set up new ones.
    spare: Option<Made>,
}

impl Sums {
    pub(super) fn new(ops: Arc<dyn Backend>, spare: Option<Made>) -> Self {
        Self { ops, made: None, spare }
    }

    /// Whether they were set up.
    pub(super) fn are_set_up(&self) -> bool {
        self.made.is_some()
    }

    /// The sums, set up if they are not yet.
    pub(super) fn of(&mut self, spec: &ReconSpec) -> Result<&mut Box<dyn Reconstruction>, NodeError> {
        match &mut self.made {
            Some(sums) => Ok(sums),
            none => {
                let sums = match self.spare.take() {
                    Some((made_for, mut sums)) if made_for == *spec => {
                        sums.reset();
                        sums
                    }
                    other => {
                        drop(other);
                        self.ops.reconstruction(spec).map_err(op_failed)?
                    }
                };
                Ok(none.insert(sums))
            }
        }
    }

    /// Frees them.
    pub(super) fn clear(&mut self) {
        self.made = None;
        self.spare = None;
    }

    /// The sums for the next pass, set up for `spec`.
    pub(super) fn into_spare(self, spec: ReconSpec) -> Option<Made> {
        self.made.map(|sums| (spec, sums))
    }
}
