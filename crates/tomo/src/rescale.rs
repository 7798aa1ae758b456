//! Fewer bits for slices.

use std::sync::Arc;

use beamstream_node::prelude::*;
use beamstream_ops::Backend;

use crate::op_failed;

/// A range of values, written `LO:HI`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// Becomes 0.
    pub low: f32,
    /// Becomes the highest integer.
    pub high: f32,
}

impl std::str::FromStr for ValueRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("'{text}' is no range of values: expected LO:HI with LO below HI, for example 0:0.05");
        let (low, high) = text.split_once(':').ok_or_else(wrong)?;
        let parse = |part: &str| part.trim().parse::<f32>().ok().filter(|value| value.is_finite());
        match (parse(low), parse(high)) {
            (Some(low), Some(high)) if low < high => Ok(Self { low, high }),
            _ => Err(wrong()),
        }
    }
}

impl<'de> Deserialize<'de> for ValueRange {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Element types that `rescale` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputType {
    /// As it is.
    F32,
    /// Half precision; the range does not touch it.
    F16,
    /// 0 to 65535.
    U16,
    /// 0 to 255.
    U8,
}

impl OutputType {
    /// The element type.
    pub fn element(self) -> ElementType {
        match self {
            Self::F32 => ElementType::F32,
            Self::F16 => ElementType::F16,
            Self::U16 => ElementType::U16,
            Self::U8 => ElementType::U8,
        }
    }
}

/// Turns f32 into fewer bits: LO becomes 0, HI the highest integer, values are rounded, what lies outside is cut.
///
/// ```yaml
/// version: 1
/// nodes:
///   scan:    { kind: phantom_source, size: 64, angles: 90 }
///   correct: { kind: flat_field, input: scan }
///   volume:  { kind: recon, input: correct }
///   small:   { kind: rescale, input: volume, dtype: u8, range: "0:0.05" }
///   end:     { kind: null_sink, input: small }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RescaleConfig {
    /// Element type to write.
    pub dtype: OutputType,
    /// Values that become 0 and the highest integer, `"LO:HI"`; needed for integers. Unit: that of the input.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub range: Option<ValueRange>,
}

impl NodeConfig for RescaleConfig {
    const KIND: &'static str = "rescale";
    const CLASS: KindClass = KindClass::Step;
    const COMPUTES: bool = true;
    type Node = Rescale;

    fn build(self, cx: &BuildContext) -> Result<Rescale, BuildError> {
        let element = self.dtype.element();
        let range = match self.range {
            Some(range) => [range.low, range.high],
            None if element.integer_max().is_none() => [0.0, 1.0],
            None => {
                return Err(BuildError::key("range", format!("{element} needs a range LO:HI, found none")));
            }
        };
        Ok(Rescale { element, range, ops: cx.ops.clone() })
    }
}

/// In: f32, frames or slices. Out: the same shape with fewer bits.
pub struct Rescale {
    element: ElementType,
    range: [f32; 2],
    ops: Arc<dyn Backend>,
}

impl Node for Rescale {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        if header.format.element != ElementType::F32 {
            return Err(NodeError::config(format!("expected f32, found {}", header.format.element)));
        }
        let mut output = header.clone();
        output.format = header.format.with_element(self.element);
        Ok(Negotiated::to(output))
    }

    fn begin(&mut self, _header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    fn process(&mut self, block: Block, out: &mut Outlet) -> Result<(), NodeError> {
        let mut lease = out.lease(block.format().with_element(self.element))?;
        self.ops.rescale(&block, self.range, &mut lease).map_err(op_failed)?;
        out.push(lease.freeze(block.meta))
    }

    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::Harness;
    use serde_json::json;

    #[test]
    fn the_range_is_stretched_over_the_integers() {
        let mut node = Harness::<RescaleConfig>::new(json!({ "dtype": "u8", "range": "-1:1" }));
        node.series(&[-2.0, -1.0, 0.0, 1.0, 7.0]);
        let first: Vec<u8> = node.blocks().iter().map(|block| block.elements::<u8>().unwrap()[0]).collect();
        assert_eq!(first, [0, 0, 128, 255, 255]);
    }

    #[test]
    fn integers_need_a_range() {
        assert!(Harness::<RescaleConfig>::refusal(json!({ "dtype": "u16" })).contains("range"));
        assert!(Harness::<RescaleConfig>::refusal(json!({ "dtype": "u16", "range": "5" })).contains("'5'"));
        assert!(Harness::<RescaleConfig>::refusal(json!({ "dtype": "u16", "range": "5:1" })).contains("5:1"));
    }
}
