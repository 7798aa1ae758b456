//! How many rows fit memory at once.

use std::sync::Arc;

use beamstream_node::Registry;

use super::graph::Spec;
use super::plan;
use crate::{Error, Options};

/// Bands of a multiple of this many rows keep the vector lanes of a reconstruction full.
const ROWS_TOGETHER: usize = 16;

/// The rows of one pass, if not all fit at once, and the number of passes.
///
/// Memory is what the engine itself proves for a plan, so nothing is estimated twice.
pub(super) fn fit(
    spec: &Spec<'_>,
    run: &Options,
    registry: &Arc<Registry>,
) -> Result<(Option<usize>, usize), Error> {
    let limit = run.memory_limit_bytes();
    let rows = spec.rows.len() as usize / spec.options.bin.max(1);
    let unlimited = Options { memory_bytes: Some(u64::MAX), ..run.clone() };
    let need = |band_rows: Option<usize>| -> Result<u64, Error> {
        let graph = Spec { band_rows, ..spec.clone() }.graph(registry)?;
        Ok(plan(&graph, &unlimited, registry)?.explain().memory.host_bytes.unwrap_or(0))
    };
    if need(None)? <= limit {
        return Ok((None, 1));
    }
    let band_rows = largest(rows, |band| Ok(need(Some(band))? <= limit))?;
    // If not even one row fits, the plan for it says what is missing.
    let band_rows =
        if band_rows > ROWS_TOGETHER { band_rows / ROWS_TOGETHER * ROWS_TOGETHER } else { band_rows.max(1) };
    Ok((Some(band_rows), rows.div_ceil(band_rows)))
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
    fn the_largest_that_fits_is_found() {
        for limit in [0, 1, 7, 63, 64] {
            assert_eq!(largest(64, |rows| Ok(rows <= limit)).unwrap(), limit);
        }
    }
}
