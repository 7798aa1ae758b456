//! What every kind of node owes its users, tried on all that are registered.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use beamstream_core::{Axes, Content, ElementType, Format, SeriesHeader, SeriesId, Shape};
use beamstream_graph::Graph;
use beamstream_node::{Board, Built, Journal, KindClass, KindInfo, Node, Registry, RegistryError};
use beamstream_testkit::build_context;
use serde_json::{Map, Value, json};

/// Sinks whose names are older than the rule that sinks end in `_sink`.
const SINKS_BY_OTHER_NAMES: &[&str] = &["view", "record"];

/// Ends of names that say a unit.
const UNITS: &[&str] = &[
    "_px",
    "_um",
    "_m",
    "_kev",
    "_rad",
    "_deg",
    "_secs",
    "_hz",
    "_bytes",
    "_blocks",
    "_counts",
    "_projections",
    "_sec",
];

/// Runs a check on every kind and fails with all complaints at once.
fn for_every_kind(check: impl Fn(&Registry, &KindInfo, &mut Vec<String>)) {
    let registry = beamstream::registry();
    let mut complaints = Vec::new();
    for info in registry.iter() {
        let mut found = Vec::new();
        check(&registry, info, &mut found);
        complaints.extend(found.into_iter().map(|complaint| format!("{}: {complaint}", info.kind)));
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default().trim()
}

/// All parameters with their schemas, also those within parameters, by a name that leads to them.
fn parameters(info: &KindInfo) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    collect("", info.schema.as_value(), &mut found);
    let definitions = info.schema.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, schema) in &definitions {
        collect(&format!("{name}."), schema, &mut found);
    }
    found
}

fn collect(prefix: &str, schema: &Value, found: &mut Vec<(String, Value)>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        found.push((format!("{prefix}{name}"), schema.clone()));
    }
}

/// Whether a parameter is a number with a fraction, or a list of them.
fn is_real(schema: &Value) -> bool {
    let is_number = |schema: &Value| match schema.get("type") {
        Some(Value::Array(types)) => types.contains(&json!("number")),
        Some(one) => one == "number",
        None => false,
    };
    is_number(schema) || schema.get("items").is_some_and(is_number)
}

/// The pipeline in the documentation of a kind.
fn snippet(info: &KindInfo) -> Option<String> {
    let documentation = info.schema.get("description")?.as_str()?;
    let (_, rest) = documentation.split_once("```yaml\n")?;
    rest.split_once("```").map(|(snippet, _)| snippet.to_owned())
}

fn graph_of_snippet(registry: &Registry, info: &KindInfo) -> Result<Graph, String> {
    let snippet = snippet(info).ok_or("its documentation holds no pipeline in a fence of ```yaml")?;
    Graph::parse(info.kind, &snippet, registry, &|_| None).map_err(|errors| errors.to_string())
}

#[test]
fn kinds_and_parameters_are_described() {
    for_every_kind(|_, info, complaints| {
        let text = description(info.schema.as_value());
        if !text.lines().next().is_some_and(|line| line.ends_with(['.', ':'])) {
            complaints
                .push(format!("the first line of its description is no sentence: '{}'", info.summary()));
        }
        for (name, schema) in parameters(info) {
            if description(&schema).is_empty() {
                complaints.push(format!("parameter '{name}' has no description"));
            }
        }
    });
}

#[test]
fn names_keep_the_rules() {
    for_every_kind(|_, info, complaints| {
        let ends = (info.kind.ends_with("_source"), info.kind.ends_with("_sink"));
        let fits = match info.class {
            KindClass::Source => ends == (true, false),
            KindClass::Step => ends == (false, false),
            KindClass::Sink => ends == (false, true) || SINKS_BY_OTHER_NAMES.contains(&info.kind),
        };
        if !fits {
            complaints.push(format!("a {:?} is not named so", info.class));
        }
        let snake = |name: &str| {
            name.chars().all(|letter| letter.is_ascii_lowercase() || "_0123456789".contains(letter))
        };
        if !snake(info.kind) {
            complaints.push("kinds are named in small letters and underscores".to_owned());
        }
        for (path, schema) in parameters(info) {
            let name = path.rsplit('.').next().unwrap_or(&path);
            if !snake(name) {
                complaints
                    .push(format!("parameter '{path}' is not written in small letters and underscores"));
            }
            let has_unit =
                UNITS.iter().any(|unit| name.ends_with(unit)) || description(&schema).contains("Unit:");
            if is_real(&schema) && !has_unit {
                complaints.push(format!(
                    "parameter '{path}' has a unit neither in its name nor as 'Unit: …' in its description"
                ));
            }
        }
    });
}

