//! Reconstruction of parallel-beam projections that accumulates them as they come.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::named;

/// How projections become slices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Gridding in Fourier space: the filtered projections' spectra are spread onto the slice's spectrum.
    /// Any angles; the fastest.
    #[default]
    Fourier,
    /// Filtered backprojection: the filtered projections are smeared back over the slice, interpolated linearly.
    Fbp,
}

named!(Method {
    Fourier => "fourier",
    Fbp => "fbp",
});

/// Filter of the projections before they are projected back.
///
/// All but `none` are the band-limited ramp times a window, so that they keep grey levels. The window `w` is
/// given over the frequency `f` in cycles per pixel, from 0 to 1/2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Filter {
    /// The ramp alone (Ram-Lak): sharpest, and the noisiest. `w = 1`.
    #[default]
    Ramp,
    /// A little smoother than the ramp. `w = sin(pi f) / (pi f)`.
    SheppLogan,
    /// `w = cos(pi f)`.
    Cosine,
    /// `w = 0.5 + 0.5 cos(2 pi f)`.
    Hann,
    /// `w = 0.54 + 0.46 cos(2 pi f)`.
    Hamming,
    /// The smoothest. With `u = 2 f`: `w = 1 - 6 u^2 (1 - u)` up to `u = 1/2`, `w = 2 (1 - u)^3` beyond.
    Parzen,
    /// No filter, not even the ramp: a plain backprojection, which is a blur.
    None,
}

named!(Filter {
    Ramp => "ramp",
    SheppLogan => "shepp-logan",
    Cosine => "cosine",
    Hann => "hann",
    Hamming => "hamming",
    Parzen => "parzen",
    None => "none",
});

/// What stands beside a projection while it is filtered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Padding {
    /// Nothing: right for a sample that the detector sees whole.
    #[default]
    Zero,
    /// The first and the last column go on: less shading where the sample is wider than the detector.
    Edge,
}

named!(Padding {
    Zero => "zero",
    Edge => "edge",
});

/// How a device keeps intermediate results. Sums are f32 always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// Single precision.
    #[default]
    F32,
    /// Half precision where the device computes faster with it; the CPU keeps to single. Costs a root mean square
    /// error of up to `1e-3` of the slice's range.
    F16,
}

named!(Storage {
    F32 => "f32",
    F16 => "f16",
});

/// Where the rotation axis is, in columns; column i has its centre at i.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RotationAxis {
    /// The same for all rows.
    Same(f64),
    /// One for each row: a tilted axis.
    PerRow(Vec<f64>),
}

impl RotationAxis {
    /// The axis of one row, in columns; `None` where there is none for it.
    pub fn of_row(&self, row: usize) -> Option<f64> {
        match self {
            Self::Same(axis_px) => Some(*axis_px),
            Self::PerRow(axes_px) => axes_px.get(row).copied(),
        }
    }
}

/// All that a reconstruction has to know before the first projection.
///
/// # Geometry
/// A slice is `columns` x `columns`. Its pixel `(i, j)` lies at `y = i - (columns - 1) / 2`,
/// `x = j - (columns - 1) / 2` from the rotation axis, and a point `(x, y)` projects to column
/// `axis + x cos(angle) + y sin(angle)`.
///
/// # Units
/// Line integrals in, linear attenuation per pixel out: `f = sum over the projections of weight * filtered`,
/// where the weights sum to pi (see [`beamstream_core::angular_weights`]).
///
/// # Tolerance
/// `fourier` and `fbp` on the CPU keep the grey level to 0.1 % and the place to 0.02 pixels on the analytic
/// phantom. Another backend may differ from the CPU by a root mean square of `1e-4` of the slice's range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReconSpec {
    /// Columns of a projection, and edge of a slice.
    pub columns: usize,
    /// Rows of a projection, and number of slices.
    pub rows: usize,
    /// How to reconstruct.
    pub method: Method,
    /// Filter of the projections.
    pub filter: Filter,
    /// What stands beside a projection while it is filtered.
    pub padding: Padding,
    /// Where the rotation axis is.
    pub rotation_axis: RotationAxis,
    /// Projections that are added in one go; more of them need more memory and, where angles jump, less time.
    pub batch: usize,
    /// How intermediate results are kept.
    pub storage: Storage,
}

