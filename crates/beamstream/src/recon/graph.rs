//! The pipeline of a reconstruction.

use beamstream_core::{ElementType, IndexRange};
use beamstream_graph::Graph;
use beamstream_io::OutputKind;
use beamstream_node::Registry;
use beamstream_ops::Padding;
use serde_json::{Map, Value, json};

use super::{ReconOptions, sink_kind, without_places};
use crate::Error;

/// All that the pipeline is made of.
#[derive(Clone)]
pub(super) struct Spec<'a> {
    pub(super) options: &'a ReconOptions,
    pub(super) sink: OutputKind,
    /// Rotation axis in columns of the detector as it is.
    pub(super) axis_px: f64,
    /// Detector rows.
    pub(super) rows: IndexRange,
    /// Attenuations that become 0 and the highest integer.
    pub(super) levels: Option<[f32; 2]>,
    /// Rows of one pass, if there are several.
    pub(super) band_rows: Option<usize>,
}

/// Whether voxels of this type need grey levels to be mapped.
pub(super) fn is_integer(element: ElementType) -> bool {
    element.integer_max().is_some()
}

impl Spec<'_> {
    /// `scan_source ! flat_field ! recon ! [rescale !] sink`
    pub(super) fn graph(&self, registry: &Registry) -> Result<Graph, Error> {
        let mut nodes = self.up_to_volume();
        let mut last = "volume";
        if self.options.element != ElementType::F32 {
            let mut rescale =
                json!({ "kind": "rescale", "input": last, "dtype": self.options.element.name() });
            if let Some([low, high]) = self.levels {
                rescale["range"] = format!("{low}:{high}").into();
            }
            nodes.insert("convert".to_owned(), rescale);
            last = "convert";
        }
        let path = text(&self.options.out.to_string_lossy());
        nodes.insert(
            "output".to_owned(),
            json!({ "kind": sink_kind(self.sink), "input": last, "path": path }),
        );
        parse(&nodes, registry)
    }

    /// A few rows, on show when they are reconstructed: for looking at grey levels.
    pub(super) fn sample_graph(&self, rows: IndexRange, registry: &Registry) -> Result<Graph, Error> {
        let mut nodes = Self { rows, band_rows: None, ..self.clone() }.up_to_volume();
        let images = rows.len();
        nodes.insert("sample".to_owned(), json!({ "kind": "view", "input": "volume", "images": images }));
        parse(&nodes, registry)
    }

    fn up_to_volume(&self) -> Map<String, Value> {
        let options = self.options;
        let mut nodes = Map::new();
        nodes.insert("scan".to_owned(), self.source());
        nodes.insert("correct".to_owned(), json!({ "kind": "flat_field", "input": "scan" }));
        let mut volume = json!({
            "kind": "recon",
            "input": "correct",
            "method": options.method.name(),
            "filter": options.filter.name(),
            "rotation_axis": self.axis_px,
        });
        if options.padding != Padding::default() {
            volume["pad"] = options.padding.name().into();
        }
        nodes.insert("volume".to_owned(), volume);
        nodes
    }

    fn source(&self) -> Value {
        let options = self.options;
        let mut source = json!({ "kind": "scan_source", "path": text(&options.scan.to_string_lossy()) });
        let places = &options.places;
        for (key, place) in [
            ("data", &places.data),
            ("flats", &places.flats),
            ("darks", &places.darks),
            ("angles", &places.angles),
        ] {
            if let Some(place) = place {
                source[key] = text(place);
            }
        }
        source["rows"] = self.rows.to_string().into();
        if let Some(columns) = options.columns {
            source["columns"] = columns.to_string().into();
        }
        if options.bin > 1 {
            source["bin"] = options.bin.into();
        }
        if let Some(band_rows) = self.band_rows {
            source["band_rows"] = band_rows.into();
        }
        source
    }
}

/// A text in which nothing is a variable.
fn text(text: &str) -> Value {
    text.replace("${", "$${").into()
}

fn parse(nodes: &Map<String, Value>, registry: &Registry) -> Result<Graph, Error> {
    let file = json!({ "version": 1, "nodes": nodes }).to_string();
    Graph::parse("recon", &file, registry, &|_no_variables| None).map_err(|errors| without_places(&errors))
}
