//! Flat-field correction: detector counts to line integrals.

use std::sync::Arc;

use beamstream_core::RoleCounts;
use beamstream_node::prelude::*;
use beamstream_ops::{Backend, BadPixels, FlatField as FlatFieldOp, FlatFieldSpec};

use crate::op_failed;
use crate::references::{MAX_GROUPS, References};

/// How several groups of flats are used, for example those from before and from after the scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlatGroups {
    /// All flats are averaged.
    #[default]
    Average,
    /// Each projection takes the flats before and after it, weighed by its distance to both.
    Interpolate,
}

/// Divides each projection by the open beam: `-ln((projection - dark) / (flat - dark))`.
///
/// Darks and flats are averaged as they come, are not handed on, and stay valid for the series that
/// follow until new ones come. Pixels without a beam, masked and saturated ones take the value of their
/// nearest good neighbour in the row and are counted in a warning.
///
/// ```yaml
/// version: 1
/// nodes:
///   scan:    { kind: phantom_source, size: 64, angles: 90 }
///   correct: { kind: flat_field, input: scan }
///   volume:  { kind: recon, input: correct }
///   end:     { kind: null_sink, input: volume }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlatFieldConfig {
    /// File with darks, instead of those in the stream; a dataset can be named behind a colon.
    #[serde(default)]
    pub darks: Option<String>,
    /// File with flats, instead of those in the stream; a dataset can be named behind a colon.
    #[serde(default)]
    pub flats: Option<String>,
    /// Take the negative logarithm, so that line integrals leave rather than transmissions.
    #[serde(default = "yes")]
    pub minus_log: bool,
    /// How several groups of flats are used.
    #[serde(default)]
    pub flat_groups: FlatGroups,
}

fn yes() -> bool {
    true
}

impl NodeConfig for FlatFieldConfig {
    const KIND: &'static str = "flat_field";
    const CLASS: KindClass = KindClass::Step;
    const COMPUTES: bool = true;
    type Node = FlatField;

    fn build(self, cx: &BuildContext) -> Result<FlatField, BuildError> {
        let read = |key: &'static str, path: &Option<String>| {
            let image = path
                .as_ref()
                .map(|path| cx.images.mean_image(path).map_err(|text| BuildError::key(key, text)));
            image.transpose()
        };
        Ok(FlatField {
            files: [(Role::Dark, read("darks", &self.darks)?), (Role::Flat, read("flats", &self.flats)?)],
            spec: FlatFieldSpec { minus_log: self.minus_log },
            flat_groups: self.flat_groups,
            ops: cx.ops.clone(),
            references: References::new(self.flat_groups == FlatGroups::Interpolate),
            current: None,
            last_pass: None,
            repaired: BadPixels::default(),
        })
    }
}

type FileImage = Option<(Shape, Vec<f32>)>;

/// Corrects projections by darks and flats.
///
/// In: counts of any type `(row, column)`, with their roles. Out: f32 line integrals (no unit) or
/// transmissions, same shape; projections alone.
pub struct FlatField {
    files: [(Role, FileImage); 2],
    spec: FlatFieldSpec,
    flat_groups: FlatGroups,
    ops: Arc<dyn Backend>,
    references: References,
    current: Option<Current>,
    /// The operation of the pass over the rows before, and what it was made for.
    last_pass: Option<(Format, Box<dyn FlatFieldOp>)>,
    /// Bad pixels that operations of earlier passes have counted.
    repaired: BadPixels,
}

/// The series at hand.
struct Current {
    header: SeriesHeader,
    op: Box<dyn FlatFieldOp>,
    /// Darks and flats that have come.
    references_seen: u64,
    /// Projections that wait for flats which were announced and have not come yet.
    held: Vec<Block>,
    /// Positions of the two flat groups that the operation was given, where there are two.
    between: Option<[f64; 2]>,
    warned_no_flats: bool,
}

