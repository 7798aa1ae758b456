//! Makes the nodes of a graph from values with places, and notes each mistake on the way.

use std::collections::HashMap;

use beamstream_node::{KindInfo, Registry};
use serde_json::{Map, Value};

use crate::input::{self, INPUT_PORT, InputSpec, expected};
use crate::kinds::Parameters;
use crate::tree::{Entry, Located, Tree};
use crate::{Cause, Errors, GraphError, NodeSpec, Place, links, nearest};

/// Most nodes of a graph.
const MAX_NODES: usize = 1000;

/// Finds the map of nodes in a whole file.
pub(crate) fn nodes_of_file(file: Located, errors: &mut Vec<GraphError>) -> Result<Located, GraphError> {
    let place = file.place.clone();
    let Tree::Map(entries) = file.tree else {
        return Err(expected("a pipeline file", "a map with the keys version and nodes", &file));
    };
    let (mut version, mut nodes) = (None, None);
    for entry in entries {
        match entry.key.as_str() {
            "version" => version = Some(entry.value),
            "nodes" => nodes = Some(entry.value),
            _ => {
                let nearest = nearest(&entry.key, ["version", "nodes"]);
                let cause = Cause::UnknownKey { key: entry.key.clone(), inside: "a pipeline file" };
                errors.push(cause.at(&entry.key_place).or(nearest));
            }
        }
    }
    let missing = |key| Cause::Missing { key, inside: "a pipeline file".to_owned() }.at(&place);
    match version {
        None => errors.push(missing("version")),
        Some(version) if version.as_scalar().and_then(Value::as_u64) == Some(1) => {}
        Some(version) => errors.push(Cause::Version { found: version.found() }.at(&version.place)),
    }
    nodes.ok_or_else(|| missing("nodes"))
}

/// Makes the nodes and checks how they are joined. `tree` maps ids to nodes; in it, other spellings of parameters are
/// replaced by the names that the kinds read.
pub(crate) fn assemble(
    tree: &mut Located,
    registry: &Registry,
    mut errors: Vec<GraphError>,
) -> Result<Vec<NodeSpec>, Errors> {
    let nodes = match &mut tree.tree {
        Tree::Map(entries) if entries.len() > MAX_NODES => {
            errors.push(Cause::Limit { what: "nodes", limit: MAX_NODES }.at(&tree.place));
            Vec::new()
        }
        Tree::Map(entries) if !entries.is_empty() => {
            entries.iter_mut().filter_map(|entry| node(entry, registry, &mut errors)).collect()
        }
        _ => {
            errors.push(expected("'nodes'", "a map of nodes by their ids, one at least", tree));
            Vec::new()
        }
    };
    links::check(&nodes, tree, registry, &mut errors);
    if errors.is_empty() { Ok(nodes) } else { Err(Errors::new(errors)) }
}

fn node(entry: &mut Entry, registry: &Registry, errors: &mut Vec<GraphError>) -> Option<NodeSpec> {
    let id = entry.key.clone();
    if !is_node_id(&id) {
        errors.push(Cause::NodeId { id: id.clone() }.at(&entry.key_place));
    }
    if !matches!(entry.value.tree, Tree::Map(_)) {
        errors.push(expected(&format!("node '{id}'"), "a map with the key kind", &entry.value));
        return None;
    }
    let Some(kind) = entry.value.child("kind") else {
        errors.push(Cause::Missing { key: "kind", inside: format!("node '{id}'") }.at(&entry.key_place));
        return None;
    };
    let Some(kind_name) = kind.as_text().map(str::to_owned) else {
        errors.push(expected("'kind'", "the name of a kind", kind));
        return None;
    };
    let info = registry.get(&kind_name);
    if info.is_none() {
        let known = registry.iter().map(|info| info.kind);
        let cause = Cause::UnknownKind { kind: kind_name.clone() };
        errors.push(cause.at(&kind.place).or(nearest(&kind_name, known)));
    }
    let inputs = inputs(&entry.value, errors);
    let parameters = parameters(&mut entry.value, info, errors);
    Some(NodeSpec { id, kind: kind_name, parameters, inputs })
}

fn is_node_id(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
}

/// Whether a key of a node is the same for all kinds.
pub(crate) fn is_common_key(key: &str) -> bool {
    matches!(key, "kind" | "input" | "inputs")
}

fn inputs(node: &Located, errors: &mut Vec<GraphError>) -> Vec<InputSpec> {
    if let (Some(_), Some(entry)) = (node.entry("input"), node.entry("inputs")) {
        let message = "'input' and 'inputs' exclude each other".to_owned();
        errors.push(Cause::Syntax(message).at(&entry.key_place));
    }
    let single = node.child("input").and_then(|value| input::read(INPUT_PORT, value, errors));
    let by_port = match node.child("inputs").map(|ports| (ports, &ports.tree)) {
        Some((_, Tree::Map(entries))) => {
            entries.iter().filter_map(|entry| input_at_port(entry, errors)).collect()
        }
        Some((ports, _)) => {
            errors.push(expected("'inputs'", "a map of nodes by port", ports));
            Vec::new()
        }
        None => Vec::new(),
    };
    single.into_iter().chain(by_port).collect()
}

fn input_at_port(entry: &Entry, errors: &mut Vec<GraphError>) -> Option<InputSpec> {
    if entry.key != INPUT_PORT {
        let cause = Cause::UnknownPort { port: entry.key.clone(), expected: INPUT_PORT };
        errors.push(cause.at(&entry.key_place));
    }
    input::read(INPUT_PORT, &entry.value, errors)
}

fn parameters(
    node: &mut Located,
    info: Option<&KindInfo>,
    errors: &mut Vec<GraphError>,
) -> Map<String, Value> {
    let Tree::Map(entries) = &mut node.tree else {
        return Map::new();
    };
    let mut parameters = Map::new();
    let mut places: HashMap<String, Place> = HashMap::new();
    for entry in entries.iter_mut().filter(|entry| !is_common_key(&entry.key)) {
        if let Some(info) = info {
            match parameter_name(info, &entry.key) {
                Ok(name) => name.clone_into(&mut entry.key),
                Err(error) => errors.push(error.at(&entry.key_place).or(nearest_parameter(info, &entry.key))),
            }
        }
        let value = entry.value.to_json();
        if parameters.insert(entry.key.clone(), value).is_some() {
            let first_line = places.get(&entry.key).map_or(0, Place::line);
            errors.push(Cause::Duplicate { key: entry.key.clone(), first_line }.at(&entry.key_place));
        }
        places.entry(entry.key.clone()).or_insert_with(|| entry.key_place.clone());
    }
    parameters
}

/// The name under which a kind reads the parameter that is spelled `key`.
pub(crate) fn parameter_name(info: &KindInfo, key: &str) -> Result<String, Cause> {
    let known = Parameters::of(info);
    if let Some(name) = known.as_ref().and_then(|known| known.name(key)) {
        return Ok(name.to_owned());
    }
    if known.is_some_and(|known| known.are_complete()) {
        return Err(Cause::UnknownParameter { key: key.to_owned(), kind: info.kind.to_owned() });
    }
    Ok(key.to_owned())
}

fn nearest_parameter<'a>(info: &'a KindInfo, key: &str) -> Option<&'a str> {
    let known = Parameters::of(info)?;
    nearest(key, known.spellings().chain(["kind", "input", "inputs"]))
}
