//! Reconstruction while the scan goes on.

mod config;
mod preview;
mod session;
mod sums;

use std::sync::Arc;

use beamstream_node::prelude::*;
use beamstream_ops::{Backend, ReconSpec, RotationAxis};
use serde_json::Value;

pub use config::{Keep, PreviewConfig, ReconConfig};

use crate::axis::AxisSetting;
use session::Session;
use sums::Made;

/// Batches of projections that are held back at most until a missing projection is given up.
const WINDOW_BATCHES: usize = 4;

/// Reconstructs slices from projections and adds each projection as it arrives.
///
/// In: f32 line integrals `(row, column)`, with angles. Out: f32 slices `(y, x)`, one for each row, in order, after
/// the last projection; linear attenuation per pixel.
///
/// # Memory
/// The sums of all slices (see [`Backend::reconstruction_memory`]), and the projections themselves where the axis or
/// the angles are known only later, or where they are to be kept.
pub struct Recon {
    config: ReconConfig,
    ops: Arc<dyn Backend>,
    /// Whether the axis was changed while the run went on.
    axis_moved: bool,
    /// Whether the run began without an axis: then buffers for keeping all projections were planned.
    began_with_auto: bool,
    session: Option<Session>,
    /// The series before, while its projections are kept.
    finished: Option<Finished>,
    /// Sums of the pass over the rows before.
    spare: Option<Made>,
}

/// A series whose volume was handed on and can be made again.
struct Finished {
    session: Session,
    summary: SeriesSummary,
}

impl NodeConfig for ReconConfig {
    const KIND: &'static str = "recon";
    const CLASS: KindClass = KindClass::Step;
    const COMPUTES: bool = true;
    type Node = Recon;

    fn build(self, cx: &BuildContext) -> Result<Recon, BuildError> {
        if let Some(batch) = self.batch
            && !(1..=4096).contains(&batch)
        {
            return Err(BuildError::key("batch", format!("expected 1 to 4096 projections, found {batch}")));
        }
        Ok(Recon {
            began_with_auto: self.rotation_axis == AxisSetting::Auto,
            axis_moved: false,
            config: self,
            ops: cx.ops.clone(),
            session: None,
            finished: None,
            spare: None,
        })
    }
}

/// What a series comes to, before it begins.
struct Setup {
    spec: ReconSpec,
    output: SeriesHeader,
    first_row: usize,
    /// Whether the axis is still to be found.
    axis_unknown: bool,
    /// Projections that are kept until the end.
    stored: usize,
}

impl Recon {
    fn setup(&self, header: &SeriesHeader) -> Result<Setup, NodeError> {
        if header.content != Content::Frames {
            return Err(NodeError::config(
                "expected projections, found slices: a pipeline has one recon node",
            ));
        }
        if header.format.element != ElementType::F32 {
            return Err(NodeError::config(format!(
                "expected line integrals as f32, found {}: put a flat_field node before recon",
                header.format.element
            )));
        }
        let shape = header.format.shape;
        let rows = self.rows(shape.rows)?;
        // Sizes first: axes are numbers for each row.
        let impossible =
            |error| NodeError::because(NodeErrorKind::Config, "the series cannot be reconstructed", error);
        ReconSpec::new(rows.len(), shape.columns, 0.0).validate().map_err(impossible)?;
        let axes = self.config.rotation_axis.columns(header, rows.start, rows.len());
        // What was right for the series before must not end the run.
        let kind = if self.axis_moved { NodeErrorKind::Series } else { NodeErrorKind::Config };
        let axes = axes.map_err(|text| NodeError::new(kind, text))?;
        let axis_unknown = axes.is_none();
        let spec = ReconSpec {
            method: self.config.method,
            filter: self.config.filter,
            padding: self.config.pad,
            rotation_axis: axes.map_or(RotationAxis::Same((shape.columns as f64 - 1.0) / 2.0), one_or_many),
            batch: self.config.batch.unwrap_or_else(|| self.ops.batch()),
            storage: self.config.storage,
            ..ReconSpec::new(rows.len(), shape.columns, 0.0)
        };
        spec.validate().map_err(impossible)?;
        let keeps = axis_unknown || header.angles_rad.is_none() || self.config.keep == Keep::All;
        let stored = if keeps { self.storable(header) } else { 0 };
        let mut output = header.clone();
        output.content = Content::Volume;
        output.format = Format::slice(ElementType::F32, shape.columns);
        output.window.first_row += rows.start * header.window.bin;
        if header.pass.count == 1 {
            output.pass = beamstream_core::Pass::whole(rows.len());
        }
        output.expected_frames = Some(rows.len() as u64);
        Ok(Setup { spec, output, first_row: rows.start, axis_unknown, stored })
    }

    /// What a series that is under way, or was, comes to with the settings of now; an axis that was found stays.
    fn spec_for(&self, session: &Session) -> Result<ReconSpec, NodeError> {
        let Setup { mut spec, axis_unknown, .. } = self.setup(session.header())?;
        if axis_unknown {
            spec.rotation_axis = session.rotation_axis().clone();
        }
        Ok(spec)
    }

