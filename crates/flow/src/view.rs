//! What people see while a run goes on.

use std::sync::Arc;

use beamstream_node::Board;
use beamstream_node::prelude::*;

/// Shows its input to people in the live web page: slices as they grow, or the newest frame.
///
/// Give its edge the policy `latest`, so that looking never slows the run.
///
/// ```yaml
/// version: 1
/// nodes:
///   beam:   { kind: phantom_source, size: 64, angles: 90 }
///   right:  { kind: flat_field, input: beam }
///   volume: { kind: recon, input: right }
///   eyes:   { kind: view, input: { from: volume, when_full: latest } }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewConfig {
    /// Most images that are shown side by side.
    #[serde(default = "three")]
    pub images: usize,
}

fn three() -> usize {
    3
}

impl NodeConfig for ViewConfig {
    const KIND: &'static str = "view";
    const CLASS: KindClass = KindClass::Sink;
    const PREVIEWS: bool = true;
    type Node = ViewNode;

    fn build(self, cx: &BuildContext) -> Result<ViewNode, BuildError> {
        if !(1..=16).contains(&self.images) {
            return Err(BuildError::key("images", format!("expected 1 to 16, found {}", self.images)));
        }
        cx.board.open(&cx.node);
        Ok(ViewNode {
            name: cx.node.clone(),
            board: cx.board.clone(),
            images: self.images,
            content: Content::Frames,
            rows: Vec::new(),
            previews: false,
        })
    }
}

/// Pins the newest blocks to the board. In: frames or slices; previews are welcome.
pub struct ViewNode {
    name: String,
    board: Board,
    images: usize,
    content: Content,
    /// Slices that are shown where the node before makes no previews.
    rows: Vec<u64>,
    /// Whether the node before makes previews; then finished slices are left to it as well.
    previews: bool,
}

impl ViewNode {
    /// `images` rows spread evenly over the volume.
    fn spread(&self, rows: usize) -> Vec<u64> {
        let count = self.images.min(rows);
        (0..count).map(|i| ((2 * i + 1) * rows / (2 * count)) as u64).collect()
    }
}

impl Node for ViewNode {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        // One more, while the front end prepares an image that has just been replaced.
        Ok(Negotiated { keeps_blocks: self.images + 1, ..Negotiated::unchanged(header) })
    }

    fn begin(&mut self, header: &SeriesHeader, _out: &mut Outlet) -> Result<(), NodeError> {
        self.content = header.content;
        self.rows = self.spread(header.rows());
        self.previews = false;
        self.board.begin(&self.name, Arc::new(header.clone()));
        Ok(())
    }

    fn process(&mut self, block: Block, _out: &mut Outlet) -> Result<(), NodeError> {
        let number = block.meta.frame.number;
        match self.content {
            Content::Frames => self.board.pin(&self.name, 0, block),
            Content::Volume if block.meta.preview => {
                self.previews = true;
                self.board.pin(&self.name, number, block);
            }
            Content::Volume if !self.previews && self.rows.contains(&number) => {
                self.board.pin(&self.name, number, block);
            }
            Content::Volume => {}
        }
        Ok(())
    }

    fn end(&mut self, _summary: &SeriesSummary, _out: &mut Outlet) -> Result<(), NodeError> {
        // The images stay up until the next series: people look longest at a finished volume.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::Harness;
    use serde_json::json;

    #[test]
    fn the_newest_frame_is_on_the_board() {
        let mut node = Harness::<ViewConfig>::new(json!({}));
        node.series(&[1.0, 2.0, 5.0]);
        let view = node.board().snapshot().remove("node").unwrap();
        assert_eq!(view.images.len(), 1);
        assert_eq!(view.images[&0].block.elements::<f32>().unwrap()[0], 5.0);
    }

    #[test]
    fn buffers_on_the_board_are_part_of_the_plan() {
        let node = Harness::<ViewConfig>::new(json!({ "images": 2 }));
        assert_eq!(node.negotiate().unwrap().keeps_blocks, 3);
    }
}
