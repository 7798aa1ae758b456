//! Looking at a pipeline that has no eyes.

use beamstream_graph::Graph;
use beamstream_node::{KindClass, Registry};

use crate::Error;

/// The same pipeline with a `view` behind each reconstruction; without one, behind each source.
///
/// # Errors
/// [`Error::Graph`] if the pipeline cannot be read back, which would be a mistake of this program.
pub fn with_views(graph: &Graph, registry: &Registry) -> Result<Graph, Error> {
    let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<&str> {
        graph.nodes().iter().filter(|node| wanted(&node.kind)).map(|node| node.id.as_str()).collect()
    };
    let mut seen = of(&|kind| kind == "recon");
    if seen.is_empty() {
        seen = of(&|kind| registry.get(kind).is_some_and(|info| info.class == KindClass::Source));
    }
    let mut text = graph.to_yaml();
    for id in seen {
        let view = free_id(graph, &format!("view-{id}"));
        let lines =
            format!("  \"{view}\":\n    kind: view\n    input: {{from: \"{id}\", when_full: latest}}\n");
        text.push_str(&lines);
    }
    Ok(Graph::parse(graph.place().name(), &text, registry, &|_no_variables| None)?)
}

/// The name, longer if a node has it already.
fn free_id(graph: &Graph, name: &str) -> String {
    let mut id = name.to_owned();
    while graph.node(&id).is_some() {
        id.push('_');
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load_line, registry};

    fn seen(line: &str) -> Vec<(String, String)> {
        let registry = registry();
        let none: [&str; 0] = [];
        let graph = with_views(&load_line(line, &none, &registry).unwrap(), &registry).unwrap();
        let views = graph.nodes().iter().filter(|node| node.kind == "view");
        views.map(|node| (node.id.clone(), node.inputs[0].from_node.clone())).collect()
    }

    #[test]
    fn reconstructions_are_looked_at_first() {
        let pair = |id: &str, from: &str| (id.to_owned(), from.to_owned());
        assert_eq!(seen("phantom_source ! flat_field ! recon ! null_sink"), [pair("view-recon", "recon")]);
        assert_eq!(
            seen("phantom_source ! null_sink name=view-phantom_source"),
            [pair("view-phantom_source_", "phantom_source")]
        );
    }
}
