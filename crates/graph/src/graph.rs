//! The one data model of pipelines.

use beamstream_node::Registry;
use serde_json::{Map, Value, json};

use crate::assemble::{assemble, nodes_of_file};
use crate::place::source;
use crate::scalar::Environment;
use crate::tree::Located;
use crate::{Cause, Errors, GraphError, InputSpec, Place, launch, nearest, set, write, yaml};

/// A node of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSpec {
    /// Its name, unique in the graph.
    pub id: String,
    /// What it does.
    pub kind: String,
    /// Its parameters, by the names that the kind reads.
    pub parameters: Map<String, Value>,
    /// What feeds it: nothing for a source.
    pub inputs: Vec<InputSpec>,
}

/// The nodes of a pipeline and how they are joined.
///
/// Every graph that exists is sound as far as can be told without data: kinds, parameters, ids and ports are known,
/// sources alone have no input, nothing hangs on a sink, and blocks cannot go in a circle. Whether parameters have
/// usable values is up to the kinds; [`error_at`](Self::error_at) says where a value stands that they refuse.
///
/// Two graphs are equal if their nodes are, wherever these stand.
#[derive(Debug, Clone)]
pub struct Graph {
    nodes: Vec<NodeSpec>,
    tree: Located,
}

impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.nodes == other.nodes
    }
}

impl Graph {
    /// Reads a pipeline file, YAML or JSON, that people know as `name`. Variables are looked up in `environment`.
    ///
    /// # Errors
    /// All mistakes of the file with their places; if it cannot be read to its end, those up to there.
    pub fn parse(
        name: &str,
        text: &str,
        registry: &Registry,
        environment: Environment<'_>,
    ) -> Result<Self, Errors> {
        let source = source(name, text);
        let mut errors = Vec::new();
        let file = yaml::read(&source, 0..text.len(), environment, &mut errors);
        let nodes = file.and_then(|file| {
            let empty = || {
                let message = "the file is empty: expected 'version: 1' and 'nodes'".to_owned();
                Cause::Syntax(message).at(&Place::new(&source, 0..0))
            };
            nodes_of_file(file.ok_or_else(empty)?, &mut errors)
        });
        match nodes {
            Ok(tree) => Self::from_tree(tree, registry, errors),
            Err(error) => {
                errors.push(error);
                Err(Errors::new(errors))
            }
        }
    }

    /// Reads a launch line: `phantom_source size=64 ! flat_field ! [recon ! npy_sink path=v.npy, null_sink]`.
    ///
    /// `!` joins two nodes, `[…, …]` ends the line in branches. Values are typed as in YAML; lists and maps stand in
    /// brackets and braces, texts with blanks in quotes. `name=` sets a node's id, which is its kind otherwise
    /// (`recon`, `recon_2`). The keys of an input (`when_full=latest`) may stand behind the node that is fed. Where no
    /// kind has the name, `_source` is added to the first word of a line and `_sink` to the others.
    ///
    /// # Errors
    /// All mistakes with their columns.
    pub fn launch(line: &str, registry: &Registry, environment: Environment<'_>) -> Result<Self, Errors> {
        let mut errors = Vec::new();
        match launch::read(line, registry, environment, &mut errors) {
            Ok(tree) => Self::from_tree(tree, registry, errors),
            Err(error) => {
                errors.push(error);
                Err(Errors::new(errors))
            }
        }
    }

    fn from_tree(mut tree: Located, registry: &Registry, errors: Vec<GraphError>) -> Result<Self, Errors> {
        let nodes = assemble(&mut tree, registry, errors)?;
        Ok(Self { nodes, tree })
    }

    /// Changes one value: `node.key=value`, deeper keys behind further dots, the value typed as in YAML. Keys of the
    /// input can be set too (`view.input.when_full=latest`).
    ///
    /// # Errors
    /// All mistakes that the graph would have then; it stays as it was.
    pub fn set(
        &mut self,
        assignment: &str,
        registry: &Registry,
        environment: Environment<'_>,
    ) -> Result<(), Errors> {
        let mut tree = self.tree.clone();
        set::set(&mut tree, assignment, registry, environment)?;
        *self = Self::from_tree(tree, registry, Vec::new())?;
        Ok(())
    }

    /// The nodes in the order of the file.
    pub fn nodes(&self) -> &[NodeSpec] {
        &self.nodes
    }

    /// The node with that id.
    pub fn node(&self, id: &str) -> Option<&NodeSpec> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// Where the nodes stand: the name and the text of the file are there too.
    pub fn place(&self) -> &Place {
        &self.tree.place
    }

    /// An error about a value, placed where the value stands, or else what holds it. `path` leads from the node to the
    /// value, by keys and, in lists, numbers; an empty one means the node.
    ///
    /// The message gets the path in front, the value that was found if it does not show it, and the nearest name if it
    /// is serde's message about an unknown one.
    pub fn error_at(&self, node_id: &str, path: &[String], message: &str) -> GraphError {
        let Some(entry) = self.tree.entry(node_id) else {
            return value_error(node_id, path, message.to_owned()).at(&self.tree.place);
        };
        let (mut value, mut place, mut depth) = (&entry.value, &entry.key_place, 0);
        while let Some(child) = path.get(depth).and_then(|key| value.child(key)) {
            (value, place, depth) = (child, &child.place, depth + 1);
        }
        let unknown = UnknownName::of(message);
        if let Some(entry) = unknown.as_ref().and_then(|unknown| value.entry(unknown.name)) {
            place = &entry.key_place;
        }
        let mut message = message.to_owned();
        let shown = value.as_text().is_none_or(|text| message.contains(text));
        if depth == path.len() && depth > 0 && !shown {
            message = format!("{message}, found {}", value.found());
        }
        let nearest = unknown.and_then(|unknown| nearest(unknown.name, unknown.known));
        value_error(node_id, path, message).at(place).or(nearest)
    }

    /// The graph as the value that a JSON pipeline file holds.
    pub fn to_json(&self) -> Value {
        let nodes: Map<_, _> = self.nodes.iter().map(|node| (node.id.clone(), write::node(node))).collect();
        json!({ "version": 1, "nodes": nodes })
    }

    /// The graph as a pipeline file that is read back as an equal graph. Variables stand in it with their values.
    pub fn to_yaml(&self) -> String {
        write::yaml(&self.nodes)
    }
}

fn value_error(node_id: &str, path: &[String], message: String) -> Cause {
    let message = if path.is_empty() { message } else { format!("{}: {message}", path.join(".")) };
    Cause::Value { id: node_id.to_owned(), message }
}

/// What serde says of a name that it does not know: ``unknown field `a`, expected one of `b`, `c` ``.
struct UnknownName<'a> {
    name: &'a str,
    known: Vec<&'a str>,
}

impl<'a> UnknownName<'a> {
    fn of(message: &'a str) -> Option<Self> {
        let names =
            message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))?;
        let mut names = names.split('`').skip(1).step_by(2);
        Some(Self { name: names.next()?, known: names.collect() })
    }
}
