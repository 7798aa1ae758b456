//! Darks and flats: collected as they come, kept for the series that follow.

use beamstream_buffer::Block;
use beamstream_core::{Format, Role, SeriesHeader, SeriesId, Shape};
use beamstream_node::NodeError;
use beamstream_ops::{Backend, MeanImage};

use crate::op_failed;

/// Frames whose numbers are this near belong to one group, so that swapped ones do not split it.
const NEAR: u64 = 16;
/// Most groups of one role; frames of further ones are added to the last.
pub(crate) const MAX_GROUPS: usize = 8;

/// Frames of one role that were taken in a row.
struct Group {
    mean: Box<dyn MeanImage>,
    first: u64,
    last: u64,
}

/// All frames of one role, in groups, from the series in which they came last.
#[derive(Default)]
struct Stack {
    /// The series and its pass over the rows.
    came_in: Option<(SeriesId, usize)>,
    format: Option<Format>,
    groups: Vec<Group>,
    /// Mean images, from the groups or from a file; made anew when a frame has come.
    images: Vec<RefImage>,
    fresh: bool,
}

/// A mean image and where in the series it belongs.
#[derive(Debug, Clone)]
pub(crate) struct RefImage {
    /// Mean of the frame numbers.
    pub(crate) at: f64,
    /// `(row, column)`, in counts.
    pub(crate) pixels: Vec<f32>,
}

/// The darks and flats that are valid now.
#[derive(Default)]
pub(crate) struct References {
    darks: Stack,
    flats: Stack,
    changed: bool,
    /// Whether frames taken at other times are kept apart.
    in_groups: bool,
}

impl References {
    /// No darks and flats yet; `in_groups` keeps those taken at other times apart.
    pub(crate) fn new(in_groups: bool) -> Self {
        Self { in_groups, ..Self::default() }
    }

    /// Adds a frame. Frames of a new series replace those of an earlier one.
    pub(crate) fn add(
        &mut self,
        frame: &Block,
        header: &SeriesHeader,
        ops: &dyn Backend,
    ) -> Result<(), NodeError> {
        let stack = match frame.meta.role {
            Role::Dark => &mut self.darks,
            Role::Flat => &mut self.flats,
            Role::Projection | Role::Invalid => return Ok(()),
        };
        self.changed = true;
        stack.add(frame, header, ops, self.in_groups)
    }

    /// Sets the mean image of a role from a file.
    pub(crate) fn set(&mut self, role: Role, pixels: Vec<f32>) {
        let stack = if role == Role::Dark { &mut self.darks } else { &mut self.flats };
        stack.images = vec![RefImage { at: 0.0, pixels }];
        stack.groups.clear();
        stack.fresh = true;
        self.changed = true;
    }

    /// Whether a frame has come since this was asked last.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Lets the next [`Self::take_changed`] say yes.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }

    /// The mean dark of all groups; zeros where there is none.
    pub(crate) fn dark(&mut self, shape: Shape) -> Result<Vec<f32>, NodeError> {
        self.darks.refresh()?;
        Ok(self.darks.mean_of_all(shape).unwrap_or_else(|| vec![0.0; shape.len()]))
    }

    /// The mean flat of all groups; `None` where there is none.
    pub(crate) fn flat(&mut self, shape: Shape) -> Result<Option<Vec<f32>>, NodeError> {
        self.flats.refresh()?;
        Ok(self.flats.mean_of_all(shape))
    }

    /// The mean flat of each group, in their order.
    pub(crate) fn flat_groups(&mut self) -> Result<&[RefImage], NodeError> {
        self.flats.refresh()?;
        Ok(&self.flats.images)
    }

    /// Forgets what does not fit frames of this shape, so that nothing of another size is applied.
    pub(crate) fn keep_shape(&mut self, shape: Shape) -> bool {
        let mut kept = true;
        for stack in [&mut self.darks, &mut self.flats] {
            let fits = stack.format.is_none_or(|format| format.shape == shape)
                && stack.images.iter().all(|image| image.pixels.len() == shape.len());
            if !fits {
                *stack = Stack::default();
                self.changed = true;
                kept = false;
            }
        }
        kept
    }
}

impl Stack {
    fn add(
        &mut self,
        frame: &Block,
        header: &SeriesHeader,
        ops: &dyn Backend,
        in_groups: bool,
    ) -> Result<(), NodeError> {
        // A pass over other rows of the same series brings the same frames again, with other rows.
        let came_in = Some((header.id, header.pass.index));
        if self.came_in != came_in || self.format != Some(frame.format()) {
            *self = Self { came_in, format: Some(frame.format()), ..Self::default() };
        }
        self.fresh = false;
        let number = frame.meta.frame.number;
        let near = |group: &Group| {
            !in_groups
                || number.saturating_add(NEAR) >= group.first && number <= group.last.saturating_add(NEAR)
        };
        let full = (self.groups.len() >= MAX_GROUPS).then(|| self.groups.len() - 1);
        let group = if let Some(at) = self.groups.iter().position(near).or(full) {
            &mut self.groups[at]
        } else {
            let mean = ops.mean_image(frame.format()).map_err(op_failed)?;
            self.groups.push(Group { mean, first: number, last: number });
            let last = self.groups.len() - 1;
            &mut self.groups[last]
        };
        group.first = group.first.min(number);
        group.last = group.last.max(number);
        group.mean.add(frame).map_err(op_failed)
    }

    /// Makes the mean images anew if frames have come.
    fn refresh(&mut self) -> Result<(), NodeError> {
        if self.fresh || self.groups.is_empty() {
            return Ok(());
        }
        self.groups.sort_by_key(|group| group.first);
        let image = |group: &Group| -> Result<RefImage, NodeError> {
            let at = f64::midpoint(group.first as f64, group.last as f64);
            Ok(RefImage { at, pixels: group.mean.mean().map_err(op_failed)? })
        };
        self.images = self.groups.iter().map(image).collect::<Result<_, _>>()?;
        self.fresh = true;
        Ok(())
    }

    /// The mean over all frames: the groups' means, weighed by their number of frames.
    fn mean_of_all(&self, shape: Shape) -> Option<Vec<f32>> {
        if let [only] = self.images.as_slice() {
            return Some(only.pixels.clone());
        }
        let frames: f64 = self.groups.iter().map(|group| group.mean.count() as f64).sum();
        (frames > 0.0).then(|| {
            let mut sum = vec![0.0_f64; shape.len()];
            for (image, group) in self.images.iter().zip(&self.groups) {
                let weight = group.mean.count() as f64 / frames;
                for (sum, pixel) in sum.iter_mut().zip(&image.pixels) {
                    *sum += weight * f64::from(*pixel);
                }
            }
            sum.into_iter().map(|value| value as f32).collect()
        })
    }
}
