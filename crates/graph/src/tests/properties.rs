//! What holds for any text and any graph.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::kinds::registry;
use super::{environment, parse};
use crate::{Cause, Graph};

/// Any value that JSON can hold, a few levels deep.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[-a0:{}\\[\\],\"'$&*!|>#%?~ \\\\\n\t_.]{0,12}".prop_map(Value::from),
        "\\$?\\$?\\{?[A-Z]{0,2}(:-)?[a\"' ]?\\}?".prop_map(Value::from),
        "(0x|0o|[-+.])?[0-9]{1,3}(\\.|e|:)?[0-9]{0,3}".prop_map(Value::from),
        "null|true|yes|~|\\.inf|\\.nan|2026-01-02".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let entries = vec((key(), inner.clone()), 0..4);
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            entries.prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{1,8}", "[a-z0-9:${} \"#]{0,6}"]
}

/// A graph of one source, steps with any parameters, and edges of all sorts.
fn graph_json() -> impl Strategy<Value = Value> {
    let parameters = vec((key(), value()), 0..4);
    let step = (parameters, any::<proptest::sample::Index>(), 0..4usize, 1..u64::MAX);
    vec(step, 1..5).prop_map(|steps| {
        let mut nodes = Map::new();
        nodes.insert("0".to_owned(), serde_json::json!({"kind": "phantom_source"}));
        for (at, (parameters, from, edge, size)) in steps.into_iter().enumerate() {
            let from = from.index(at + 1).to_string();
            let input = match edge {
                0 => Value::from(from),
                1 => serde_json::json!({"from": from, "when_full": "latest", "capacity_blocks": size}),
                2 => serde_json::json!({"from": from, "capacity_bytes": size}),
                _ => serde_json::json!({"from": from, "when_full": "spill", "spill_dir": "/tmp/${a b"}),
            };
            let mut node: Map<_, _> = parameters
                .into_iter()
                .filter(|(key, _)| !super::super::assemble::is_common_key(key))
                .collect();
            node.insert("kind".to_owned(), "plugin".into());
            node.insert("input".to_owned(), input);
            nodes.insert((at + 1).to_string(), Value::Object(node));
        }
        serde_json::json!({"version": 1, "nodes": nodes})
    })
}

/// The value as a file holds it: texts are what they are, not references to variables.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(crate::scalar::escape_references(&text)),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, escaped(value))).collect())
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn files_are_read_or_refused(text in any::<String>()) {
        drop(parse(&text));
    }

    #[test]
    fn damaged_files_are_read_or_refused(at in 0..super::EXAMPLE.len(), damage in "[-{}\\[\\]:,\"'\\t\\n&*$]{0,3}", cut in 0..4usize) {
        let mut text = super::EXAMPLE.to_owned();
        let end = (at + cut).min(text.len());
        text.replace_range(at..end, &damage);
        drop(parse(&text));
    }

    #[test]
    fn lines_are_read_or_refused(line in any::<String>()) {
        drop(Graph::launch(&line, &registry(), &environment));
    }

    #[test]
    fn anything_like_a_line_is_read_or_refused(line in "([a-z_=!\\[\\],\"'{}$\\\\ µ]|view|phantom_source |plugin | ! ){0,30}") {
        drop(Graph::launch(&line, &registry(), &environment));
    }

    #[test]
    fn assignments_are_made_or_refused(key in "[a-z._]{0,12}", value in any::<String>()) {
        let mut graph = parse(super::EXAMPLE).unwrap();
        for node in ["volume", "keep", ""] {
            drop(graph.set(&format!("{node}.{key}={value}"), &registry(), &environment));
        }
    }

    #[test]
    fn written_graphs_are_read_back(json in graph_json()) {
        let graph = parse(&escaped(json).to_string()).map_err(TestCaseError::fail)?;
        let yaml = graph.to_yaml();
        prop_assert_eq!(parse(&yaml).map_err(|errors| TestCaseError::fail(format!("{errors}\n{yaml}")))?, graph);
    }

    /// A chain with an arrow back: exactly the nodes from its target to its start are in the circle.
    #[test]
    fn cycles_are_found(length in 2..30usize, ends in any::<(proptest::sample::Index, proptest::sample::Index)>(), seed in any::<u64>()) {
        let (first, second) = (ends.0.index(length), ends.1.index(length));
        let (target, start) = (first.min(second), first.max(second));
        let node = |at: usize| {
            let from = if at == target { start } else { at.saturating_sub(1) };
            (format!("n{at}"), serde_json::json!({"kind": "plugin", "input": format!("n{from}")}))
        };
        let mut order: Vec<usize> = (usize::from(target > 0)..length).collect();
        order.sort_by_key(|at| (*at as u64).wrapping_mul(seed | 1) % 101);
        let mut nodes: Map<_, _> = order.into_iter().map(node).collect();
        if target > 0 {
            nodes.insert("n0".to_owned(), serde_json::json!({"kind": "phantom_source"}));
        }
        let text = serde_json::json!({"version": 1, "nodes": nodes}).to_string();
        let errors = Graph::parse("f", &text, &registry(), &environment).unwrap_err();
        let cycles: Vec<_> = errors.iter().filter_map(|error| match &*error.cause {
            Cause::Cycle { nodes } => Some(nodes.clone()),
            _ => None,
        }).collect();
        prop_assert_eq!(cycles.len(), 1);
        let mut found = cycles[0].clone();
        found.sort();
        let mut expected: Vec<_> = (target..=start).map(|at| format!("n{at}")).collect();
        expected.sort();
        prop_assert_eq!(found, expected);
    }
}
