//! The documents keep step with the program: pipelines parse, links lead somewhere, the map has every package.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::path::{Path, PathBuf};

use beamstream_graph::Graph;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All Markdown files of the repository with their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in [".", "docs", "configs", "kernels", "benches/results", "tests"] {
        collect(&root().join(folder), &mut found);
    }
    for group in ["crates", "simulators"] {
        for entry in fs::read_dir(root().join(group)).unwrap().flatten() {
            collect(&entry.path(), &mut found);
        }
    }
    assert!(found.iter().any(|(path, _)| path.ends_with("README.md")));
    found
}

/// Adds the Markdown files that lie directly in `folder`.
fn collect(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}

/// The texts in fences of that language.
fn fenced<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("\n```{language}\n");
    text.split(&opening).skip(1).filter_map(|rest| rest.split_once("\n```")).map(|(fence, _)| fence).collect()
}

/// The places that a text links to.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

#[test]
fn pipelines_parse() {
    let registry = beamstream::registry();
    let mut complaints = Vec::new();
    for (path, text) in documents() {
        for pipeline in fenced(&text, "yaml").into_iter().filter(|fence| fence.contains("nodes:")) {
            let name = path.display().to_string();
            if let Err(errors) = Graph::parse(&name, pipeline, &registry, &|_| None) {
                complaints.push(errors.to_string());
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn launch_lines_parse() {
    let registry = beamstream::registry();
    let mut complaints = Vec::new();
    for (path, text) in documents() {
        let commands = fenced(&text, "sh").into_iter().flat_map(str::lines);
        for line in commands.filter_map(|command| command.split_once("beamstream launch '")) {
            let line = line.1.split('\'').next().unwrap_or_default();
            if let Err(errors) = Graph::launch(line, &registry, &|_| None) {
                complaints.push(format!("{}: {errors}", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let mut complaints = Vec::new();
    for (path, text) in documents() {
        let folder = path.parent().unwrap();
        for target in links(&text).filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = target.split('#').next().unwrap_or_default();
            if !folder.join(file).exists() {
                complaints.push(format!("{} links to {target}, which is not there", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The paths within the repository that a text names in backticks.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    let folders = ["crates/", "simulators/", "tests/", "benches/", "docs/", "xtask/", "configs/"];
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(move |span| {
        folders.iter().any(|folder| span.starts_with(folder)) && !span.contains(['*', ' ', '<'])
    })
}

#[test]
fn files_that_are_named_exist() {
    let mut complaints = Vec::new();
    for (path, text) in documents() {
        for named in named_paths(&text) {
            // A README may name files from its own folder.
            if !root().join(named).exists() && !path.parent().unwrap().join(named).exists() {
                complaints.push(format!("{} names `{named}`, which is not there", path.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_map_has_every_package() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut complaints = Vec::new();
    for group in ["crates", "simulators"] {
        for entry in fs::read_dir(root().join(group)).unwrap().flatten().filter(|entry| entry.path().is_dir())
        {
            let folder = format!("`{group}/{}`", entry.file_name().to_string_lossy());
            if !map.contains(&folder) {
                complaints.push(format!("ARCHITECTURE.md does not tell of {folder}"));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
