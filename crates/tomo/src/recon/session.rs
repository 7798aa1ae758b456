//! The reconstruction of one series.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use beamstream_buffer::Block;
use beamstream_core::{BlockMeta, FrameId, Role, SeriesHeader};
use beamstream_node::{NodeError, NodeErrorKind, Outlet};
use beamstream_ops::{Backend, ProjectionBlock, Reconstruction, RotationAxis};

use super::preview::PreviewClock;
use super::{ReconConfig, Setup, WINDOW_BATCHES};
use crate::axis::{OppositeSearch, Pair};
use crate::batches::Batches;
use crate::op_failed;
use crate::weights::Weights;

/// Confidence under which a rotation axis should not be relied on.
const UNSURE: f64 = 0.5;

/// One series on its way to a volume.
pub(super) struct Session {
    header: SeriesHeader,
    setup: Setup,
    ops: Arc<dyn Backend>,
    /// Set up with the first projection that can be added: an axis must be known by then.
    sums: Option<Box<dyn Reconstruction>>,
    batches: Batches,
    weights: Weights,
    /// Projections that are kept until the end, by number.
    store: BTreeMap<u64, Block>,
    /// Where the axis is not known yet: the search for it, and the order in which projections came.
    search: Option<Search>,
    preview_rows: Vec<usize>,
    preview: PreviewClock,
    without_angle: u64,
}

#[derive(Default)]
struct Search {
    opposite: OppositeSearch,
    arrived: Vec<u64>,
}

impl Session {
    pub(super) fn new(
        header: SeriesHeader,
        setup: Setup,
        config: &ReconConfig,
        ops: Arc<dyn Backend>,
    ) -> Self {
        Self {
            batches: Batches::new(setup.spec.batch, WINDOW_BATCHES * setup.spec.batch),
            weights: Weights::new(&header),
            search: setup.axis_unknown.then(Search::default),
            preview_rows: config.preview.rows(setup.spec.rows),
            preview: PreviewClock::new(&config.preview),
            store: BTreeMap::new(),
            sums: None,
            without_angle: 0,
            header,
            setup,
            ops,
        }
    }

    /// Takes a projection.
    pub(super) fn add(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let number = block.meta.projection;
        let Some(angle_rad) = self.weights.angle_rad(number, block.meta.angle_rad) else {
            self.without_angle += 1;
            return Ok(());
        };
        if self.store.len() < self.setup.stored {
            self.store.insert(number, block.clone());
        }
        let Some(search) = &mut self.search else {
            return self.add_to_batches(block, out);
        };
        if !self.store.contains_key(&number) {
            return Err(NodeError::series(format!(
                "the rotation axis is not known after {} projections, more than store_bytes allows to keep: \
                 give rotation_axis a number",
                self.store.len()
            )));
        }
        search.arrived.push(number);
        match search.opposite.add(angle_rad) {
            Some(pair) => self.settle_axis(pair, out),
            None => Ok(()),
        }
    }

    /// The series is over: adds what is left, corrects the weights, hands the slices on.
    pub(super) fn finish(mut self, out: &mut Outlet) -> Result<(), NodeError> {
        if self.without_angle > 0 {
            out.journal().warn(format!(
                "series {}: {} projections have no angle and were left out: give the source angles",
                self.header.id, self.without_angle
            ));
        }
        if let Some(search) = &self.search
            && !search.arrived.is_empty()
        {
            let pair = search.opposite.last_resort().ok_or_else(|| {
                NodeError::series(format!(
                    "series {}: no two projections are half a turn apart, so the rotation axis cannot be found: \
                     give rotation_axis a number",
                    self.header.id
                ))
            })?;
            self.settle_axis(pair, out)?;
        }
        for batch in self.batches.finish() {
            self.accumulate(&batch, out)?;
        }
        let all_kept = self.store.len() as u64 == self.weights.count();
        if self.batches.stragglers() > 0 && all_kept {
            self.add_all_again(out)?;
        } else if self.batches.stragglers() > 0 {
            out.journal().warn(format!(
                "series {}: {} projections came so late that they were added out of order; \
                 the last bits of the volume depend on it",
                self.header.id,
                self.batches.stragglers()
            ));
        }
        if self.sums.is_none() {
            return Ok(());
        }
        let scale = self.correct_weights(out)?;
        self.note(out);
        self.hand_on(scale, out)
    }

    /// Finds the axis from a pair of projections and adds all that have waited for it.
    fn settle_axis(&mut self, pair: Pair, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(search) = self.search.take() else { return Ok(()) };
        let stored = |at: usize| search.arrived.get(at).and_then(|number| self.store.get(number));
        let (Some(at_0), Some(at_180)) = (stored(pair.at_0), stored(pair.at_180)) else {
            return Err(NodeError::new(NodeErrorKind::Internal, "a projection of the pair was not kept"));
        };
        let found = self.ops.rotation_axis(at_0, at_180).map_err(op_failed)?;
        let detector_px = self.header.window.column_to_detector(found.rotation_axis_px);
        if found.confidence < UNSURE {
            out.journal().warn(format!(
                "series {}: the rotation axis {detector_px:.2} was found with a confidence of {:.2} only: \
                 check it, or give rotation_axis a number",
                self.header.id, found.confidence
            ));
        }
        let columns = self.setup.spec.columns as f64;
        let axis_px = found.rotation_axis_px.clamp(0.0, columns - 1.0);
        self.setup.spec.rotation_axis = RotationAxis::Same(axis_px);
        let waiting: Vec<Block> = self.store.values().cloned().collect();
        for block in waiting {
            self.add_to_batches(block, out)?;
        }
        Ok(())
    }

