//! Whole files and lines, right and wrong.

mod kinds;
mod lines;
mod properties;

use serde_json::json;

use self::kinds::registry;
use crate::{Cause, Graph, WhenFull};

fn environment(name: &str) -> Option<String> {
    (name == "SIZE").then(|| "64".to_owned())
}

fn parse(text: &str) -> Result<Graph, String> {
    Graph::parse("mine.yaml", text, &registry(), &environment).map_err(|errors| errors.to_string())
}

#[track_caller]
fn refused(text: &str) -> String {
    parse(text).expect_err("this should be refused")
}

/// The file of the user manual.
const EXAMPLE: &str = r#"version: 1
nodes:
  detector: { kind: zmq_source, endpoint: "tcp://127.0.0.1:9999", protocol: auto }
  correct:  { kind: flat_field, input: detector }
  volume:   { kind: recon, input: correct, rotation_axis: auto }
  eyes:     { kind: view, input: { from: volume, when_full: latest } }
  keep:     { kind: zarr_sink, input: volume, path: "out/{series}.zarr" }
"#;

#[test]
fn the_example_is_read() {
    let graph = parse(EXAMPLE).unwrap();
    let ids: Vec<_> = graph.nodes().iter().map(|node| node.id.as_str()).collect();
    assert_eq!(ids, ["detector", "correct", "volume", "eyes", "keep"]);
    let eyes = &graph.node("eyes").unwrap().inputs[0];
    assert_eq!(
        (eyes.port.as_str(), eyes.from_node.as_str(), eyes.from_port.as_str()),
        ("in", "volume", "out")
    );
    assert_eq!(eyes.when_full, WhenFull::Latest);
    let keep = &graph.node("keep").unwrap().parameters;
    assert_eq!(json!(keep), json!({"path": "out/{series}.zarr"}));
}

#[test]
fn json_is_the_same_model() {
    let graph = parse(EXAMPLE).unwrap();
    assert_eq!(parse(&graph.to_json().to_string()).unwrap(), graph);
    assert_eq!(parse(&serde_json::to_string_pretty(&graph.to_json()).unwrap()).unwrap(), graph);
}

#[test]
fn inputs_are_read_in_all_their_forms() {
    let text = "version: 1\nnodes:\n  1: {kind: phantom_source, size: 8}\n  a: {kind: flat_field, input: 1.out}\n  \
                b: {kind: flat_field, inputs: {in: {from: a, capacity_bytes: 256 MiB, capacity_blocks: 3}}}\n  \
                c: {kind: null_sink, input: {from: b, when_full: spill, spill_dir: /tmp}}\n";
    let graph = parse(text).unwrap();
    assert_eq!(graph.node("a").unwrap().inputs[0].from_node, "1");
    let b = &graph.node("b").unwrap().inputs[0];
    assert_eq!(b.capacity_bytes.map(std::num::NonZeroUsize::get), Some(256 << 20));
    assert_eq!(b.capacity_blocks.map(std::num::NonZeroUsize::get), Some(3));
    let c = &graph.node("c").unwrap().inputs[0];
    assert_eq!((c.when_full, c.spill_dir.as_deref()), (WhenFull::Spill, Some(std::path::Path::new("/tmp"))));
}

