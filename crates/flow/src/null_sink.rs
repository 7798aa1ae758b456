//! The end of a branch that keeps nothing.

use beamstream_node::prelude::*;

/// Takes every block and keeps none: for measuring, and for pipelines that only show.
///
/// ```yaml
/// version: 1
/// nodes:
///   beam: { kind: phantom_source, size: 64, angles: 90 }
///   end:  { kind: null_sink, input: beam }
/// ```
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NullSinkConfig {}

impl NodeConfig for NullSinkConfig {
    const KIND: &'static str = "null_sink";
    const CLASS: KindClass = KindClass::Sink;
    type Node = NullSink;

    fn build(self, _cx: &BuildContext) -> Result<NullSink, BuildError> {
        Ok(NullSink)
    }
}

/// Takes every block and keeps none. In: anything.
pub struct NullSink;

impl Node for NullSink {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }

    fn begin(&mut self, _header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    fn process(&mut self, _block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
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
    fn every_buffer_comes_back() {
        let mut node = Harness::<NullSinkConfig>::new(json!({}));
        node.series(&[1.0, 2.0]);
        assert!(node.blocks().is_empty());
        assert_eq!(node.input_buffers_out(), 0);
    }
}
