//! `nodes`: the catalogue of kinds.

use std::fmt::Write;

use beamstream::{KindClass, KindInfo, Registry, nearest, registry};
use serde_json::{Value, json};

use crate::args::NodesArgs;
use crate::console::Console;
use crate::failure::Failure;

pub(super) fn nodes(args: &NodesArgs, console: &Console) -> Result<(), Failure> {
    let registry = registry();
    let Some(name) = &args.kind else {
        let all: Vec<Value> = registry.iter().map(as_json).collect();
        return if args.json { console.print_json(&all) } else { console.print(&catalogue(&registry)) };
    };
    let Some(info) = registry.get(name) else {
        return Err(unknown(name, &registry));
    };
    if args.json { console.print_json(&as_json(info)) } else { console.print(&manual(info)) }
}

fn unknown(name: &str, registry: &Registry) -> Failure {
    let meant = nearest(name, registry.iter().map(|info| info.kind));
    let hint = meant.map_or_else(
        || "`beamstream nodes` lists all".to_owned(),
        |meant| format!("did you mean '{meant}'?"),
    );
    Failure::usage(format!("unknown kind '{name}' ({hint})"))
}

fn as_json(info: &KindInfo) -> Value {
    json!({ "kind": info.kind, "class": info.class, "summary": info.summary(), "schema": info.schema })
}

/// All kinds with a line each.
fn catalogue(registry: &Registry) -> String {
    let mut text = String::new();
    for (class, title) in
        [(KindClass::Source, "Sources"), (KindClass::Step, "Steps"), (KindClass::Sink, "Sinks")]
    {
        writeln!(text, "{title}").ok();
        for info in registry.iter().filter(|info| info.class == class) {
            writeln!(text, "  {:<16}{}", info.kind, info.summary()).ok();
        }
    }
    text.push_str("\n`beamstream nodes KIND` tells all about one.\n");
    text
}

/// The manual of a kind: its description and its parameters.
fn manual(info: &KindInfo) -> String {
    let schema = info.schema.as_value();
    let mut text = format!("{}\n\n{}\n", info.kind, description(schema).trim());
    let properties = schema.get("properties").and_then(Value::as_object);
    if properties.is_none_or(serde_json::Map::is_empty) {
        text.push_str("\nIt has no parameters.\n");
        return text;
    }
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    text.push_str("\nParameters\n");
    for (name, parameter) in properties.into_iter().flatten() {
        let default = match parameter.get("default") {
            Some(Value::Null) | None if required.contains(&name.as_str()) => ", must be given".to_owned(),
            Some(Value::Null) | None => ", optional".to_owned(),
            Some(default) => format!(", default {default}"),
        };
        writeln!(text, "  {name}: {}{default}", type_text(parameter, schema)).ok();
        for line in description(parameter).lines() {
            writeln!(text, "      {line}").ok();
        }
    }
    text
}

fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// The type of a value in words, as its schema tells it.
fn type_text(schema: &Value, root: &Value) -> String {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let name = target.trim_start_matches("#/$defs/");
        let found = root.get("$defs").and_then(|definitions| definitions.get(name));
        // A schema that contains itself has a name of its own to stop at.
        return found
            .filter(|found| found.get("$ref").is_none())
            .map_or(name.to_owned(), |found| type_text(found, root));
    }
    if let Some(value) = schema.get("const") {
        return plain(value);
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(plain).collect::<Vec<_>>().join(" | ");
    }
    for keyword in ["oneOf", "anyOf"] {
        if let Some(choices) = schema.get(keyword).and_then(Value::as_array) {
            let choices =
                choices.iter().map(|choice| type_text(choice, root)).filter(|choice| choice != "null");
            return choices.collect::<Vec<_>>().join(" | ");
        }
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "array" => {
            let item = schema.get("items").map_or("values".to_owned(), |item| type_text(item, root));
            format!("list of {item}")
        }
        Some(Value::String(name)) if name == "object" => object_text(schema, root),
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names = names.iter().map(plain).filter(|name| name != "null");
            names.collect::<Vec<_>>().join(" | ")
        }
        _ => "value".to_owned(),
    }
}

fn object_text(schema: &Value, root: &Value) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return "map".to_owned();
    };
    let entries: Vec<String> =
        properties.iter().map(|(name, value)| format!("{name}: {}", type_text(value, root))).collect();
    format!("{{{}}}", entries.join(", "))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_in_words() {
        let root = json!({ "$defs": { "Mode": { "oneOf": [{ "const": "bind" }, { "const": "connect" }] } } });
        for (schema, text) in [
            (json!({ "$ref": "#/$defs/Mode" }), "bind | connect"),
            (json!({ "type": ["string", "null"] }), "string"),
            (json!({ "type": "array", "items": { "type": "string" } }), "list of string"),
            (json!({ "anyOf": [{ "$ref": "#/$defs/Mode" }, { "type": "null" }] }), "bind | connect"),
            (json!({ "enum": ["a", 2] }), "a | 2"),
            (json!({ "type": "object", "properties": { "dark": { "type": "string" } } }), "{dark: string}"),
            (json!(true), "value"),
        ] {
            assert_eq!(type_text(&schema, &root), text);
        }
    }

    #[test]
    fn every_kind_has_a_manual_with_all_its_parameters() {
        let registry = registry();
        let catalogue = catalogue(&registry);
        for info in registry.iter() {
            assert!(catalogue.contains(info.kind));
            let manual = manual(info);
            assert!(info.parameters().all(|name| manual.contains(&format!("  {name}: "))), "{manual}");
        }
    }

    #[test]
    fn slips_get_a_suggestion() {
        let failure = unknown("recn", &registry());
        assert!(failure.lines()[0].contains("'recon'"), "{failure:?}");
    }
}