impl FlatField {
    /// Flats that are announced and come later: projections have to wait for them.
    fn has_to_wait(&self, header: &SeriesHeader) -> Option<RoleCounts> {
        let from_file = self.files.iter().any(|(role, file)| *role == Role::Flat && file.is_some());
        header
            .roles
            .filter(|roles| !from_file && roles.flats > 0 && roles.projections > 0 && !roles.references_first)
    }

    fn correct_or_hold(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let missing = current.header.roles.filter(|roles| {
            !roles.references_first && roles.flats > 0 && current.references_seen < roles.flats + roles.darks
        });
        let from_file = self.files.iter().any(|(role, file)| *role == Role::Flat && file.is_some());
        if missing.is_some() && !from_file {
            current.held.push(block);
            return Ok(());
        }
        self.release_held(out)?;
        self.correct(&block, out)
    }

    /// Sums (f64) and means (f32) of darks and flats, and what the operation derives from them.
    fn bytes_per_pixel(&self) -> usize {
        let groups = if self.flat_groups == FlatGroups::Interpolate { MAX_GROUPS } else { 1 };
        2 * groups * 12 + 24
    }

    fn release_held(&mut self, out: &mut Outlet) -> Result<(), NodeError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let mut held = std::mem::take(&mut current.held);
        held.sort_by_key(|block| block.meta.frame);
        for block in held {
            self.correct(&block, out)?;
        }
        Ok(())
    }

    fn correct(&mut self, block: &Block, out: &mut Outlet) -> Result<(), NodeError> {
        if self.references.take_changed() {
            self.set_references(out)?;
        }
        let position = block.meta.frame.number as f64;
        self.choose_flats(position)?;
        let Some(current) = &mut self.current else { return Ok(()) };
        let later = current
            .between
            .map_or(0.0, |[before, after]| ((position - before) / (after - before)).clamp(0.0, 1.0) as f32);
        let mut corrected = out.lease(block.format().with_element(ElementType::F32))?;
        current.op.correct(block, later, &mut corrected).map_err(op_failed)?;
        out.push(corrected.freeze(block.meta))
    }

    /// Corrects projections by the same mean dark and flat.
    fn correct_all(&mut self, blocks: &[Block], out: &mut Outlet) -> Result<(), NodeError> {
        if self.references.take_changed() {
            self.set_references(out)?;
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let lease = |block: &Block| out.lease(block.format().with_element(ElementType::F32));
        let mut corrected: Vec<LeaseMut> = blocks.iter().map(lease).collect::<Result<_, _>>()?;
        current.op.correct_all(blocks, 0.0, &mut corrected).map_err(op_failed)?;
        blocks.iter().zip(corrected).try_for_each(|(block, corrected)| out.push(corrected.freeze(block.meta)))
    }

    /// Gives the operation the mean dark and flat.
    fn set_references(&mut self, out: &Outlet) -> Result<(), NodeError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let shape = current.header.format.shape;
        let dark = self.references.dark(shape)?;
        let flat = self.references.flat(shape)?.unwrap_or_else(|| {
            if !current.warned_no_flats {
                current.warned_no_flats = true;
                out.journal().warn(
                    "no flats came: the counts above the dark are taken for the transmission itself; \
                     send flats before the projections or name a file with flats",
                );
            }
            dark.iter().map(|dark| dark + 1.0).collect()
        });
        current.between = None;
        current.op.set_references(&dark, &[&flat]).map_err(op_failed)
    }

    /// With several groups of flats: gives the operation those before and after the frame.
    fn choose_flats(&mut self, position: f64) -> Result<(), NodeError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if self.flat_groups != FlatGroups::Interpolate {
            return Ok(());
        }
        let shape = current.header.format.shape;
        let groups = self.references.flat_groups()?;
        let after = groups.partition_point(|group| group.at < position).clamp(1, groups.len().max(2) - 1);
        let (Some(before), Some(after)) = (groups.get(after - 1), groups.get(after)) else { return Ok(()) };
        let between = Some([before.at, after.at]);
        if current.between == between {
            return Ok(());
        }
        let flats = [before.pixels.clone(), after.pixels.clone()];
        let dark = self.references.dark(shape)?;
        current.op.set_references(&dark, &[&flats[0], &flats[1]]).map_err(op_failed)?;
        current.between = between;
        Ok(())
    }

    /// The operation for a series, or for a pass over its rows: that of the pass before, if the rows are as many.
    fn operation(&mut self, header: &SeriesHeader) -> Result<Box<dyn FlatFieldOp>, NodeError> {
        let last_pass = self.last_pass.take();
        if header.pass.is_first() {
            // Of a series that ended early: it goes before a new one is made.
            drop(last_pass);
            self.repaired = BadPixels::default();
        } else if let Some((format, mut op)) = last_pass {
            if format == header.format {
                return Ok(op);
            }
            self.repaired += op.take_bad_pixels().map_err(op_failed)?;
        }
        self.ops.flat_field(&self.spec, header.format).map_err(op_failed)
    }

    fn warn_of_bad_pixels(series: SeriesId, bad: BadPixels, out: &Outlet) {
        let causes = [
            (bad.no_beam, "without open beam (flat not above dark)"),
            (bad.saturated, "masked or saturated (highest value of their type)"),
            (bad.non_finite, "NaN or infinite"),
            (bad.clipped, "with a transmission of 0 or less, raised to the smallest one"),
        ];
        let told: Vec<String> = causes
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, cause)| format!("{count} {cause}"))
            .collect();
        if !told.is_empty() {
            out.journal()
                .warn(format!("series {series}: pixel values that were repaired: {}", told.join(", ")));
        }
    }
}

