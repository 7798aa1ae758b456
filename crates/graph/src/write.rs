//! Writes graphs as pipeline files.

use serde_json::{Map, Value};

use crate::input::INPUT_KEYS;
use crate::scalar::{escape_references, typed};
use crate::{InputSpec, NodeSpec, WhenFull};

/// A node as the value that a pipeline file holds.
pub(crate) fn node(node: &NodeSpec) -> Value {
    let mut map = Map::new();
    map.insert("kind".to_owned(), node.kind.clone().into());
    if let [input] = node.inputs.as_slice() {
        map.insert("input".to_owned(), self::input(input));
    }
    map.extend(node.parameters.clone());
    Value::Object(map)
}

fn input(input: &InputSpec) -> Value {
    let size = |size: std::num::NonZeroUsize| Value::from(size.get());
    let spill_dir = input.spill_dir.as_ref().map(|folder| folder.to_string_lossy().into_owned().into());
    let values = [
        Some(input.from_node.clone().into()),
        input.capacity_blocks.map(size),
        input.capacity_bytes.map(size),
        (input.when_full != WhenFull::default()).then(|| input.when_full.name().into()),
        spill_dir,
        input.spill_bytes.map(|size| size.get().into()),
    ];
    let map: Map<_, _> =
        INPUT_KEYS.iter().zip(values).filter_map(|(key, value)| Some(((*key).to_owned(), value?))).collect();
    if map.len() == 1 { input.from_node.clone().into() } else { Value::Object(map) }
}

/// A whole pipeline file.
pub(crate) fn yaml(nodes: &[NodeSpec]) -> String {
    let mut lines = vec!["version: 1".to_owned(), "nodes:".to_owned()];
    for node in nodes {
        lines.push(format!("  {}:", word(&node.id)));
        if let Value::Object(entries) = self::node(node) {
            lines.extend(entries.iter().map(|(key, value)| format!("    {}: {}", word(key), flow(value))));
        }
    }
    lines.join("\n") + "\n"
}

/// A value in one line.
fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => word(&escape_references(text)),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(key, value)| format!("{}: {}", word(key), flow(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A text, in quotes unless it is sure to be read as itself without.
fn word(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || matches!(first, '_' | '/'))
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/'))
        && typed(text).is_string();
    if is_plain { text.to_owned() } else { quoted(text) }
}

/// A text as a JSON string, which is YAML too once the characters that only YAML minds are escaped.
fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    let minds = |letter: &char| {
        letter.is_control()
            || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    json.chars()
        .map(|letter| if minds(&letter) { format!("\\u{:04x}", letter as u32) } else { letter.to_string() })
        .collect()
}