/// Lines of a file in which line 3 or 4 is replaced, and what its error says.
const MISTAKES: [(usize, &str, &str); 25] = [
    (
        3,
        "beam: {kind: phantom_source, size: 32, rows: 1, angels: 30}",
        "mine.yaml:3:51: unknown parameter 'angels' of kind 'phantom_source' (did you mean 'angles'?)",
    ),
    (
        3,
        "beam: {kind: fantom_source, size: 32}",
        "mine.yaml:3:16: unknown kind 'fantom_source' (did you mean 'phantom_source'?)",
    ),
    (3, "beam: {size: 32}", "mine.yaml:3:3: node 'beam' lacks 'kind'"),
    (3, "beam: {kind: [a], size: 32}", "mine.yaml:3:16: 'kind' must be the name of a kind, found a list"),
    (
        3,
        "beam: phantom_source",
        "mine.yaml:3:9: node 'beam' must be a map with the key kind, found \"phantom_source\"",
    ),
    (
        3,
        "beam: {kind: phantom_source, size: 32, input: end}",
        "mine.yaml:3:42: 'beam' is a source (phantom_source) and takes no input",
    ),
    (
        3,
        "beam: {kind: phantom_source, size: 32, size: 33}",
        "mine.yaml:3:42: 'size' stands here twice, first in line 3",
    ),
    (
        3,
        "beam: {kind: phantom_source, size: '${UNSET}'}",
        "mine.yaml:3:38: environment variable 'UNSET' is not set; '${UNSET:-VALUE}' would give a default",
    ),
    (
        4,
        "end: {kind: null_sink, input: {from: beam, when_full: latets}}",
        "mine.yaml:4:57: 'when_full' must be block, latest or spill, found \"latets\" (did you mean 'latest'?)",
    ),
    (4, "end: {kind: null_sink, input: baem}", "mine.yaml:4:33: unknown node 'baem' (did you mean 'beam'?)"),
    (4, "end: {kind: null_sink, input: beam.left}", "mine.yaml:4:33: unknown port 'left': expected 'out'"),
    (4, "end: {kind: null_sink, inputs: {left: beam}}", "mine.yaml:4:35: unknown port 'left': expected 'in'"),
    (
        4,
        "end: {kind: null_sink, inputs: {}}",
        "mine.yaml:4:26: 'end' (null_sink) needs an input, for example 'input: NODE'",
    ),
    (
        4,
        "end: {kind: null_sink, inputs: beam}",
        "mine.yaml:4:34: 'inputs' must be a map of nodes by port, found \"beam\"",
    ),
    (
        4,
        "end: {kind: null_sink, input: beam, inputs: {in: beam}}",
        "mine.yaml:4:39: 'input' and 'inputs' exclude each other",
    ),
    (
        4,
        "end: {kind: null_sink, input: [beam]}",
        "mine.yaml:4:33: an input must be the id of a node, found a list",
    ),
    (
        4,
        "end: {kind: null_sink}",
        "mine.yaml:4:3: 'end' (null_sink) needs an input, for example 'input: NODE'",
    ),
    (
        4,
        "end: {kind: null_sink, inptu: beam}",
        "mine.yaml:4:26: unknown parameter 'inptu' of kind 'null_sink' (did you mean 'input'?)",
    ),
    (
        4,
        "end: {kind: null_sink, input: {form: beam}}",
        "mine.yaml:4:34: unknown key 'form' in an input (did you mean 'from'?)",
    ),
    (4, "end: {kind: null_sink, input: {when_full: block}}", "mine.yaml:4:33: an input lacks 'from'"),
    (
        4,
        "end: {kind: null_sink, input: {from: beam, capacity_blocks: 0}}",
        "mine.yaml:4:63: 'capacity_blocks' must be a whole number from 1 on, found 0",
    ),
    (
        4,
        "end: {kind: null_sink, input: {from: beam, capacity_bytes: 3 parsecs}}",
        "mine.yaml:4:62: 'capacity_bytes' must be a size from 1 byte on, such as 1048576 or \"256 MiB\", found \"3 parsecs\"",
    ),
    (
        4,
        "end: {kind: null_sink, input: {from: beam, spill_dir: /tmp}}",
        "mine.yaml:4:46: 'spill_dir' needs 'when_full: spill', found 'when_full: block'",
    ),
    (
        4,
        "a b: {kind: null_sink, input: beam}",
        "mine.yaml:4:3: 'a b' is no node id: expected letters, digits, '_' and '-'",
    ),
    (4, "beam: {kind: null_sink, input: beam}", "mine.yaml:4:3: 'beam' stands here twice, first in line 3"),
];

