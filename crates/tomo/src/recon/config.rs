//! Settings of `recon`, as a pipeline file spells them.

use beamstream_node::prelude::*;
use beamstream_ops::{Filter, Method, Padding, Storage};

use crate::axis::AxisSetting;

/// Reconstructs slices from projections, adding each projection as it arrives.
///
/// When the last projection is in, only the end of the computation is left. Any angles serve: half a turn, a full
/// one, golden, irregular, with gaps; projections weigh half of the gaps to their neighbours among the announced
/// angles, and for those that never come the sum is scaled. The result does not depend on the order in which
/// projections arrive, as long as none comes more than four batches out of place.
///
/// ```yaml
/// version: 1
/// nodes:
///   scan:    { kind: phantom_source, size: 64, angles: 90 }
///   correct: { kind: flat_field, input: scan }
///   volume:  { kind: recon, input: correct, method: fourier, filter: shepp-logan, rotation_axis: 31.5 }
///   end:     { kind: null_sink, input: volume }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconConfig {
    /// How to reconstruct.
    #[serde(default)]
    pub method: Method,
    /// Filter of the projections.
    #[serde(default)]
    pub filter: Filter,
    /// Rotation axis in detector columns, the first column having its centre at 0: a number, two numbers (at the
    /// first and last row, for a tilted axis), or `auto`: found from two projections half a turn apart. A change
    /// takes effect at once where the projections are kept (see `keep`), else with the next series. Unit: detector
    /// columns.
    #[serde(default = "auto", alias = "center")]
    #[schemars(extend("x-aliases" = ["center"]))]
    pub rotation_axis: AxisSetting,
    /// Rows of the frames to reconstruct, `first:end`; all if left out.
    #[serde(default)]
    pub rows: Option<IndexRange>,
    /// What stands beside a projection while it is filtered: `edge` for samples wider than the detector.
    #[serde(default)]
    pub pad: Padding,
    /// Looks at chosen slices while the scan goes on.
    #[serde(default)]
    pub preview: PreviewConfig,
    /// Projections that are added in one go; what suits the device if left out.
    #[serde(default)]
    pub batch: Option<usize>,
    /// How a GPU keeps intermediate results: `f16` is faster for `fbp` and costs up to 0.1 % of the range.
    #[serde(default)]
    pub storage: Storage,
    /// Which corrected projections are kept, and with them the freedom to move the axis or take another filter:
    /// looks and volume are then made again at once, also after the last projection until the next series begins.
    #[serde(default)]
    pub keep: Keep,
    /// Most memory for projections that are kept where neither their number nor their angles are announced; with
    /// them the weights are corrected at the end. Unit: bytes.
    #[serde(default = "one_gibibyte")]
    pub store_bytes: u64,
}

/// Which corrected projections are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Those without which the volume cannot be made: until the axis is found, or all angles are known.
    #[default]
    Needed,
    /// All, in the memory of the device that computes: four bytes a pixel of the scan.
    All,
}

fn auto() -> AxisSetting {
    AxisSetting::Auto
}

fn one_gibibyte() -> u64 {
    1 << 30
}

/// Looks at chosen slices while the scan goes on, for `view` nodes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewConfig {
    /// A look after every so many projections; if left out, as often as it costs no more than a tenth of the time.
    #[serde(default)]
    pub every_projections: Option<u64>,
    /// Rows of the slices to show, counted among the reconstructed ones; three spread over the volume if left out.
    #[serde(default)]
    pub slices: Vec<usize>,
}

impl PreviewConfig {
    /// The rows to show of `rows`.
    pub(crate) fn rows(&self, rows: usize) -> Vec<usize> {
        if self.slices.is_empty() {
            let count = rows.min(3);
            return (0..count).map(|i| (2 * i + 1) * rows / (2 * count)).collect();
        }
        self.slices.iter().copied().filter(|row| *row < rows).collect()
    }
}
