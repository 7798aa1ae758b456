//! The JSON Schema of pipeline files.

use beamstream_node::{KindClass, KindInfo, Registry};
use serde_json::{Map, Value, json};

use crate::WhenFull;
use crate::input::INPUT_PORT;
use crate::kinds::aliases;

/// JSON Schema (draft 2020-12) of whole pipeline files, made of the kinds' own schemas.
///
/// A number or truth value may also be a text with a variable (`${SIZE}`): its type is known only when it is read.
pub fn schema(registry: &Registry) -> Value {
    let mut definitions = json!({
        "input": input(),
        "inputs": {
            "description": "What feeds the node, by port.",
            "type": "object",
            "properties": { INPUT_PORT: { "$ref": "#/$defs/input" } },
            "additionalProperties": false,
            "minProperties": 1
        },
        "fed": { "oneOf": [{ "required": ["input"] }, { "required": ["inputs"] }] }
    });
    let mut kinds = Vec::new();
    for info in registry.iter() {
        let (node, own) = kind(info);
        kinds.push(json!({ "$ref": format!("#/$defs/{}", definition(info, "")) }));
        definitions[definition(info, "")] = node;
        for (name, schema) in own {
            definitions[definition(info, &name)] = schema;
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Beamstream pipeline file",
        "type": "object",
        "properties": {
            "version": { "description": "Version of the format.", "const": 1 },
            "nodes": {
                "description": "The nodes by their ids.",
                "type": "object",
                "propertyNames": { "pattern": "^[A-Za-z0-9_-]+$" },
                "minProperties": 1,
                "additionalProperties": { "type": "object", "required": ["kind"], "oneOf": kinds }
            }
        },
        "required": ["version", "nodes"],
        "additionalProperties": false,
        "$defs": definitions
    })
}

fn input() -> Value {
    let node = json!({ "description": "A node, or NODE.PORT.", "type": "string", "minLength": 1 });
    json!({
        "description": "What feeds the node.",
        "oneOf": [node, {
            "type": "object",
            "properties": {
                "from": node,
                "capacity_blocks": {
                    "description": "Most blocks that wait on the way.",
                    "type": ["integer", "string"], "minimum": 1, "pattern": VARIABLE
                },
                "capacity_bytes": {
                    "description": "Most bytes that wait on the way: a number, or a text such as 256 MiB.",
                    "type": ["integer", "string"], "minimum": 1
                },
                "when_full": {
                    "description": "What happens then: the sender waits, the newest block wins, or blocks go to disk.",
                    "enum": WhenFull::ALL.map(WhenFull::name),
                    "default": WhenFull::default().name()
                },
                "spill_dir": {
                    "description": "Folder for blocks that go to disk; TMPDIR or /var/tmp if none is given.",
                    "type": "string"
                },
                "spill_bytes": {
                    "description": "Most bytes on disk. 1 GiB of the disk, or 5 % of a smaller one, are left free in any case.",
                    "type": ["integer", "string"], "minimum": 1
                }
            },
            "required": ["from"],
            "additionalProperties": false
        }]
    })
}

/// A text that holds a variable.
const VARIABLE: &str = r"\$\{";

/// Name of a kind's schema, or of one that it refers to. Kinds share no names: each definition begins with its kind.
fn definition(info: &KindInfo, name: &str) -> String {
    if name.is_empty() { format!("kind.{}", info.kind) } else { format!("kind.{}.{name}", info.kind) }
}

/// Schema of the nodes of a kind, and the definitions that it refers to.
fn kind(info: &KindInfo) -> (Value, Map<String, Value>) {
    let mut schema = info.schema.as_object().cloned().unwrap_or_default();
    let own = schema.remove("$defs");
    schema.remove("$schema");
    let mut schema = Value::Object(schema);
    point_to_definitions(&mut schema, info);
    let mut own: Map<_, _> = own.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    own.values_mut().for_each(|definition| point_to_definitions(definition, info));
    if let Value::Object(node) = &mut schema {
        add_common_keys(node, info);
    }
    (schema, own)
}

fn add_common_keys(node: &mut Map<String, Value>, info: &KindInfo) {
    let mut properties = Map::new();
    properties.insert("kind".to_owned(), json!({ "const": info.kind }));
    if info.class != KindClass::Source {
        properties.insert("input".to_owned(), json!({ "$ref": "#/$defs/input" }));
        properties.insert("inputs".to_owned(), json!({ "$ref": "#/$defs/inputs" }));
        let all_of = node.entry("allOf").or_insert_with(|| json!([]));
        if let Value::Array(all_of) = all_of {
            all_of.push(json!({ "$ref": "#/$defs/fed" }));
        }
    }
    let mut spelled_otherwise = Vec::new();
    for (name, schema) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let schema = or_variable(schema.clone());
        for alias in aliases(&schema) {
            spelled_otherwise.push((name.clone(), alias.to_owned()));
            properties.insert(alias.to_owned(), schema.clone());
        }
        properties.insert(name.clone(), schema);
    }
    // Required parameters may stand under any of their spellings.
    let mut required = node.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    required.retain(|name| !spelled_otherwise.iter().any(|(spelled, _)| name == spelled));
    required.insert(0, "kind".into());
    node.insert("properties".to_owned(), Value::Object(properties));
    node.insert("required".to_owned(), Value::Array(required));
    // Unlike `additionalProperties` this also knows the properties that a kind's `oneOf` or `$ref` brings.
    if node.get("additionalProperties").is_none_or(|more| more == false) {
        node.remove("additionalProperties");
        node.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
    }
}

/// Lets a number or truth value also be a text with a variable.
fn or_variable(mut schema: Value) -> Value {
    let types: Vec<Value> = match schema.get("type") {
        Some(Value::Array(types)) => types.clone(),
        Some(one) => vec![one.clone()],
        None => return schema,
    };
    let is_scalar =
        types.iter().all(|one| matches!(one.as_str(), Some("integer" | "number" | "boolean" | "null")));
    if is_scalar && schema.get("enum").is_none() {
        schema["type"] = types.into_iter().chain(["string".into()]).collect();
        schema["pattern"] = VARIABLE.into();
    }
    schema
}

/// Turns references within a kind's own schema into ones within the whole.
fn point_to_definitions(schema: &mut Value, info: &KindInfo) {
    match schema {
        Value::Object(entries) => {
            for (key, value) in entries {
                match (key.as_str(), &*value) {
                    ("$ref", Value::String(target)) => *value = pointed(target, info).into(),
                    _ => point_to_definitions(value, info),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| point_to_definitions(item, info)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn pointed(target: &str, info: &KindInfo) -> String {
    if target == "#" {
        return format!("#/$defs/{}", definition(info, ""));
    }
    match target.strip_prefix("#/$defs/") {
        Some(name) => format!("#/$defs/{}", definition(info, name)),
        None => target.to_owned(),
    }
}