#[test]
fn mistakes_are_placed_and_explained() {
    for (line, mistake, expected) in MISTAKES {
        let mut lines = [
            "version: 1",
            "nodes:",
            "  beam: {kind: phantom_source, size: 32}",
            "  end: {kind: null_sink, input: beam}",
        ]
        .map(str::to_owned);
        lines[line - 1] = format!("  {mistake}");
        let errors = refused(&lines.join("\n"));
        assert!(errors.lines().any(|error| error == expected), "expected\n{expected}\nfound\n{errors}");
    }
}

#[test]
fn mistakes_of_whole_files_are_explained() {
    for (text, expected) in [
        ("", "mine.yaml:1:1: the file is empty: expected 'version: 1' and 'nodes'"),
        ("# nothing\n", "mine.yaml:1:1: the file is empty: expected 'version: 1' and 'nodes'"),
        (
            "just text",
            "mine.yaml:1:1: a pipeline file must be a map with the keys version and nodes, found \"just text\"",
        ),
        ("nodes: [1, 2]\n", "mine.yaml:1:1: a pipeline file lacks 'version'"),
        (
            "nodes: [1, 2]\n",
            "mine.yaml:1:8: 'nodes' must be a map of nodes by their ids, one at least, found a list",
        ),
        ("version: 1\n", "mine.yaml:1:1: a pipeline file lacks 'nodes'"),
        (
            "version: 1\nnodes: {}\n",
            "mine.yaml:2:8: 'nodes' must be a map of nodes by their ids, one at least, found a map",
        ),
        (
            "version: 99\nnodes: {}\n",
            "mine.yaml:1:10: version 99 of pipeline files is unknown: expected version 1",
        ),
        (
            "version: 1\nnodez: {}\n",
            "mine.yaml:2:1: unknown key 'nodez' in a pipeline file (did you mean 'nodes'?)",
        ),
    ] {
        let errors = refused(text);
        assert!(errors.lines().any(|error| error == expected), "expected\n{expected}\nfound\n{errors}");
    }
}

#[test]
fn broken_yaml_is_placed() {
    let broken = refused("version: 1\nnodes:\n  a: {kind: null_sink\n  b: }\n");
    assert!(broken.starts_with("mine.yaml:4:"), "{broken}");
    let tab = refused("version: 1\nnodes:\n\ta: 1\n");
    assert!(tab.starts_with("mine.yaml:3:") && tab.contains("tabs are not allowed"), "{tab}");
}

#[test]
fn all_mistakes_are_told_in_the_order_of_the_file() {
    let errors = refused(
        "version: 2\nextra: 1\nnodes:\n  a: {kind: recn, input: b}\n  b: {kind: phantom_source, sise: 1}\n  \
         c: {kind: null_sink, input: x}\n  d: {kind: view, input: c}\n",
    );
    let places: Vec<_> = errors.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let expected = ["1:10", "2:1", "4:13", "5:29", "6:31", "7:26"].map(|place| format!("mine.yaml:{place}"));
    assert_eq!(places, expected, "{errors}");
}

#[test]
fn sinks_feed_nobody() {
    let errors = refused(
        "version: 1\nnodes:\n  a: {kind: phantom_source, size: 1}\n  b: {kind: view, input: a}\n  c: {kind: view, input: b}\n",
    );
    assert_eq!(errors, "mine.yaml:5:26: 'b' is a sink (view) and hands nothing on to 'c'");
}

#[test]
fn cycles_name_their_nodes() {
    let cycle = "version: 1\nnodes:\n  one: {kind: flat_field, input: two}\n  two: {kind: flat_field, input: one}\n  \
                 end: {kind: null_sink, input: two}\n  me: {kind: flat_field, input: me}\n";
    let expected = "mine.yaml:3:34: nodes feed each other in a circle: one -> two -> one\n\
                    mine.yaml:6:33: nodes feed each other in a circle: me -> me";
    assert_eq!(refused(cycle), expected);
}