/// Widest projection that is taken; it keeps every size in bounds before memory is asked for.
const MAX_COLUMNS: usize = 1 << 16;
/// Largest batch that is taken.
const MAX_BATCH: usize = 1 << 16;

impl ReconSpec {
    /// Projections added in one go unless told otherwise.
    pub const DEFAULT_BATCH: usize = 32;

    /// The default method, filter and padding for projections of `rows` x `columns`.
    pub const fn new(rows: usize, columns: usize, rotation_axis_px: f64) -> Self {
        Self {
            columns,
            rows,
            method: Method::Fourier,
            filter: Filter::Ramp,
            padding: Padding::Zero,
            rotation_axis: RotationAxis::Same(rotation_axis_px),
            batch: Self::DEFAULT_BATCH,
            storage: Storage::F32,
        }
    }

    /// Edge of a slice in pixels.
    pub const fn size(&self) -> usize {
        self.columns
    }

    /// Elements of one slice.
    pub const fn slice_len(&self) -> usize {
        self.columns * self.columns
    }

    /// Checks all values against each other.
    ///
    /// # Errors
    /// If a size is 0 or too large, or if an axis is missing or outside the detector.
    pub fn validate(&self) -> Result<(), SpecError> {
        if self.columns == 0 || self.columns > MAX_COLUMNS {
            return Err(SpecError::Columns { found: self.columns, most: MAX_COLUMNS });
        }
        if self.rows == 0 || self.rows > MAX_COLUMNS {
            return Err(SpecError::Rows { found: self.rows, most: MAX_COLUMNS });
        }
        if self.batch == 0 || self.batch > MAX_BATCH {
            return Err(SpecError::Batch { found: self.batch, most: MAX_BATCH });
        }
        if let RotationAxis::PerRow(axes) = &self.rotation_axis
            && axes.len() != self.rows
        {
            return Err(SpecError::AxisCount { expected: self.rows, found: axes.len() });
        }
        for axis_px in (0..self.rows).filter_map(|row| self.rotation_axis.of_row(row)) {
            if !(-0.5..=self.columns as f64 - 0.5).contains(&axis_px) {
                return Err(SpecError::Axis { columns: self.columns, found: axis_px });
            }
        }
        Ok(())
    }
}

/// A value of a specification that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No columns, or too many.
    #[error("expected 1 to {most} columns, found {found}")]
    Columns {
        /// What was given.
        found: usize,
        /// The most that is taken.
        most: usize,
    },
    /// No rows, or too many.
    #[error("expected 1 to {most} rows, found {found}")]
    Rows {
        /// What was given.
        found: usize,
        /// The most that is taken.
        most: usize,
    },
    /// An empty batch, or a huge one.
    #[error("expected a batch of 1 to {most} projections, found {found}")]
    Batch {
        /// What was given.
        found: usize,
        /// The most that is taken.
        most: usize,
    },
    /// The number of rotation axes is not the number of rows.
    #[error("expected a rotation axis for each of {expected} rows, found {found}")]
    AxisCount {
        /// Rows.
        expected: usize,
        /// Axes.
        found: usize,
    },
    /// A rotation axis off the detector.
    #[error("expected a rotation axis within the {columns} columns of the detector, found {found}")]
    Axis {
        /// Columns of the detector.
        columns: usize,
        /// What was given.
        found: f64,
    },
}

/// One projection of line integrals, lent for the time of a call.
#[derive(Debug, Clone, Copy)]
pub struct Projection<'a> {
    /// Line integrals `(row, column)`; values that are not finite count as 0.
    pub pixels: &'a [f32],
    /// Rotation angle in radians.
    pub angle_rad: f64,
    /// Weight in radians; those of a whole scan sum to pi.
    pub weight: f64,
}

/// Memory that a reconstruction holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// For the sums, from the first projection to the last slice. Unit: bytes.
    pub sums_bytes: usize,
    /// For tables and intermediate results. Unit: bytes.
    pub work_bytes: usize,
}

