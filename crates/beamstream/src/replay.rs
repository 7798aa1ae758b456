//! A recording in the place of a detector.

use std::path::Path;

use beamstream_graph::Graph;
use beamstream_node::{KindClass, Registry};
use serde_json::{Value, json};

use crate::Error;

/// A pipeline that replays a recording: `pipeline` with the recording in the place of its source, or one that takes
/// the frames and keeps none. `speed` is relative to the recording; without it as fast as the pipeline takes it.
///
/// # Errors
/// [`Error::Option`] if the pipeline has not just one source, [`Error::Graph`] if it cannot be used with another one.
pub fn replay_graph(
    recording: &Path,
    speed: Option<f64>,
    pipeline: Option<&Graph>,
    registry: &Registry,
) -> Result<Graph, Error> {
    let is_source = |kind: &str| registry.get(kind).is_some_and(|info| info.class == KindClass::Source);
    let mut nodes = match pipeline.map(Graph::to_json) {
        Some(graph) => graph["nodes"].clone(),
        None => {
            json!({ "recording": { "kind": "replay_source" }, "end": { "kind": "null_sink", "input": "recording" } })
        }
    };
    let mut sources: Vec<&mut Value> = nodes
        .as_object_mut()
        .into_iter()
        .flat_map(|nodes| nodes.values_mut())
        .filter(|node| node["kind"].as_str().is_some_and(is_source))
        .collect();
    let [source] = sources.as_mut_slice() else {
        let message = format!("expected a pipeline with one source, found {}", sources.len());
        return Err(Error::Option { option: "pipeline", message });
    };
    **source = json!({ "kind": "replay_source", "path": recording.to_string_lossy() });
    if let Some(speed) = speed {
        source["speed"] = speed.into();
    }
    // References in paths and parameters were replaced by the environment already, or are meant as they are.
    let text = json!({ "version": 1, "nodes": nodes }).to_string().replace("${", "$${");
    let name = pipeline.map_or("replay", |graph| graph.place().name());
    Ok(Graph::parse(name, &text, registry, &|_no_variables| None)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load_line, registry};

    fn kinds(line: &str) -> Result<Vec<String>, String> {
        let registry = registry();
        let none: [&str; 0] = [];
        let graph = load_line(line, &none, &registry).unwrap();
        let graph = replay_graph(Path::new("a ${b}.tape"), Some(2.0), Some(&graph), &registry);
        let graph = graph.map_err(|error| error.full_text())?;
        let source = graph.nodes().iter().find(|node| node.kind == "replay_source").unwrap();
        assert_eq!(
            (&source.parameters["path"], &source.parameters["speed"]),
            (&json!("a ${b}.tape"), &json!(2.0))
        );
        Ok(graph.nodes().iter().map(|node| node.kind.clone()).collect())
    }

    #[test]
    fn the_recording_takes_the_place_of_the_source() {
        assert_eq!(
            kinds("zmq_source endpoint=tcp://127.0.0.1:1 ! flat_field ! null_sink"),
            Ok(["replay_source", "flat_field", "null_sink"].map(str::to_owned).to_vec())
        );
        let graph = replay_graph(Path::new("x"), None, None, &registry()).unwrap();
        assert_eq!(graph.nodes().len(), 2);
    }
}
