//! How nodes may be joined.

use std::collections::{BTreeSet, HashMap};

use beamstream_node::{KindClass, Registry};

use crate::tree::{Entry, Located};
use crate::{Cause, GraphError, NodeSpec, nearest};

/// Checks that every input names a node that hands blocks on, that sources alone have none, and that blocks cannot go
/// in a circle.
pub(crate) fn check(nodes: &[NodeSpec], tree: &Located, registry: &Registry, errors: &mut Vec<GraphError>) {
    // Nodes that could not be read have an entry too: who names one of them makes no second mistake.
    let entries: HashMap<&str, &Entry> =
        tree.entries().iter().map(|entry| (entry.key.as_str(), entry)).collect();
    let by_id: HashMap<&str, &NodeSpec> = nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    for node in nodes {
        let Some(entry) = entries.get(node.id.as_str()) else {
            continue;
        };
        check_class(node, entry, registry, errors);
        for input in &node.inputs {
            let from = input.from_node.as_str();
            let place = &from_value(&entry.value).place;
            if !entries.contains_key(from) {
                let cause = Cause::UnknownNode { id: from.to_owned() };
                let others =
                    tree.entries().iter().map(|entry| entry.key.as_str()).filter(|id| *id != node.id);
                errors.push(cause.at(place).or(nearest(from, others)));
            }
            let sink = by_id.get(from).filter(|from| class(from, registry) == Some(KindClass::Sink));
            if let Some(sink) = sink {
                let (id, kind) = (node.id.clone(), sink.kind.clone());
                errors.push(Cause::InputFromSink { id, from: from.to_owned(), kind }.at(place));
            }
        }
    }
    for cycle in cycles(nodes) {
        let entry = cycle.first().and_then(|&node| entries.get(nodes[node].id.as_str()));
        if let Some(entry) = entry {
            let nodes = cycle.iter().map(|&node| nodes[node].id.clone()).collect();
            errors.push(Cause::Cycle { nodes }.at(&from_value(&entry.value).place));
        }
    }
}

fn class(node: &NodeSpec, registry: &Registry) -> Option<KindClass> {
    registry.get(&node.kind).map(|info| info.class)
}

fn check_class(node: &NodeSpec, entry: &Entry, registry: &Registry, errors: &mut Vec<GraphError>) {
    let Some(class) = class(node, registry) else {
        return;
    };
    let (id, kind) = (node.id.clone(), node.kind.clone());
    let input = entry.value.entry("input").or_else(|| entry.value.entry("inputs"));
    match (class, input) {
        (KindClass::Source, Some(input)) => {
            errors.push(Cause::SourceWithInput { id, kind }.at(&input.key_place));
        }
        (KindClass::Step | KindClass::Sink, None) => {
            errors.push(Cause::NoInput { id, kind }.at(&entry.key_place));
        }
        (KindClass::Step | KindClass::Sink, Some(input))
            if input.key == "inputs" && node.inputs.is_empty() =>
        {
            errors.push(Cause::NoInput { id, kind }.at(&input.key_place));
        }
        _ => {}
    }
}

/// The value that names the node from which a node is fed, or the nearest that there is.
fn from_value(node: &Located) -> &Located {
    let input =
        node.child("input").or_else(|| node.child("inputs")?.entries().first().map(|entry| &entry.value));
    let input = input.unwrap_or(node);
    input.child("from").unwrap_or(input)
}

/// All circles that share no node, each in the order in which blocks would go round.
fn cycles(nodes: &[NodeSpec]) -> Vec<Vec<usize>> {
    let index: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(at, node)| (node.id.as_str(), at)).collect();
    let feeds_of =
        |node: usize| nodes[node].inputs.iter().filter_map(|input| index.get(input.from_node.as_str()));
    let mut left: BTreeSet<usize> = (0..nodes.len()).collect();
    let mut cycles = Vec::new();
    loop {
        // Who is fed by nobody that is left is in no circle.
        while let Some(free) =
            left.iter().copied().find(|&node| !feeds_of(node).any(|feed| left.contains(feed)))
        {
            left.remove(&free);
        }
        // All others have a feed that is left: walking from feed to feed must come back to where it was.
        let Some(&start) = left.first() else { return cycles };
        let mut walk: Vec<usize> = Vec::new();
        let mut at = start;
        while !walk.contains(&at) {
            walk.push(at);
            at = feeds_of(at).find(|feed| left.contains(feed)).copied().unwrap_or(at);
        }
        let mut cycle: Vec<usize> = walk.into_iter().skip_while(|&node| node != at).collect();
        cycle.reverse();
        let first = cycle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
        cycle.rotate_left(first);
        left.retain(|node| !cycle.contains(node));
        cycles.push(cycle);
    }
}