impl Memory {
    /// All of it, in bytes.
    pub const fn total_bytes(self) -> usize {
        self.sums_bytes.saturating_add(self.work_bytes)
    }
}

/// Why a projection was not taken or a slice not given.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconError {
    /// The specification cannot be met.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The threads could not be started.
    #[error("could not start {threads} threads: {cause}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        cause: String,
    },
    /// A projection has another size.
    #[error("expected projections of {expected} pixels, found {found}")]
    ProjectionLength {
        /// Pixels by the specification.
        expected: usize,
        /// Pixels given.
        found: usize,
    },
    /// An angle or a weight is NaN or infinite.
    #[error("expected a finite angle and weight, found {angle_rad} rad and {weight}")]
    Angle {
        /// The angle given, in radians.
        angle_rad: f64,
        /// The weight given.
        weight: f64,
    },
    /// There is no such row.
    #[error("expected a row below {rows}, found {found}")]
    Row {
        /// Rows by the specification.
        rows: usize,
        /// Row asked for.
        found: usize,
    },
    /// There is no such group of rows.
    #[error("expected a group below {groups}, found {found}")]
    Group {
        /// Groups that there are.
        groups: usize,
        /// Group asked for.
        found: usize,
    },
    /// The number of buffers is not the number of rows of the group.
    #[error("expected a buffer for each of {expected} slices, found {found}")]
    Slices {
        /// Rows of the group.
        expected: usize,
        /// Buffers given.
        found: usize,
    },
    /// The buffer for a slice has another size.
    #[error("expected room for {expected} voxels, found {found}")]
    SliceLength {
        /// Voxels of a slice.
        expected: usize,
        /// Room given.
        found: usize,
    },
}

/// A reconstruction in progress: takes projections batch by batch, gives slices at any time.
///
/// What it gives depends on the projections and on the calls they came in, never on the number of
/// threads or on timing.
pub trait Accumulate: Send {
    /// Adds projections, in batches of [`ReconSpec::batch`].
    ///
    /// # Errors
    /// If a projection has another size or no finite angle and weight; then none of the call is added.
    fn accumulate(&mut self, projections: &[Projection<'_>]) -> Result<(), ReconError>;

    /// Writes the slice of `row`, `(y, x)`, as far as projections have come. The sums stay as they are.
    ///
    /// # Errors
    /// If there is no such row, or if `out` is not one slice.
    fn slice(&self, row: usize, out: &mut [f32]) -> Result<(), ReconError>;

    /// Rows that are reconstructed together, in order: asking for all of them at once is fastest.
    fn row_groups(&self) -> Vec<Range<usize>>;

    /// Writes the slices of the `group`-th of the [`row_groups`](Self::row_groups), one buffer a row.
    ///
    /// # Errors
    /// If there is no such group, or if the buffers are not one slice a row.
    fn slices(&mut self, group: usize, out: &mut [&mut [f32]]) -> Result<(), ReconError>;

    /// Forgets all projections.
    fn reset(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_serde() {
        for filter in Filter::ALL {
            let text = serde_json::to_string(filter).unwrap();
            assert_eq!(text, format!("\"{filter}\""));
            assert_eq!(filter.name().parse(), Ok(*filter));
        }
        for method in Method::ALL {
            assert_eq!(serde_json::to_string(method).unwrap(), format!("\"{method}\""));
        }
        let error = "ramps".parse::<Filter>().unwrap_err().to_string();
        assert!(error.contains("shepp-logan") && error.contains("'ramps'"), "{error}");
    }

    #[test]
    fn impossible_values_are_named() {
        assert_eq!(ReconSpec::new(4, 10, 9.5).validate(), Ok(()));
        let text = ReconSpec::new(1, 32, 5000.0).validate().unwrap_err().to_string();
        assert!(text.contains("32") && text.contains("5000"), "{text}");
        assert!(ReconSpec::new(1, 32, f64::NAN).validate().is_err());
        assert!(ReconSpec::new(0, 32, 16.0).validate().is_err());
        let tilted = RotationAxis::PerRow(vec![4.0; 3]);
        assert!(ReconSpec { rotation_axis: tilted, ..ReconSpec::new(4, 10, 0.0) }.validate().is_err());
    }
}
