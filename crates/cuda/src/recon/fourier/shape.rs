//! Sizes of a Fourier reconstruction and the kernels that are compiled for them.

use beamstream_ops::{Gridding, Memory, OpError, Padding, ReconSpec, RotationAxis, good_length};

use crate::fft::FftPlan;
use crate::source::KernelSource;

/// Lanes that lie together in memory, one a thread of a warp; a lane is a pair of rows.
pub(super) const CHUNK_LANES: usize = 32;
/// Rows that are reconstructed together.
pub(super) const CHUNK_ROWS: usize = 2 * CHUNK_LANES;
/// Most projections that are added in one go.
pub(super) const MAX_BATCH: usize = 64;
/// Places between two grid points for which weights are tabulated.
pub(super) const WEIGHT_STEPS: usize = 256;
/// Edge of the tiles that samples are listed by. Unit: grid points.
const TILE: usize = 4;
/// Blocks of tiles along an axis that a thread block looks at.
const LISTED_TOGETHER: usize = 16;

/// Bytes of a complex value.
const VALUE_BYTES: usize = 8;
/// A sample in a list: its place in the spectra of a chunk.
pub(super) type Sample = i32;
/// Weights of a tile's points along u and along v for a sample.
pub(super) type SampleWeights = [f32; 2 * TILE];
/// A block in a list: its place along u and v, and first sample and number of samples of its four tiles.
pub(super) type ListedBlock = [i32; 10];

/// Sizes of arrays that follow from a specification.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Length of the transform of a row.
    pub(super) padded: usize,
    pub(super) gridding: Gridding,
    /// Projections that are added in one go.
    pub(super) batch: usize,
}

impl Shape {
    pub(super) fn new(spec: &ReconSpec) -> Self {
        Self {
            rows: spec.rows,
            columns: spec.columns,
            padded: good_length(2 * spec.columns),
            gridding: Gridding::new(spec.size()),
            batch: spec.batch.clamp(1, MAX_BATCH),
        }
    }

    /// Pairs of rows.
    pub(super) fn lanes(&self) -> usize {
        self.rows.div_ceil(2)
    }

    pub(super) fn chunks(&self) -> usize {
        self.rows.div_ceil(CHUNK_ROWS)
    }

    /// Grid points along an axis.
    pub(super) fn grid(&self) -> usize {
        self.gridding.points()
    }

    /// Complex values of the grid of a chunk.
    pub(super) fn grid_values(&self) -> usize {
        self.grid() * self.grid() * CHUNK_LANES
    }

    /// Complex values between the two inverse transforms of a chunk.
    pub(super) fn middle_values(&self) -> usize {
        self.columns * self.grid() * CHUNK_LANES
    }

    /// Complex values of the spectra of a batch.
    pub(super) fn spectra_values(&self) -> usize {
        self.chunks() * self.batch * (self.padded + 1) * CHUNK_LANES
    }

    /// Multipliers of a batch.
    pub(super) fn multipliers(&self) -> usize {
        self.batch * (self.padded / 2 + 1)
    }

    /// Blocks of 2 x 2 tiles along an axis.
    pub(super) fn blocks(&self) -> usize {
        self.grid().div_ceil(TILE).div_ceil(2)
    }

    /// Thread blocks that list the samples of a row of blocks.
    pub(super) fn listing_blocks(&self) -> usize {
        self.blocks().div_ceil(LISTED_TOGETHER)
    }

    /// Samples that a batch can have in the lists of all tiles.
    ///
    /// A sample reaches four points along each axis, so two tiles at most. Where the grid is no multiple of a tile, the
    /// last one, beside the first frequency, is narrower: samples there meet three along that axis. A projection
    /// nearly along the other axis has a third of its samples there, which makes 4.1 a sample on the mean.
    pub(super) fn listed_samples(&self) -> usize {
        self.batch * (5 * (self.padded + 1) + 256)
    }