#[test]
fn variables_are_typed_after_they_are_filled_in() {
    let text = "version: 1\nnodes:\n  a:\n    kind: phantom_source\n    size: ${SIZE}\n    rows: ${NONE:-2}\n    noise: '${SIZE}'\n";
    let parameters = parse(text).unwrap().node("a").unwrap().parameters.clone();
    assert_eq!(json!(parameters), json!({"size": 64, "rows": 2, "noise": "64"}));
}

#[test]
fn other_spellings_of_parameters_are_known() {
    let text = |axis| {
        format!("version: 1\nnodes:\n  a: {{kind: phantom_source}}\n  b: {{kind: recon, input: a, {axis}}}\n")
    };
    let parameters = parse(&text("center: 3")).unwrap().node("b").unwrap().parameters.clone();
    assert_eq!(json!(parameters), json!({"rotation_axis": 3}));
    assert!(refused(&text("centre: 3")).contains("(did you mean 'center'?)"));
    assert!(
        refused(&text("rotation_axis: 4, center: 3"))
            .starts_with("mine.yaml:4:48: 'rotation_axis' stands here twice")
    );
}

#[test]
fn values_are_set() {
    let mut graph = parse(EXAMPLE).unwrap();
    for assignment in [
        "volume.center=23.5",
        "volume.preview.slices=[xy, xz]",
        "eyes.input.when_full=block",
        "keep.input.capacity_blocks=2",
        "keep.path='a=b: c'",
        "detector.endpoint=tcp://[::1]:99",
    ] {
        graph.set(assignment, &registry(), &environment).unwrap();
    }
    let expected = json!({"rotation_axis": 23.5, "preview": {"slices": ["xy", "xz"]}});
    assert_eq!(json!(graph.node("volume").unwrap().parameters), expected);
    assert_eq!(graph.node("eyes").unwrap().inputs[0].when_full, WhenFull::Block);
    assert_eq!(
        graph.node("keep").unwrap().inputs[0].capacity_blocks.map(std::num::NonZeroUsize::get),
        Some(2)
    );
    assert_eq!(json!(graph.node("keep").unwrap().parameters), json!({"path": "a=b: c"}));
    assert_eq!(graph.node("detector").unwrap().parameters["endpoint"], json!("tcp://[::1]:99"));
    graph.set("volume.preview.slices.1=yz", &registry(), &environment).unwrap();
    assert_eq!(graph.node("volume").unwrap().parameters["preview"], json!({"slices": ["xy", "yz"]}));
}

#[test]
fn what_cannot_be_set_changes_nothing() {
    let mut graph = parse(EXAMPLE).unwrap();
    for (assignment, expected) in [
        ("volum.method=fbp", "--set:1:1: unknown node 'volum' (did you mean 'volume'?)"),
        ("volume.metod=fbp", "--set:1:8: unknown parameter 'metod' of kind 'recon' (did you mean 'method'?)"),
        ("volume.kind=recn", "--set:1:13: unknown kind 'recn' (did you mean 'recon'?)"),
        ("volume", "--set:1:1: expected NODE.KEY=VALUE, found 'volume'"),
        ("volume=3", "--set:1:1: expected NODE.KEY=VALUE, found 'volume=3'"),
        (
            "volume.rotation_axis.deep=3",
            "--set:1:22: 'rotation_axis' must be a map, or a list that is long enough, found \"auto\"",
        ),
        ("correct.input=keep", "--set:1:15: 'keep' is a sink (zarr_sink) and hands nothing on to 'correct'"),
    ] {
        let errors = graph.set(assignment, &registry(), &environment).unwrap_err().to_string();
        assert!(errors.lines().any(|error| error == expected), "expected\n{expected}\nfound\n{errors}");
        assert_eq!(graph, parse(EXAMPLE).unwrap());
    }
}

