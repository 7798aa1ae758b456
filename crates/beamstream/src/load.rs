//! Pipelines from files and from lines.

use std::path::Path;

use beamstream_graph::Graph;
use beamstream_node::Registry;

use crate::Error;

/// Reads a pipeline file, then changes it by `sets`, each `NODE.KEY=VALUE`. Variables come from the environment.
///
/// # Errors
/// [`Error::Read`] if there is no such file, [`Error::Graph`] with the places of all mistakes.
pub fn load_file(path: &Path, sets: &[impl AsRef<str>], registry: &Registry) -> Result<Graph, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(read)?;
    let graph = Graph::parse(&path.to_string_lossy(), &text, registry, &variable)?;
    changed(graph, sets, registry)
}

/// Reads a launch line, then changes it by `sets`, each `NODE.KEY=VALUE`. Variables come from the environment.
///
/// # Errors
/// [`Error::Graph`] with the columns of all mistakes.
pub fn load_line(line: &str, sets: &[impl AsRef<str>], registry: &Registry) -> Result<Graph, Error> {
    let graph = Graph::launch(line, registry, &variable)?;
    changed(graph, sets, registry)
}

fn changed(mut graph: Graph, sets: &[impl AsRef<str>], registry: &Registry) -> Result<Graph, Error> {
    for set in sets {
        graph.set(set.as_ref(), registry, &variable)?;
    }
    Ok(graph)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    const LINE: &str = "phantom_source size=32 ! null_sink";

    #[test]
    fn values_are_changed_and_slips_are_told() {
        let registry = registry();
        let graph = load_line(LINE, &["phantom_source.size=48"], &registry).unwrap();
        assert_eq!(graph.node("phantom_source").unwrap().parameters["size"], 48);
        let error = load_line(LINE, &["phantom_source.sise=48"], &registry).unwrap_err().to_string();
        assert!(error.contains("sise") && error.contains("'size'"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let none: [&str; 0] = [];
        let error = load_file(Path::new("nowhere/none.yaml"), &none, &registry()).unwrap_err();
        assert!(error.full_text().starts_with("cannot read nowhere/none.yaml: "), "{}", error.full_text());
    }
}