    fn add_to_batches(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        for batch in self.batches.add(block) {
            self.accumulate(&batch, out)?;
        }
        Ok(())
    }

    fn accumulate(&mut self, batch: &[Block], out: &mut Outlet) -> Result<(), NodeError> {
        let first_row = self.setup.first_row;
        let mut projections = Vec::with_capacity(batch.len());
        for block in batch {
            let number = block.meta.projection;
            let Some(angle_rad) = self.weights.angle_rad(number, block.meta.angle_rad) else { continue };
            let weight = self.weights.take(number, angle_rad);
            projections.push(ProjectionBlock { block, first_row, angle_rad, weight });
        }
        if self.sums.is_none() {
            self.note_axis(out);
        }
        self.sums()?.accumulate(&projections).map_err(op_failed)?;
        if out.wants_previews() && self.preview.is_due(batch.len() as u64) {
            self.show(out, self.weights.scale_so_far())?;
        }
        Ok(())
    }

    /// Projections came in such disorder that batches were torn: forms the sum anew, in order.
    fn add_all_again(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        self.sums()?.reset();
        let size = self.setup.spec.batch as u64;
        let mut batches: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
        for (number, block) in &self.store {
            batches.entry(number / size).or_default().push(block.clone());
        }
        for batch in batches.into_values() {
            self.accumulate(&batch, out)?;
        }
        Ok(())
    }

    fn sums(&mut self) -> Result<&mut Box<dyn Reconstruction>, NodeError> {
        if self.sums.is_none() {
            self.sums = Some(self.ops.reconstruction(&self.setup.spec).map_err(op_failed)?);
        }
        self.sums.as_mut().ok_or_else(|| NodeError::new(NodeErrorKind::Internal, "the sums were not set up"))
    }

    /// Adds those projections again whose weight was off; gives the scale of the sum.
    fn correct_weights(&mut self, out: &mut Outlet) -> Result<f64, NodeError> {
        let correction = self.weights.correction(|number| self.store.contains_key(&number));
        let first_row = self.setup.first_row;
        let mut again = Vec::with_capacity(correction.again.len());
        for (number, weight) in &correction.again {
            let Some(block) = self.store.get(number) else { continue };
            let Some(angle_rad) = self.weights.angle_rad(*number, block.meta.angle_rad) else { continue };
            again.push(ProjectionBlock { block, first_row, angle_rad, weight: *weight });
        }
        if let Some(sums) = &mut self.sums
            && !again.is_empty()
        {
            sums.accumulate(&again).map_err(op_failed)?;
        }
        if out.wants_previews() {
            self.show(out, correction.scale)?;
        }
        Ok(correction.scale)
    }

    /// Sends the chosen slices to those who want to look.
    fn show(&mut self, out: &mut Outlet, scale: f64) -> Result<(), NodeError> {
        let started = Instant::now();
        let format = self.setup.output.format;
        for row in self.preview_rows.clone() {
            let mut lease = out.lease(format)?;
            self.sums()?.slice(row, scale, &mut lease).map_err(op_failed)?;
            let meta = self.slice_meta(row);
            out.preview(lease.freeze(meta))?;
        }
        self.preview.looked(started.elapsed());
        Ok(())
    }

    fn hand_on(mut self, scale: f64, out: &mut Outlet) -> Result<(), NodeError> {
        // The projections go back before the slices take memory.
        self.store.clear();
        let format = self.setup.output.format;
        for (group, rows) in self.sums()?.row_groups().into_iter().enumerate() {
            let mut leases = Vec::with_capacity(rows.len());
            for _ in rows.clone() {
                leases.push(out.lease(format)?);
            }
            self.sums()?.slices(group, scale, &mut leases).map_err(op_failed)?;
            for (row, lease) in rows.zip(leases) {
                let meta = self.slice_meta(row);
                out.push(lease.freeze(meta))?;
            }
        }
        out.journal().series(self.header.id, |record| record.volume_done = Some(Instant::now()));
        Ok(())
    }

    fn slice_meta(&self, row: usize) -> BlockMeta {
        let z = self.setup.output.pass.first_row + row;
        BlockMeta::new(FrameId::new(z as u64), Role::Projection)
    }

    /// Tells the axis, that of the middle row where it is tilted.
    fn note_axis(&self, out: &Outlet) {
        let axis = self.setup.spec.rotation_axis.of_row(self.setup.spec.rows / 2);
        let window = self.header.window;
        out.journal().series(self.header.id, |record| {
            record.rotation_axis_px = axis.map(|axis| window.column_to_detector(axis));
        });
    }

    fn note(&self, out: &Outlet) {
        out.journal().series(self.header.id, |record| {
            record.projections = Some(self.weights.count());
            record.angle_range_rad = self.weights.range_rad();
        });
    }
}