#[test]
fn later_stages_find_the_place_of_a_value() {
    let text = "version: 1\nnodes:\n  beam:\n    kind: phantom_source\n    size: big\n  volume:\n    kind: recon\n    input: beam\n    \
                preview:\n      slices: [xy]\n      evry_projections: 3\n";
    let graph = parse(text).unwrap();
    let at = |node: &str, path: &[&str], message: &str| {
        let path: Vec<_> = path.iter().map(|key| (*key).to_owned()).collect();
        graph.error_at(node, &path, message).to_string()
    };
    assert_eq!(
        at("beam", &["size"], "invalid type: string \"big\", expected u32"),
        "mine.yaml:5:11: node 'beam': size: invalid type: string \"big\", expected u32"
    );
    assert_eq!(
        at("beam", &["size"], "expected a number"),
        "mine.yaml:5:11: node 'beam': size: expected a number, found \"big\""
    );
    assert_eq!(at("beam", &["rows"], "missing"), "mine.yaml:3:3: node 'beam': rows: missing");
    assert_eq!(
        at("volume", &["preview", "slices", "0"], "no"),
        "mine.yaml:10:16: node 'volume': preview.slices.0: no, found \"xy\""
    );
    assert_eq!(
        at(
            "volume",
            &["preview"],
            "unknown field `evry_projections`, expected `every_projections` or `slices`"
        ),
        "mine.yaml:11:7: node 'volume': preview: unknown field `evry_projections`, expected `every_projections` or \
         `slices` (did you mean 'every_projections'?)"
    );
    assert_eq!(at("volume", &["input"], "no"), "mine.yaml:8:12: node 'volume': input: no, found \"beam\"");
    assert_eq!(at("nobody", &[], "no"), "mine.yaml:3:3: node 'nobody': no");
}

#[test]
fn errors_are_diagnostics() {
    use miette::Diagnostic;
    let errors =
        Graph::parse("f", "version: 1\nnodes: {a: {kind: recn}}", &registry(), &environment).unwrap_err();
    let error = errors.iter().next().unwrap();
    assert_eq!(*error.cause, Cause::UnknownKind { kind: "recn".to_owned() });
    assert_eq!(error.code().unwrap().to_string(), "graph::unknown_kind");
    assert_eq!(error.help().unwrap().to_string(), "did you mean 'recon'?");
    let label = error.labels().unwrap().next().unwrap();
    assert_eq!(&error.place.text()[label.offset()..label.offset() + label.len()], "recn");
    assert_eq!(errors.related().unwrap().count(), errors.iter().count());
}

#[test]
fn the_schema_knows_every_kind() {
    let schema = crate::schema(&registry());
    let node = &schema["$defs"]["kind.recon"];
    assert_eq!(node["properties"]["kind"], json!({"const": "recon"}));
    assert_eq!(node["properties"]["center"], node["properties"]["rotation_axis"]);
    assert_eq!(node["unevaluatedProperties"], json!(false));
    assert_eq!(node["allOf"], json!([{"$ref": "#/$defs/fed"}]));
    assert_eq!(schema["$defs"]["kind.phantom_source"]["required"], json!(["kind", "size"]));
    assert_eq!(
        schema["$defs"]["kind.phantom_source"]["properties"]["size"]["type"],
        json!(["integer", "string"])
    );
    assert_eq!(schema["$defs"]["kind.plugin"]["additionalProperties"], json!(true));
    let kinds = schema["properties"]["nodes"]["additionalProperties"]["oneOf"].as_array().unwrap();
    assert_eq!(kinds.len(), registry().iter().count());
    // Both `recon` and `zarr_sink` define a `Method`, and every reference leads somewhere.
    let text = schema.to_string();
    for reference in text.split("\"$ref\":\"#/$defs/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schema["$defs"].get(name).is_some(), "{name} is not defined");
    }
    assert!(
        schema["$defs"].get("kind.recon.Method").is_some()
            && schema["$defs"].get("kind.zarr_sink.Method").is_some()
    );
}