impl Node for FlatField {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        if header.content != Content::Frames {
            return Err(NodeError::config(
                "expected detector frames, found slices: flat_field stands before recon",
            ));
        }
        for (role, image) in &self.files {
            if let Some((shape, _)) = image
                && *shape != header.format.shape
            {
                return Err(NodeError::config(format!(
                    "the {role}s from the file have {shape} pixels, the frames have {}: \
                     give a file of the same detector, rows and columns",
                    header.format.shape
                )));
            }
        }
        let held = self
            .has_to_wait(header)
            .map_or(0, |roles| usize::try_from(roles.projections).unwrap_or(usize::MAX));
        let pixels = header.format.shape.len();
        let mut output = header.clone();
        output.format = header.format.with_element(ElementType::F32);
        output.expected_frames = header.expected_projections();
        output.roles = None;
        let takes = self.ops.frames_at_once(header.format).max(1);
        Ok(Negotiated {
            memory_bytes: pixels.saturating_mul(self.bytes_per_pixel()),
            keeps_blocks: held.saturating_add(takes - 1),
            takes_blocks: takes,
            writes_blocks: takes,
            ..Negotiated::to(output).ahead()
        })
    }

    fn begin(&mut self, header: &SeriesHeader, out: &mut Outlet) -> Result<(), NodeError> {
        // A later pass over the rows brings its own darks and flats, and may be of another size.
        if !self.references.keep_shape(header.format.shape) && header.pass.is_first() {
            out.journal()
                .warn("the frames have another size than the darks and flats so far, which are forgotten");
        }
        for (role, image) in &self.files {
            if let Some((_, pixels)) = image {
                self.references.set(*role, pixels.clone());
            }
        }
        let op = self.operation(header)?;
        self.current = Some(Current {
            header: header.clone(),
            op,
            references_seen: 0,
            held: Vec::new(),
            between: None,
            warned_no_flats: false,
        });
        // A new operation knows no references yet, and each pass is of other rows.
        self.references.mark_changed();
        Ok(())
    }

    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        match block.meta.role {
            Role::Dark | Role::Flat => {
                let from_file =
                    self.files.iter().any(|(role, file)| *role == block.meta.role && file.is_some());
                if let Some(current) = &mut self.current {
                    current.references_seen += 1;
                    if !from_file {
                        self.references.add(&block, &current.header, &*self.ops)?;
                    }
                }
                Ok(())
            }
            Role::Projection => self.correct_or_hold(block, out),
            Role::Invalid => Ok(()),
        }
    }

    /// Projections that need nothing else go together; between two groups of flats each has a weight of its own.
    fn process_all(&mut self, blocks: &mut Vec<Block>, out: &mut Outlet) -> Result<(), NodeError> {
        let are_plain = blocks.iter().all(|block| block.meta.role == Role::Projection)
            && self.flat_groups == FlatGroups::Average
            && self.current.as_ref().is_some_and(|current| self.has_to_wait(&current.header).is_none());
        if are_plain {
            let outcome = self.correct_all(blocks, out);
            blocks.clear();
            return outcome;
        }
        blocks.drain(..).try_for_each(|block| self.process(block, out))
    }

    fn end(&mut self, summary: &SeriesSummary, out: &mut Outlet) -> Result<(), NodeError> {
        self.release_held(out)?;
        let Some(mut current) = self.current.take() else { return Ok(()) };
        if current.header.pass.is_last() || summary.aborted {
            self.repaired += current.op.take_bad_pixels().map_err(op_failed)?;
            Self::warn_of_bad_pixels(current.header.id, self.repaired, out);
        } else {
            // Counting ends with the last pass: on a device it takes a wait for all that was enqueued.
            self.last_pass = Some((current.header.format, current.op));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::Harness;
    use serde_json::json;

    fn frame(number: u64, role: Role) -> BlockMeta {
        BlockMeta::new(FrameId::new(number), role)
    }

    fn counts(
        expected: &[(u64, Role, u16)],
        settings: serde_json::Value,
        roles: Option<RoleCounts>,
    ) -> Vec<f32> {
        let mut header =
            SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::U16, 2, 3));
        header.roles = roles;
        let mut node = Harness::<FlatFieldConfig>::new(settings).with_header(header);
        node.begin().unwrap();
        for &(number, role, count) in expected {
            node.feed(frame(number, role), &[count; 6]).unwrap();
        }
        node.end().unwrap();
        node.first_pixels()
    }

    #[test]
    fn half_the_open_beam_is_half_the_transmission() {
        let frames = [(0, Role::Dark, 100), (1, Role::Flat, 1100), (2, Role::Projection, 600)];
        let transmission = counts(&frames, json!({ "minus_log": false }), None);
        assert!((transmission[0] - 0.5).abs() < 1e-6);
        let integral = counts(&frames, json!({}), None);
        assert!((integral[0] - 2.0_f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn darks_and_flats_are_averaged() {
        let frames = [
            (0, Role::Dark, 90),
            (1, Role::Dark, 110),
            (2, Role::Flat, 1000),
            (3, Role::Flat, 1200),
            (4, Role::Projection, 600),
        ];
        let transmission = counts(&frames, json!({ "minus_log": false }), None);
        assert!((transmission[0] - 0.5).abs() < 1e-6);
    }

    #[test]
    fn flats_around_the_scan_are_interpolated() {
        let frames = [(0, Role::Flat, 1000), (50, Role::Projection, 500), (100, Role::Flat, 2000)];
        let roles = RoleCounts { darks: 0, flats: 2, projections: 1, references_first: false };
        let settings = json!({ "minus_log": false, "flat_groups": "interpolate" });
        let transmission = counts(&frames, settings, Some(roles));
        assert!((transmission[0] - 500.0 / 1500.0).abs() < 1e-6, "{transmission:?}");
    }

    #[test]
    fn projections_wait_for_flats_that_are_announced() {
        let frames = [
            (0, Role::Projection, 600),
            (1, Role::Projection, 1100),
            (2, Role::Flat, 1100),
            (3, Role::Dark, 100),
        ];
        let roles = RoleCounts { darks: 1, flats: 1, projections: 2, references_first: false };
        let transmission = counts(&frames, json!({ "minus_log": false }), Some(roles));
        assert!((transmission[0] - 0.5).abs() < 1e-6 && (transmission[1] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn without_flats_the_user_is_told() {
        let header =
            SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::U16, 1, 1));
        let mut node = Harness::<FlatFieldConfig>::new(json!({})).with_header(header);
        node.begin().unwrap();
        node.feed(frame(0, Role::Projection), &[5_u16]).unwrap();
        node.end().unwrap();
        assert!(node.warnings()[0].contains("no flats"));
        assert!(node.first_pixels()[0].is_finite());
    }

    #[test]
    fn flats_stay_valid_for_the_next_series() {
        let header =
            SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::U16, 1, 1));
        let mut node =
            Harness::<FlatFieldConfig>::new(json!({ "minus_log": false })).with_header(header.clone());
        node.begin().unwrap();
        node.feed(frame(0, Role::Flat), &[1000_u16]).unwrap();
        node.end().unwrap();
        let next = SeriesHeader { id: SeriesId { number: 2, ordinal: 1 }, ..header };
        let mut node = node.with_header(next);
        node.begin().unwrap();
        node.feed(frame(0, Role::Projection), &[250_u16]).unwrap();
        node.end().unwrap();
        assert!((node.first_pixels()[0] - 0.25).abs() < 1e-6);
    }

    #[test]
    fn frames_that_come_together_are_corrected_like_those_that_come_alone() {
        let frames: Vec<(u64, Role, u16)> = vec![
            (0, Role::Dark, 100),
            (1, Role::Flat, 1100),
            (2, Role::Projection, 600),
            (3, Role::Projection, 350),
            (4, Role::Flat, 2100),
            (5, Role::Projection, 1100),
        ];
        for groups in ["average", "interpolate"] {
            let header = SeriesHeader::frames(
                SeriesId { number: 1, ordinal: 0 },
                Format::frame(ElementType::U16, 2, 3),
            );
            let settings = json!({ "minus_log": false, "flat_groups": groups });
            let node = || Harness::<FlatFieldConfig>::new(settings.clone()).with_header(header.clone());
            let (mut alone, mut together) = (node(), node());
            alone.begin().unwrap();
            together.begin().unwrap();
            for &(number, role, count) in &frames {
                alone.feed(frame(number, role), &[count; 6]).unwrap();
            }
            let block = |&(number, role, count): &(u64, Role, u16)| (frame(number, role), vec![count; 6]);
            let blocks: Vec<_> = frames.iter().map(block).collect();
            // Of all roles, and of projections alone.
            together.feed_all(&blocks[..2]).unwrap();
            together.feed_all(&blocks[2..4]).unwrap();
            together.feed_all(&blocks[4..]).unwrap();
            alone.end().unwrap();
            together.end().unwrap();
            assert_eq!(together.first_pixels(), alone.first_pixels(), "{groups}");
            assert_eq!(alone.first_pixels().len(), 3);
        }
    }

    #[test]
    fn bad_pixels_of_all_passes_are_told_once() {
        use beamstream_core::Pass;
        // Three passes over the rows, the last of fewer: its operation is another one.
        let pass = |index, rows| SeriesHeader {
            pass: Pass { index, count: 3, first_row: 2 * index, total_rows: 5 },
            ..SeriesHeader::frames(
                SeriesId { number: 1, ordinal: 0 },
                Format::frame(ElementType::U16, rows, 1),
            )
        };
        let mut node = Harness::<FlatFieldConfig>::new(json!({}));
        for (index, counts) in [vec![65535_u16, 9], vec![65535, 65535], vec![65535]].into_iter().enumerate() {
            node = node.with_header(pass(index, counts.len()));
            node.begin().unwrap();
            node.feed(frame(0, Role::Flat), &vec![1000_u16; counts.len()]).unwrap();
            node.feed(frame(1, Role::Projection), &counts).unwrap();
            node.end().unwrap();
        }
        let told = node.warnings();
        assert!(matches!(told.as_slice(), [only] if only.contains("4 masked or saturated")), "{told:?}");
    }
}
