//! Launch lines.

use serde_json::json;

use super::kinds::registry;
use super::{environment, parse};
use crate::{Graph, WhenFull};

fn launch(line: &str) -> Result<Graph, String> {
    Graph::launch(line, &registry(), &environment).map_err(|errors| errors.to_string())
}

#[test]
fn a_line_is_the_same_model_as_a_file() {
    let line = "phantom_source size=32 rows=${NONE:-2} ! flat_field ! recon center=15.5 name=volume ! npy_sink path=a.npy";
    let file = "version: 1\nnodes:\n  phantom_source: {kind: phantom_source, size: 32, rows: 2}\n  \
                flat_field: {kind: flat_field, input: phantom_source}\n  \
                volume: {kind: recon, input: flat_field, rotation_axis: 15.5}\n  \
                npy_sink: {kind: npy_sink, input: volume, path: a.npy}\n";
    assert_eq!(launch(line).unwrap(), parse(file).unwrap());
}

#[test]
fn branches_nest_and_ids_stay_apart() {
    let line = "zmq endpoint=tcp://*:9 ! flat_field ! [npy path=a,recon ! [npy path=\"b, c\" , view when_full=latest],\
                recon name=npy_sink_2 ! null]";
    let graph = launch(line).unwrap();
    let joined: Vec<_> = graph
        .nodes()
        .iter()
        .map(|node| (node.id.as_str(), node.inputs.first().map_or("", |input| input.from_node.as_str())))
        .collect();
    assert_eq!(
        joined,
        [
            ("zmq_source", ""),
            ("flat_field", "zmq_source"),
            ("npy_sink", "flat_field"),
            ("recon", "flat_field"),
            ("npy_sink_3", "recon"),
            ("view", "recon"),
            ("npy_sink_2", "flat_field"),
            ("null_sink", "npy_sink_2"),
        ]
    );
    assert_eq!(graph.node("npy_sink_3").unwrap().parameters["path"], json!("b, c"));
    assert_eq!(graph.node("view").unwrap().inputs[0].when_full, WhenFull::Latest);
}

#[test]
fn values_are_typed_unless_they_are_quoted() {
    let line = r#"phantom_source ! plugin a=1 b="1" c='x y' d=[1, "a b", {e: true}] f={g: [h]} i=p/"q r"/s j="\"\\" k=a!b l=!"#;
    let parameters = launch(line).unwrap().node("plugin").unwrap().parameters.clone();
    let expected = json!({
        "a": 1, "b": "1", "c": "x y", "d": [1, "a b", {"e": true}], "f": {"g": ["h"]}, "i": "p/q r/s", "j": "\"\\",
        "k": "a!b", "l": "!"
    });
    assert_eq!(json!(parameters), expected);
}

#[test]
fn mistakes_name_their_column() {
    for (line, expected) in [
        (
            "phantom_source size=32 ! flat_feild ! null_sink",
            "launch line:1:26: unknown kind 'flat_feild' (did you mean 'flat_field'?)",
        ),
        (
            "phantom_source sise=32 ! null_sink",
            "launch line:1:16: unknown parameter 'sise' of kind 'phantom_source' (did you mean 'size'?)",
        ),
        ("", "launch line:1:1: expected the name of a kind, found the end of the line"),
        ("phantom_source ! ", "launch line:1:18: expected the name of a kind, found the end of the line"),
        ("! view", "launch line:1:1: expected the name of a kind, found '!'"),
        ("[view]", "launch line:1:1: expected the name of a kind, found '['"),
        (
            "phantom_source ! [view, view",
            "launch line:1:29: expected '!', ',' or ']', found the end of the line",
        ),
        (
            "phantom_source ! [view] ! view",
            "launch line:1:25: expected '!' or the end of the line, found '!'",
        ),
        ("phantom_source , view", "launch line:1:16: expected KEY=VALUE or '!', found ','"),
        ("phantom_source view", "launch line:1:16: expected '=' and a value behind 'view', or '!' before it"),
        ("phantom_source size='3", "launch line:1:21: this quote is not closed"),
        ("phantom_source size=[3", "launch line:1:21: this bracket is not closed"),
        (
            "phantom_source size=3 size=4 ! view",
            "launch line:1:23: 'size' stands here twice, first in line 1",
        ),
        ("phantom_source name=a ! view name=a", "launch line:1:35: 'a' stands here twice, first in line 1"),
        (
            "phantom_source ! view input=a",
            "launch line:1:23: 'input' cannot be set in a launch line: '!' joins nodes",
        ),
        (
            "phantom_source ! view when_full=newest",
            "launch line:1:33: 'when_full' must be block, latest or spill, found \"newest\" (did you mean 'latest'?)",
        ),
        (
            "phantom_source when_full=block ! view",
            "launch line:1:16: 'phantom_source' is a source (phantom_source) and takes no input",
        ),
        ("view", "launch line:1:1: 'view' (view) needs an input, for example 'input: NODE'"),
        (
            "phantom_source ! view ! view",
            "launch line:1:25: 'view' is a sink (view) and hands nothing on to 'view_2'",
        ),
        (
            "phantom_source size=${UNSET} ! view",
            "launch line:1:21: environment variable 'UNSET' is not set; '${UNSET:-VALUE}' would give a default",
        ),
    ] {
        let errors = launch(line).expect_err(line);
        assert!(
            errors.lines().any(|error| error == expected),
            "{line}\nexpected\n{expected}\nfound\n{errors}"
        );
    }
}

#[test]
fn depth_is_bounded() {
    let line = format!("phantom_source{}", " ! [flat_field".repeat(1000));
    assert!(launch(&line).unwrap_err().contains("at most 32 levels of branches"));
}
