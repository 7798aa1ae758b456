//! The arrows between the packages point one way, and each package keeps the rules of the house.
//!
//! What is allowed stands in the tables here and nowhere else; a table that allows more than is used fails too.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which of our own packages each one uses, by their folders, lowest first.
const ARROWS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("buffer", &["core"]),
    ("ops", &["core", "buffer"]),
    ("cpu", &["core", "buffer", "ops"]),
    ("cuda", &["core", "buffer", "ops"]),
    ("node", &["core", "buffer", "ops"]),
    ("graph", &["node"]),
    ("tape", &["core"]),
    ("engine", &["core", "buffer", "ops", "node", "graph", "tape"]),
    ("codec", &[]),
    ("disk", &[]),
    ("zmq", &["core", "buffer", "node", "codec"]),
    ("io", &["core", "buffer", "ops", "node", "codec"]),
    ("phantom", &[]),
    ("tomo", &["core", "buffer", "ops", "node", "phantom"]),
    ("flow", &["core", "buffer", "node", "tape"]),
    (
        "beamstream",
        &["core", "buffer", "ops", "cpu", "cuda", "node", "graph", "engine", "zmq", "io", "tomo", "flow"],
    ),
    ("server", &["core", "buffer", "node", "engine"]),
    ("wire", &["core"]),
    ("sim", &["core", "io", "phantom", "wire"]),
    ("cli", &["beamstream", "server", "sim"]),
    ("testkit", &["core", "buffer", "ops", "cpu", "node", "phantom"]),
    (
        "benches",
        &[
            "core",
            "buffer",
            "ops",
            "cpu",
            "node",
            "graph",
            "engine",
            "codec",
            "zmq",
            "phantom",
            "tomo",
            "flow",
            "beamstream",
        ],
    ),
    ("tests", &[]),
    ("xtask", &[]),
];

/// Which of our own packages the tests of each one use besides. All may use `testkit` and `phantom`.
const TEST_ARROWS: &[(&str, &[&str])] = &[
    ("cuda", &["cpu"]),
    ("engine", &["cpu"]),
    ("zmq", &["wire"]),
    ("tests", &["beamstream", "core", "graph", "node", "sim"]),
];

/// Crates of others that only these packages use.
const RESERVED: &[(&str, &[&str])] = &[
    ("actix", &["engine"]),
    ("actix-web", &["server"]),
    ("clap", &["cli", "sim"]),
    ("cudarc", &["cuda"]),
    ("indicatif", &["cli", "sim"]),
    ("libloading", &["cuda"]),
    ("lz4-sys", &["codec"]),
    ("rayon", &["cpu"]),
    ("zeromq", &["zmq"]),
];

/// Packages that hold unsafe code.
const UNSAFE: &[&str] = &["buffer", "codec", "cpu", "cuda", "disk", "benches", "testkit"];

/// Packages that write to the terminal; the test kit says what its tests skip.
const PRINTING: &[&str] = &["benches", "cli", "sim", "testkit", "xtask"];

struct Package {
    /// The folder's own name, by which the tables call it.
    short: String,
    name: String,
    description: String,
    folder: PathBuf,
    uses: BTreeSet<String>,
    uses_in_tests: BTreeSet<String>,
}

impl Package {
    fn manifest(&self) -> String {
        fs::read_to_string(self.folder.join("Cargo.toml")).unwrap()
    }

    /// Its source files with their texts.
    fn sources(&self) -> Vec<(PathBuf, String)> {
        let mut files = Vec::new();
        collect(&self.folder.join("src"), &mut files);
        files
    }
}

/// Adds all Rust files below `folder`.
fn collect(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
}