    /// Memory on the device.
    pub(super) fn memory(&self) -> Memory {
        let values = self.middle_values() + self.spectra_values() + self.multipliers() + 2 * self.padded;
        let lists = self.listed_samples() * (size_of::<Sample>() + size_of::<SampleWeights>())
            + self.blocks() * self.blocks() * size_of::<ListedBlock>();
        Memory {
            sums_bytes: self.chunks() * self.grid_values() * VALUE_BYTES,
            work_bytes: values * VALUE_BYTES + lists,
        }
    }
}

/// The transforms of a reconstruction on a GPU.
#[derive(Debug, Clone)]
pub(super) struct Transforms {
    /// Of half a padded row: even and odd frequencies are made apart.
    pub(super) rows: FftPlan,
    /// Of the grid along one axis.
    pub(super) grid: FftPlan,
}

impl Transforms {
    /// Transforms with `shared_bytes` of shared memory a block.
    ///
    /// # Errors
    /// If the rows are too long for it.
    pub(super) fn new(spec: &ReconSpec, shape: &Shape, shared_bytes: usize) -> Result<Self, OpError> {
        let rows = FftPlan::new(shape.padded / 2, usize::from(is_tilted(spec)), shared_bytes);
        let grid = FftPlan::new(shape.grid(), 0, shared_bytes);
        match (rows, grid) {
            (Some(rows), Some(grid)) => Ok(Self { rows, grid }),
            _ => Err(OpError::Format {
                expected: format!(
                    "rows whose transform fits {shared_bytes} bytes of shared memory (or method 'fbp', or the CPU)"
                ),
                found: format!("{} columns", spec.columns),
            }),
        }
    }
}

/// Whether rows have axes of their own.
pub(super) fn is_tilted(spec: &ReconSpec) -> bool {
    matches!(&spec.rotation_axis, RotationAxis::PerRow(_))
}

/// The kernel files for a reconstruction: spectra, gridding, inverse.
pub(super) fn sources(spec: &ReconSpec, shape: &Shape, transforms: &Transforms) -> [KernelSource; 3] {
    let half = shape.padded / 2;
    let spectra = include_str!("../../../../../kernels/fourier_spectra.cu");
    let gridding = include_str!("../../../../../kernels/fourier_grid.cu");
    let inverse = include_str!("../../../../../kernels/fourier_inverse.cu");
    [
        KernelSource::new("fourier_spectra.cu", spectra)
            .define("COLUMNS", shape.columns)
            .define("HALF", half)
            .define("FACTORS", transforms.rows.factors())
            .define("LANES", transforms.rows.sequences)
            .define("THREADS", transforms.rows.threads)
            .define("EDGE_PADDING", u8::from(spec.padding == Padding::Edge))
            .define("TILTED", u8::from(is_tilted(spec)))
            .define("MAX_BATCH", MAX_BATCH),
        KernelSource::new("fourier_grid.cu", gridding)
            .define("GRID", shape.grid())
            .define("HALF", half)
            .define("MAX_BATCH", MAX_BATCH)
            .define("WEIGHT_STEPS", WEIGHT_STEPS)
            .define("LISTED_TOGETHER", LISTED_TOGETHER),
        KernelSource::new("fourier_inverse.cu", inverse)
            .define("GRID", shape.grid())
            .define("SIZE", shape.columns)
            .define("FACTORS", transforms.grid.factors())
            .define("LANES", transforms.grid.sequences)
            .define("THREADS", transforms.grid.threads),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_large_volume() {
        let spec = ReconSpec { batch: 64, ..ReconSpec::new(2048, 2048, 1023.5) };
        let memory = Shape::new(&spec).memory();
        assert_eq!(memory.sums_bytes, 2560 * 2560 * 1024 * 8);
        assert!(memory.work_bytes < memory.sums_bytes / 14, "{memory:?}");
    }

    #[test]
    fn rows_that_are_too_long_are_refused() {
        let spec = ReconSpec::new(1, 1 << 16, 100.0);
        let text = Transforms::new(&spec, &Shape::new(&spec), 227 << 10).unwrap_err().to_string();
        assert!(text.contains("65536 columns") && text.contains("fbp"), "{text}");
    }
}
