//! A look at what flows past.

use beamstream_core::{Element, ElementType};
use beamstream_node::prelude::*;

/// Hands everything on and writes a line about every n-th block into the log: number, type, shape, range of values.
///
/// ```yaml
/// version: 1
/// nodes:
///   beam:  { kind: phantom_source, size: 64, angles: 90 }
///   look:  { kind: tap, input: beam, every_blocks: 10 }
///   end:   { kind: null_sink, input: look }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TapConfig {
    /// A line for every so many blocks.
    #[serde(default = "one")]
    pub every_blocks: u64,
}

fn one() -> u64 {
    1
}

impl NodeConfig for TapConfig {
    const KIND: &'static str = "tap";
    const CLASS: KindClass = KindClass::Step;
    type Node = Tap;

    fn build(self, cx: &BuildContext) -> Result<Tap, BuildError> {
        if self.every_blocks == 0 {
            return Err(BuildError::key("every_blocks", "expected 1 or more, found 0"));
        }
        Ok(Tap { name: cx.node.clone(), every_blocks: self.every_blocks, seen: 0 })
    }
}

/// Hands blocks on as they are and tells about some of them. In: anything. Out: the same blocks.
pub struct Tap {
    name: String,
    every_blocks: u64,
    seen: u64,
}

impl Node for Tap {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }

    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        tracing::info!(node = self.name, series = %header.id, format = %header.format, "series begins");
        self.seen = 0;
        Ok(())
    }

    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        if self.seen.is_multiple_of(self.every_blocks) {
            let [low, high] = value_range(&block)?;
            tracing::info!(
                node = self.name,
                block = %block.meta.frame,
                role = %block.meta.role,
                angle_deg = block.meta.angle_rad.map(f64::to_degrees),
                low,
                high,
                "block"
            );
        }
        self.seen += 1;
        out.push(block)
    }

    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        tracing::info!(node = self.name, blocks = self.seen, "series ends");
        Ok(())
    }

    fn forwards(&self) -> bool {
        true
    }
}

/// Smallest and largest finite value.
fn value_range(block: &Block) -> Result<[f32; 2], NodeError> {
    fn of<T: Element>(values: &[T]) -> [f32; 2] {
        let finite = values.iter().map(|v| v.to_f32()).filter(|v| v.is_finite());
        finite.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)])
    }
    Ok(match block.format().element {
        ElementType::U8 => of(block.elements::<u8>()?),
        ElementType::U16 => of(block.elements::<u16>()?),
        ElementType::U32 => of(block.elements::<u32>()?),
        ElementType::I16 => of(block.elements::<i16>()?),
        ElementType::I32 => of(block.elements::<i32>()?),
        ElementType::F16 => of(block.elements::<beamstream_core::f16>()?),
        ElementType::F32 => of(block.elements::<f32>()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::Harness;
    use serde_json::json;

    #[test]
    fn blocks_pass_unchanged() {
        let mut node = Harness::<TapConfig>::new(json!({ "every_blocks": 2 }));
        node.series(&[3.0, 1.0, f32::NAN]);
        assert_eq!(node.first_pixels()[..2], [3.0, 1.0]);
        assert_eq!(node.blocks().len(), 3);
    }
}