/// All packages of the workspace, as cargo sees them.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = metadata["packages"].as_array().unwrap();
    let folder =
        |value: &Value| Path::new(value["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
    let short = |value: &Value| folder(value).file_name().unwrap().to_string_lossy().into_owned();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let own: BTreeMap<String, String> =
        found.iter().map(|value| (text(&value["name"]), short(value))).collect();
    let package = |value: &Value| {
        let (mut uses, mut uses_in_tests) = (BTreeSet::new(), BTreeSet::new());
        for dependency in value["dependencies"].as_array().unwrap() {
            let name = text(&dependency["name"]);
            let set = if dependency["kind"] == "dev" { &mut uses_in_tests } else { &mut uses };
            set.insert(own.get(&name).cloned().unwrap_or(name));
        }
        let (name, description) = (text(&value["name"]), text(&value["description"]));
        Package { short: short(value), name, description, folder: folder(value), uses, uses_in_tests }
    };
    found.iter().map(package).collect()
}

/// The row of a table, empty if there is none.
fn row(table: &[(&str, &[&str])], name: &str) -> BTreeSet<String> {
    let found = table.iter().find(|(package, _)| *package == name);
    found.into_iter().flat_map(|(_, row)| row.iter().map(|&entry| entry.to_owned())).collect()
}

/// Fails with all complaints at once.
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn arrows_are_those_of_the_table() {
    let packages = packages();
    let own: BTreeSet<String> = packages.iter().map(|package| package.short.clone()).collect();
    let mut complaints = Vec::new();
    for package in &packages {
        let name = &package.short;
        if !ARROWS.iter().any(|(listed, _)| listed == name) {
            complaints.push(format!("{name} is not in the table"));
        }
        let (allowed, found) = (row(ARROWS, name), &package.uses & &own);
        complaints.extend((&found - &allowed).iter().map(|used| format!("{name} -> {used} is not allowed")));
        complaints.extend(
            (&allowed - &found).iter().map(|used| format!("{name} -> {used} is allowed, but unused")),
        );
        let mut allowed_in_tests = &allowed | &row(TEST_ARROWS, name);
        allowed_in_tests.extend(["testkit", "phantom"].map(str::to_owned));
        let only_in_tests = &(&package.uses_in_tests & &own) - &allowed_in_tests;
        complaints.extend(
            only_in_tests.iter().map(|used| format!("{name} -> {used} is not allowed, not even in tests")),
        );
    }
    let gone = ARROWS.iter().chain(TEST_ARROWS).filter(|(name, _)| !own.contains(*name));
    complaints.extend(gone.map(|(name, _)| format!("{name} is in the table, but not in the workspace")));
    assert_none(&complaints);
}

#[test]
fn arrows_point_downwards() {
    let place: BTreeMap<&str, usize> = ARROWS.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
    let mut complaints = Vec::new();
    for (name, row) in ARROWS {
        let upwards = row.iter().filter(|used| place[**used] >= place[name]);
        complaints.extend(upwards.map(|used| format!("{used} stands below {name}, which uses it")));
    }
    assert_none(&complaints);
}

#[test]
fn foreign_crates_stay_where_they_belong() {
    let mut complaints = Vec::new();
    for Package { short, uses, .. } in packages() {
        let strays =
            RESERVED.iter().filter(|(name, users)| uses.contains(*name) && !users.contains(&short.as_str()));
        complaints.extend(
            strays.map(|(name, users)| format!("{short} uses {name}, which is for {}", users.join(", "))),
        );
    }
    assert_none(&complaints);
}

#[test]
fn every_package_opens_with_its_line_and_keeps_the_lints() {
    let mut complaints = Vec::new();
    for package in packages() {
        let Package { name, description, folder, .. } = &package;
        let readme = fs::read_to_string(folder.join("README.md")).unwrap_or_default().replace('`', "");
        let lines = readme.strip_prefix(&format!("# {name}\n")).unwrap_or_default();
        if !lines.trim_start().starts_with(description) {
            complaints
                .push(format!("the README.md of {name} does not begin with '# {name}' and '{description}'"));
        }
        if !package.manifest().contains("[lints]\nworkspace = true") {
            complaints.push(format!("{name} does not take over the lints of the workspace"));
        }
    }
    assert_none(&complaints);
}

#[test]
fn unsafe_code_and_printing_are_allowed_where_they_are_meant_to_be() {
    let mut complaints = Vec::new();
    for package in packages() {
        for (exception, packages) in
            [("unsafe_code", UNSAFE), ("print_stdout", PRINTING), ("print_stderr", PRINTING)]
        {
            if packages.contains(&package.short.as_str()) {
                continue;
            }
            // Only the lint's name in an attribute: it stands in no other sentence.
            let allows = |text: &str| text.contains("allow(") && text.contains(exception);
            let found = package.sources().into_iter().filter(|(_, text)| allows(text));
            complaints.extend(found.map(|(path, _)| format!("{} allows {exception}", path.display())));
        }
    }
    assert_none(&complaints);
}

#[test]
fn files_stay_short_enough_to_be_read() {
    let long = packages()
        .into_iter()
        .flat_map(|package| package.sources())
        .filter(|(_, text)| text.lines().count() > 600);
    assert_none(
        &long.map(|(path, _)| format!("{} has more than 600 lines", path.display())).collect::<Vec<_>>(),
    );
}
