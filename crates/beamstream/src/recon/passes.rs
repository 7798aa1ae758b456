//! How many rows are reconstructed at once.

use std::sync::Arc;

use beamstream_engine::{Plan, PlanError, PlanOptions};
use beamstream_node::Registry;

use super::graph::Spec;
use super::no_plan;
use crate::Error;

/// Bands of a multiple of this many rows keep the vector lanes of a reconstruction full.
const ROWS_TOGETHER: usize = 16;
/// The same on a GPU, whose kernels take so many rows together.
const ROWS_TOGETHER_ON_A_GPU: usize = 64;
/// Bands on a GPU, where each keeps [`ROWS_TOGETHER_ON_A_GPU`]: copies to and from a GPU go at full speed in both
/// directions at once, but the slices of a band can leave only when all its projections have come. With several bands
/// one leaves while the next comes, and only the first has to come, and the last to leave, alone.
const BANDS_ON_A_GPU: usize = 8;
/// Fewer rows than this are not worth several bands on a GPU.
const MIN_ROWS_OF_BANDS: usize = 256;

/// The rows of one pass, if not all go at once, and the number of passes.
///
/// Memory is what the engine itself proves for a plan, so nothing is estimated twice.
pub(super) fn fit(
    spec: &Spec<'_>,
    options: &PlanOptions,
    registry: &Arc<Registry>,
) -> Result<(Option<usize>, usize), Error> {
    let rows = spec.rows.len() as usize / spec.options.bin.max(1);
    let fits = |band_rows: Option<usize>| -> Result<bool, Error> {
        let graph = Spec { band_rows, ..spec.clone() }.graph(registry)?;
        match Plan::new(&graph, registry, options) {
            Ok(_) => Ok(true),
            Err(PlanError::Memory { .. }) => Ok(false),
            Err(error) => Err(no_plan(error)),
        }
    };
    let on_gpu = !options.devices.is_empty();
    let together = if on_gpu { ROWS_TOGETHER_ON_A_GPU } else { ROWS_TOGETHER };
    let wanted = if on_gpu { band_on_gpu(rows) } else { None };
    if fits(wanted)? {
        return Ok((wanted, wanted.map_or(1, |band| rows.div_ceil(band))));
    }
    let band_rows = largest(wanted.unwrap_or(rows), |band| fits(Some(band)))?;
    // If not even one row fits, the plan for it says what is missing.
    let band_rows = if band_rows > together { band_rows / together * together } else { band_rows.max(1) };
    Ok((Some(band_rows), rows.div_ceil(band_rows)))
}

/// Rows of a band on a GPU that has memory enough; `None` for all at once.
fn band_on_gpu(rows: usize) -> Option<usize> {
    let whole = rows / BANDS_ON_A_GPU / ROWS_TOGETHER_ON_A_GPU * ROWS_TOGETHER_ON_A_GPU;
    (rows >= MIN_ROWS_OF_BANDS).then_some(whole.max(ROWS_TOGETHER_ON_A_GPU))
}

/// The largest number up to `most` that fits, where all smaller ones fit too; 0 if none does.
fn largest(most: usize, fits: impl Fn(usize) -> Result<bool, Error>) -> Result<usize, Error> {
    let (mut fitting, mut too_many) = (0, most + 1);
    while too_many - fitting > 1 {
        let middle = fitting + (too_many - fitting) / 2;
        if fits(middle)? {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_on_a_gpu_are_whole_and_several() {
        for (rows, band) in
            [(200, None), (256, Some(64)), (1000, Some(64)), (2048, Some(256)), (5000, Some(576))]
        {
            assert_eq!(band_on_gpu(rows), band, "{rows} rows");
        }
    }

    #[test]
    fn the_largest_that_fits_is_found() {
        for limit in [0, 1, 7, 63, 64] {
            assert_eq!(largest(64, |rows| Ok(rows <= limit)).unwrap(), limit);
        }
    }
}
