//! The reconstruction of one series.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use beamstream_buffer::Block;
use beamstream_core::{BlockMeta, FrameId, Role, SeriesHeader};
use beamstream_node::{NodeError, NodeErrorKind, Outlet};
use beamstream_ops::{Backend, ProjectionBlock, ReconSpec, Reconstruction, RotationAxis};

use super::preview::PreviewClock;
use super::sums::{Made, Sums};
use super::{Keep, ReconConfig, Setup, WINDOW_BATCHES};
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
    sums: Sums,
    batches: Batches,
    weights: Weights,
    /// Projections that are kept until the end, by number.
    store: BTreeMap<u64, Block>,
    /// Whether they are kept beyond the end.
    keeps_all: bool,
    /// Whether the slices were handed on before.
    handed_on: bool,
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
        spare: Option<Made>,
    ) -> Self {
        Self {
            batches: Batches::new(setup.spec.batch, WINDOW_BATCHES * setup.spec.batch),
            weights: Weights::new(&header),
            search: setup.axis_unknown.then(Search::default),
            preview_rows: config.preview.rows(setup.spec.rows),
            preview: PreviewClock::new(&config.preview),
            store: BTreeMap::new(),
            keeps_all: config.keep == Keep::All,
            handed_on: false,
            sums: Sums::new(ops.clone(), spare),
            without_angle: 0,
            header,
            setup,
            ops,
        }
    }

    /// The sums, for the next pass over the rows.
    pub(super) fn into_spare(self) -> Option<Made> {
        self.sums.into_spare(self.setup.spec)
    }

    /// What the series was announced as.
    pub(super) fn header(&self) -> &SeriesHeader {
        &self.header
    }

    /// The axis that is used, in columns of the frames.
    pub(super) fn rotation_axis(&self) -> &RotationAxis {
        &self.setup.spec.rotation_axis
    }

    /// Whether all projections that have come are kept, so that the sum can be formed anew.
    pub(super) fn can_be_made_again(&self) -> bool {
        let arrived = self.weights.count() + self.batches.held() as u64;
        self.search.is_none() && self.header.pass.count == 1 && self.store.len() as u64 == arrived
    }

    /// Forms the sum anew with other parameters, from the projections that it holds; shows the chosen slices first.
    pub(super) fn make_again(&mut self, spec: ReconSpec, out: &mut Outlet) -> Result<(), NodeError> {
        self.setup.spec = spec;
        let batches = self.batches_of_store();
        if !batches.is_empty() {
            self.note_axis(out);
        }
        // The sums of before go first: there may not be room for those of the slices besides.
        self.sums.clear();
        if out.wants_previews() && !batches.is_empty() {
            self.show_again(&batches, out)?;
        }
        for batch in &batches {
            self.add_to_sums(batch)?;
        }
        Ok(())
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
    pub(super) fn finish(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
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
            // They came in such disorder that batches were torn.
            self.sums()?.reset();
            for batch in self.batches_of_store() {
                self.add_to_sums(&batch)?;
            }
        } else if self.batches.stragglers() > 0 {
            out.journal().warn(format!(
                "series {}: {} projections came so late that they were added out of order; \
                 the last bits of the volume depend on it",
                self.header.id,
                self.batches.stragglers()
            ));
        }
        if self.keeps_all && (self.store.len() as u64) < self.weights.count() {
            out.journal().warn(format!(
                "series {}: {} of {} projections were kept, so a change waits for the next series: announce how many \
                 come, or raise store_bytes",
                self.header.id,
                self.store.len(),
                self.weights.count()
            ));
        }
        self.complete(out)
    }

    /// Corrects the weights of the sum and hands the slices on.
    pub(super) fn complete(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        if !self.sums.are_set_up() {
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
        if !self.sums.are_set_up() {
            self.note_axis(out);
        }
        self.add_to_sums(batch)?;
        if out.wants_previews() && self.preview.is_due(batch.len() as u64) {
            self.show(out, self.weights.scale_so_far())?;
        }
        Ok(())
    }

    fn add_to_sums(&mut self, batch: &[Block]) -> Result<(), NodeError> {
        let projections = weighed(batch, &mut self.weights, self.setup.first_row);
        self.sums.of(&self.setup.spec)?.accumulate(&projections).map_err(op_failed)
    }

    /// The projections of the sum that are kept, in their batches.
    fn batches_of_store(&self) -> Vec<Vec<Block>> {
        let size = self.setup.spec.batch as u64;
        let mut batches: BTreeMap<u64, Vec<Block>> = BTreeMap::new();
        for (number, block) in self.store.iter().filter(|(number, _)| self.weights.has(**number)) {
            batches.entry(number / size).or_default().push(block.clone());
        }
        batches.into_values().collect()
    }

    fn sums(&mut self) -> Result<&mut Box<dyn Reconstruction>, NodeError> {
        self.sums.of(&self.setup.spec)
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
        if !again.is_empty() {
            self.sums.of(&self.setup.spec)?.accumulate(&again).map_err(op_failed)?;
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

    /// Shows the chosen slices as they become, each summed by itself: much sooner than the volume.
    fn show_again(&mut self, batches: &[Vec<Block>], out: &mut Outlet) -> Result<(), NodeError> {
        let format = self.setup.output.format;
        let scale = self.weights.scale_so_far();
        for row in self.preview_rows.clone() {
            let axis = self.setup.spec.rotation_axis.of_row(row).unwrap_or_default();
            let spec =
                ReconSpec { rows: 1, rotation_axis: RotationAxis::Same(axis), ..self.setup.spec.clone() };
            let mut sum = self.ops.reconstruction(&spec).map_err(op_failed)?;
            for batch in batches {
                let projections = weighed(batch, &mut self.weights, self.setup.first_row + row);
                sum.accumulate(&projections).map_err(op_failed)?;
            }
            let mut lease = out.lease(format)?;
            sum.slice(0, scale, &mut lease).map_err(op_failed)?;
            out.preview(lease.freeze(self.slice_meta(row)))?;
        }
        Ok(())
    }

    fn hand_on(&mut self, scale: f64, out: &mut Outlet) -> Result<(), NodeError> {
        if !self.keeps_all {
            // The projections go back before the slices take memory.
            self.store.clear();
        }
        let format = self.setup.output.format;
        let mut last_written = None;
        for (group, rows) in self.sums()?.row_groups().into_iter().enumerate() {
            let mut leases = Vec::with_capacity(rows.len());
            for _ in rows.clone() {
                leases.push(out.lease(format)?);
            }
            self.sums()?.slices(group, scale, &mut leases).map_err(op_failed)?;
            for (row, lease) in rows.zip(leases) {
                let slice = lease.freeze(self.slice_meta(row));
                last_written = slice.written().cloned();
                out.push(slice)?;
            }
        }
        if let Some(fence) = last_written
            && self.header.pass.is_last()
        {
            // All is enqueued and nothing follows: only for the time that is noted.
            fence.wait();
        }
        // A volume that is made again is not what the scan waited for.
        if !std::mem::replace(&mut self.handed_on, true) {
            out.journal().series(self.header.id, |record| record.volume_done = Some(Instant::now()));
        }
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

/// Projections with their angles and weights; those without an angle are left out.
fn weighed<'a>(batch: &'a [Block], weights: &mut Weights, first_row: usize) -> Vec<ProjectionBlock<'a>> {
    let one = |block: &'a Block| {
        let number = block.meta.projection;
        let angle_rad = weights.angle_rad(number, block.meta.angle_rad)?;
        let weight = weights.take(number, angle_rad);
        Some(ProjectionBlock { block, first_row, angle_rad, weight })
    };
    batch.iter().filter_map(one).collect()
}
