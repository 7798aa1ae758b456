//! Grey levels for integers, from a few slices.

use std::sync::Arc;

use beamstream_core::IndexRange;
use beamstream_cpu::percentiles;
use beamstream_engine::PlanOptions;
use beamstream_node::Registry;

use super::graph::Spec;
use super::{OutputRange, plan};
use crate::Error;

/// Slices that are looked at.
const SAMPLE_SLICES: u64 = 3;

/// The attenuations that become 0 and the highest integer.
pub(super) fn find(
    spec: &Spec<'_>,
    range: OutputRange,
    options: &PlanOptions,
    registry: &Arc<Registry>,
) -> Result<[f32; 2], Error> {
    let percents = match range {
        OutputRange::Values(levels) => return Ok(levels),
        OutputRange::Percentiles(percents) => percents,
    };
    let graph = spec.sample_graph(sample_rows(spec.rows, spec.options.bin as u64), registry)?;
    let plan = plan(&graph, options, registry)?;
    let start =
        |error: std::io::Error| Error::Recon(format!("the grey levels could not be looked at: {error}"));
    let mut handle = plan.start().map_err(start)?;
    let report = handle.wait();
    let mut voxels = Vec::new();
    for image in handle.board().snapshot().values().flat_map(|view| view.images.values()) {
        let slice: &[f32] = image.block.elements().map_err(|error| Error::Recon(error.to_string()))?;
        voxels.extend_from_slice(slice);
    }
    match percentiles(&voxels, &percents)[..] {
        [low, high] if low < high => Ok([low, high]),
        _ => {
            let why = report.errors.first().map_or("its slices are even", |error| &error.message);
            let message = format!("the percentiles of the scan cannot be told: {why}");
            Err(Error::Option { option: "range", message })
        }
    }
}

/// Rows in the middle, whole binned ones.
fn sample_rows(rows: IndexRange, bin: u64) -> IndexRange {
    let binned = rows.len() / bin;
    let count = binned.min(SAMPLE_SLICES);
    let first = rows.first + (binned - count) / 2 * bin;
    IndexRange { first, end: first + count * bin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_from_the_middle() {
        let rows = |first, end| IndexRange { first, end };
        assert_eq!(sample_rows(rows(0, 9), 1), rows(3, 6));
        assert_eq!(sample_rows(rows(4, 5), 1), rows(4, 5));
        assert_eq!(sample_rows(rows(10, 31), 2), rows(16, 22));
    }
}
