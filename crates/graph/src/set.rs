//! Changes one value of a graph: `node.key=value`.

use std::ops::Range;

use beamstream_node::Registry;
use serde_json::Value;

use crate::assemble::parameter_name;
use crate::place::{Source, source};
use crate::scalar::Environment;
use crate::tree::{Entry, Located, Tree};
use crate::{Cause, Errors, GraphError, Place, input, nearest, yaml};

/// How errors name the text of an assignment.
const NAME: &str = "--set";

/// A part of the path to a value.
struct Key {
    name: String,
    place: Place,
}

/// Writes the value into `tree`, the map of nodes.
pub(crate) fn set(
    tree: &mut Located,
    assignment: &str,
    registry: &Registry,
    environment: Environment<'_>,
) -> Result<(), Errors> {
    let source = source(NAME, assignment);
    let (mut path, value) = split(&source)?;
    let mut errors = Vec::new();
    let value = yaml::read_argument(&source, value, environment, &mut errors)?;
    if !errors.is_empty() {
        return Err(Errors::new(errors));
    }
    let node = &path.remove(0);
    let known: Vec<String> = tree.entries().iter().map(|entry| entry.key.clone()).collect();
    let Some(entry) = tree.entry_mut(&node.name) else {
        let cause = Cause::UnknownNode { id: node.name.clone() };
        return Err(cause.at(&node.place).or(nearest(&node.name, known.iter().map(String::as_str))).into());
    };
    prepare(&mut entry.value, &mut path, registry);
    Ok(put(&mut entry.value, &node.name, &path, value)?)
}

/// The path before the first `=`, and the stretch behind it.
fn split(source: &Source) -> Result<(Vec<Key>, Range<usize>), GraphError> {
    let text = source.inner();
    let wrong = || {
        let message = format!("expected NODE.KEY=VALUE, found '{text}'");
        Cause::Syntax(message).at(&Place::new(source, 0..text.len()))
    };
    let (left, right) = text.split_once('=').ok_or_else(wrong)?;
    let mut path = Vec::new();
    let mut start = 0;
    for name in left.split('.') {
        let place = Place::new(source, start..start + name.len());
        path.push(Key { name: name.trim().to_owned(), place });
        start += name.len() + 1;
    }
    if path.len() < 2 {
        return Err(wrong());
    }
    let value_start = text.len() - right.trim_start().len();
    Ok((path, value_start..(value_start + right.trim().len())))
}

/// Gives the parameter the name that the kind reads, and an input written as one word the room for more keys.
fn prepare(node: &mut Located, path: &mut [Key], registry: &Registry) {
    let Some((first, rest)) = path.split_first_mut() else {
        return;
    };
    let info = node.child("kind").and_then(Located::as_text).and_then(|kind| registry.get(kind));
    if let Some(Ok(name)) = info.map(|info| parameter_name(info, &first.name)) {
        first.name = name;
    }
    let Some(entry) = node.entry_mut("input").filter(|_| first.name == "input" && !rest.is_empty()) else {
        return;
    };
    if entry.value.as_text().is_some() {
        let from = entry.value.clone();
        let place = from.place.clone();
        let key = input::INPUT_KEYS[0].to_owned();
        entry.value = Located::map(vec![Entry { key, key_place: place.clone(), value: from }], &place);
    }
}

/// Puts the value where the path leads; maps that are not there are made.
fn put(at: &mut Located, name: &str, path: &[Key], value: Located) -> Result<(), GraphError> {
    let Some((key, rest)) = path.split_first() else {
        *at = value;
        return Ok(());
    };
    if at.as_scalar() == Some(&Value::Null) {
        *at = Located::map(Vec::new(), &key.place);
    }
    let found = at.found();
    let next = match &mut at.tree {
        Tree::Map(entries) => Some(entry_or_new(entries, key)),
        Tree::List(items) => key.name.parse().ok().and_then(|index: usize| items.get_mut(index)),
        Tree::Scalar { .. } => None,
    };
    let next = next.ok_or_else(|| {
        let (what, expected) = (format!("'{name}'"), "a map, or a list that is long enough");
        Cause::Expected { what, expected, found }.at(&key.place)
    })?;
    put(next, &key.name, rest, value)
}

fn entry_or_new<'a>(entries: &'a mut Vec<Entry>, key: &Key) -> &'a mut Located {
    let index = entries.iter().position(|entry| entry.key == key.name).unwrap_or(entries.len());
    if index == entries.len() {
        let value = Located::map(Vec::new(), &key.place);
        entries.push(Entry { key: key.name.clone(), key_place: key.place.clone(), value });
    }
    let entry = &mut entries[index];
    entry.key_place = key.place.clone();
    &mut entry.value
}
