//! Going on with what a run that was killed has left.

use super::{Plan, PlannedRunner};
use crate::run::Policy;

impl Plan {
    /// Hands what nodes right behind a source hold of an earlier run to that source.
    ///
    /// What cannot be read is told; the node that holds it says more when its series begins.
    pub(crate) fn hand_over_earlier(&mut self) {
        for edge in self.edges.iter().filter(|edge| edge.policy != Policy::Latest) {
            if !matches!(self.nodes[edge.from].built, PlannedRunner::Source { .. }) {
                continue;
            }
            let PlannedRunner::Node(node) = &mut self.nodes[edge.to].built else { continue };
            match node.earlier() {
                Ok(None) => {}
                Ok(Some(earlier)) => {
                    if let PlannedRunner::Source { source, .. } = &mut self.nodes[edge.from].built {
                        source.go_on(earlier);
                    }
                }
                Err(error) => self.nodes[edge.to].cx.journal.warn(error.full_text()),
            }
        }
    }
}