#[test]
fn unknown_parameters_are_refused() {
    for_every_kind(|registry, info, complaints| {
        let unknown = "no_kind_has_this_parameter";
        let mut settings = graph_of_snippet(registry, info)
            .ok()
            .and_then(|graph| {
                graph.nodes().iter().find(|node| node.kind == info.kind).map(|node| node.parameters.clone())
            })
            .unwrap_or_default();
        settings.insert(unknown.to_owned(), json!(1));
        match build(info, settings) {
            Err(RegistryError::Parse { message, .. }) if message.contains(unknown) => {}
            Err(error) => complaints.push(format!("an unknown parameter is refused as '{error}'")),
            Ok(_) => complaints.push("an unknown parameter is accepted".to_owned()),
        }
    });
}

#[test]
fn the_pipeline_in_the_documentation_parses() {
    for_every_kind(|registry, info, complaints| {
        let graph = match graph_of_snippet(registry, info) {
            Ok(graph) => graph,
            Err(complaint) => return complaints.push(complaint),
        };
        if graph.nodes().iter().all(|node| node.kind != info.kind) {
            complaints.push("the pipeline in its documentation does not show it".to_owned());
        }
        for node in graph.nodes() {
            let kind = registry.get(&node.kind).expect("the graph was checked");
            // Files that the snippet names are not there, so a node may refuse to be built, but not to be read.
            if let Err(error @ RegistryError::Parse { .. }) = build(kind, node.parameters.clone()) {
                complaints.push(format!("'{}' in the pipeline in its documentation: {error}", node.id));
            }
        }
    });
}

#[test]
fn every_header_is_answered() {
    for_every_kind(|registry, info, complaints| {
        let Ok(graph) = graph_of_snippet(registry, info) else {
            return;
        };
        let Some(spec) = graph.nodes().iter().find(|node| node.kind == info.kind) else {
            return;
        };
        let Ok(Built::Node(node)) = build(info, spec.parameters.clone()) else {
            return;
        };
        for header in headers() {
            complaints.extend(complaint_about(&*node, &header));
        }
    });
}

fn build(info: &KindInfo, parameters: Map<String, Value>) -> Result<Built, RegistryError> {
    let (journal, board) = (Journal::new("contract"), Board::default());
    info.build(&Value::Object(parameters), &build_context(&journal, &board))
}

/// Frames and volumes of every type, small, odd and empty.
fn headers() -> Vec<SeriesHeader> {
    let mut headers = Vec::new();
    for element in ElementType::ALL {
        for shape in [Shape::new(1, 1), Shape::new(3, 5), Shape::new(0, 7), Shape::new(4, 0)] {
            for (content, axes) in [(Content::Frames, Axes::Frame), (Content::Volume, Axes::Slice)] {
                let id = SeriesId { number: 1, ordinal: 0 };
                let header = SeriesHeader::frames(id, Format { element, axes, shape });
                headers.push(SeriesHeader { content, ..header });
            }
        }
    }
    headers
}

/// A refusal is one line without a full stop; an agreement on blocks has room for them.
fn complaint_about(node: &dyn Node, header: &SeriesHeader) -> Option<String> {
    match node.negotiate(header) {
        Ok(agreed) if agreed.writes_blocks == 0 => Some(format!("{}: it writes no block", header.format)),
        Ok(_) => None,
        Err(refusal) => {
            let text = refusal.full_text();
            (text.is_empty() || text.ends_with('.') || text.contains('\n'))
                .then(|| format!("{}: the refusal is no line without a full stop: '{text}'", header.format))
        }
    }
}