    fn rows(&self, rows: usize) -> Result<std::ops::Range<usize>, NodeError> {
        match self.config.rows {
            None => Ok(0..rows),
            Some(range) => range.within(rows).ok_or_else(|| {
                NodeError::config(format!(
                    "rows: expected a range within the {rows} rows of the frames, found {range}"
                ))
            }),
        }
    }

    /// Projections that are kept where axis or weights are known only at the end.
    fn storable(&self, header: &SeriesHeader) -> usize {
        let bytes = header.format.bytes().max(1);
        match header.expected_projections() {
            Some(expected) => usize::try_from(expected).unwrap_or(usize::MAX),
            None => (self.config.store_bytes / bytes as u64).max(2) as usize,
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(key: &str, value: &Value) -> Result<T, SetError> {
    serde_json::from_value(value.clone())
        .map_err(|error| SetError::Value { key: key.to_owned(), message: error.to_string() })
}

/// One axis where all rows have the same.
fn one_or_many(axes: Vec<f64>) -> RotationAxis {
    match axes.first() {
        Some(&first) if axes.iter().all(|axis| *axis == first) => RotationAxis::Same(first),
        _ => RotationAxis::PerRow(axes),
    }
}

impl Node for Recon {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        let setup = self.setup(header)?;
        let previews = self.config.preview.rows(setup.spec.rows).len();
        Ok(Negotiated {
            memory_bytes: self.ops.reconstruction_memory(&setup.spec).total_bytes(),
            keeps_blocks: (WINDOW_BATCHES * setup.spec.batch).saturating_add(setup.stored),
            takes_blocks: 1,
            writes_blocks: self.ops.slices_at_once(&setup.spec) + previews,
            // Where passes follow each other, the slices of one leave while those of the next are made.
            likes_blocks: setup.spec.rows * header.pass.count.min(2) + previews,
            output: setup.output,
        })
    }

    fn release(&mut self) {
        self.finished = None;
    }

    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        let setup = self.setup(header)?;
        let spare = self.spare.take().filter(|_| !header.pass.is_first());
        self.session = Some(Session::new(header.clone(), setup, &self.config, self.ops.clone(), spare));
        Ok(())
    }

    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        match &mut self.session {
            Some(session) if block.meta.role == Role::Projection => session.add(block, out),
            _ => Ok(()),
        }
    }

    fn end(&mut self, summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(mut session) = self.session.take() else { return Ok(()) };
        session.finish(out)?;
        if self.config.keep == Keep::All && session.can_be_made_again() {
            self.finished = Some(Finished { session, summary: summary.clone() });
        } else if !session.header().pass.is_last() && !summary.aborted {
            self.spare = session.into_spare();
        }
        Ok(())
    }

    /// `rotation_axis` and `filter` can be changed: at once where all projections are kept, else with the next series.
    fn set(&mut self, key: &str, value: &Value) -> Result<TakesEffect, SetError> {
        let mut config = self.config.clone();
        match key {
            "rotation_axis" | "center" => config.rotation_axis = parsed(key, value)?,
            "filter" => config.filter = parsed(key, value)?,
            _ => return Err(SetError::Fixed(key.to_owned())),
        }
        let turns_to_auto =
            config.rotation_axis == AxisSetting::Auto && self.config.rotation_axis != AxisSetting::Auto;
        if turns_to_auto && !self.began_with_auto {
            let message = "a run that began with a given axis cannot turn to auto".to_owned();
            return Err(SetError::Value { key: key.to_owned(), message });
        }
        let before = std::mem::replace(&mut self.config, config);
        self.axis_moved |= self.config.rotation_axis != before.rotation_axis;
        if turns_to_auto {
            // The search begins with the first projection.
            return Ok(TakesEffect::WithNextSeries);
        }
        let at_hand = self.session.as_ref().or(self.finished.as_ref().map(|finished| &finished.session));
        let Some(session) = at_hand.filter(|session| session.can_be_made_again()) else {
            return Ok(TakesEffect::WithNextSeries);
        };
        if let Err(error) = self.spec_for(session) {
            self.config = before;
            return Err(SetError::Value { key: key.to_owned(), message: error.full_text() });
        }
        Ok(TakesEffect::Now)
    }

    fn changed(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        if let Some(mut session) = self.session.take() {
            let again = self.spec_for(&session).and_then(|spec| session.make_again(spec, out));
            self.session = Some(session);
            return again;
        }
        let Some(mut finished) = self.finished.take() else { return Ok(()) };
        let agreed = self.negotiate(finished.session.header())?;
        let spec = self.spec_for(&finished.session)?;
        out.begin_with(agreed.output, agreed.writes_blocks, agreed.likes_blocks)?;
        finished.session.make_again(spec, out)?;
        finished.session.complete(out)?;
        out.end(finished.summary.clone())?;
        self.finished = Some(finished);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
