//! The pipeline files that come with the program can be loaded.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};

use beamstream::{Graph, load_file, registry};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn load(name: &str) -> Graph {
    let none: [&str; 0] = [];
    load_file(&folder().join(name), &none, &registry()).unwrap()
}

#[test]
fn every_file_is_loaded() {
    let mut loaded = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        load(entry.unwrap().file_name().to_str().unwrap());
        loaded += 1;
    }
    assert!(loaded >= 3, "{loaded} files in {}", folder().display());
}

#[test]
fn live_files_show_what_they_do() {
    for name in ["live-dectris.yaml", "live-concert.yaml"] {
        assert!(load(name).nodes().iter().any(|node| node.kind == "view"), "{name}");
    }
}

#[test]
fn variables_are_typed() {
    let graph = load("offline.yaml");
    assert_eq!(graph.node("convert").unwrap().parameters["range"], "0:0.05");
    assert_eq!(graph.node("volume").unwrap().parameters["rotation_axis"], "auto");
}
