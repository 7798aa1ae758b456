//! The arrows between the packages point one way, and each package keeps the rules of the house.
//!
//! What is allowed stands in the tables here and nowhere else; a table that allows more than is used fails too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which of our own packages each one uses.
const ARROWS: &[(&str, &[&str])] = &[
    ("beamstream-core", &[]),
    ("beamstream-buffer", &["beamstream-core"]),
    ("beamstream-ops", &["beamstream-buffer", "beamstream-core"]),
    ("beamstream-cpu", &["beamstream-core", "beamstream-ops"]),
    (
        "beamstream-node",
        &["beamstream-buffer", "beamstream-core", "beamstream-ops"],
    ),
    ("beamstream-graph", &["beamstream-node"]),
    (
        "beamstream-engine",
        &[
            "beamstream-buffer",
            "beamstream-core",
            "beamstream-graph",
            "beamstream-node",
            "beamstream-ops",
        ],
    ),
    ("beamstream-codec", &[]),
    (
        "beamstream-zmq",
        &[
            "beamstream-buffer",
            "beamstream-codec",
            "beamstream-core",
            "beamstream-node",
        ],
    ),
    (
        "beamstream-io",
        &[
            "beamstream-buffer",
            "beamstream-codec",
            "beamstream-core",
            "beamstream-node",
        ],
    ),
    ("beamstream-tomo", &["beamstream-node"]),
    (
        "beamstream",
        &[
            "beamstream-cpu",
            "beamstream-engine",
            "beamstream-io",
            "beamstream-tomo",
        ],
    ),
    ("beamstream-server", &["beamstream"]),
    ("beamstream-cli", &["beamstream", "beamstream-server"]),
    ("beamstream-testkit", &["beamstream-core"]),
    ("beamstream-sim-wire", &["beamstream-core"]),
    (
        "beamstream-sim",
        &[
            "beamstream-core",
            "beamstream-io",
            "beamstream-sim-wire",
            "beamstream-testkit",
        ],
    ),
    (
        "beamstream-benches",
        &[
            "beamstream-buffer",
            "beamstream-codec",
            "beamstream-core",
            "beamstream-cpu",
            "beamstream-ops",
            "beamstream-testkit",
            "beamstream-zmq",
        ],
    ),
    ("beamstream-tests", &[]),
    ("xtask", &[]),
];

/// Which of our own packages the tests of each one use besides, and besides `beamstream-testkit`, which all may use.
const TEST_ARROWS: &[(&str, &[&str])] = &[("beamstream-zmq", &["beamstream-sim-wire"])];

/// Crates of others that only these packages may use.
const RESERVED: &[(&str, &[&str])] = &[
    ("actix", &["beamstream-engine"]),
    ("actix-web", &["beamstream-server"]),
    ("anyhow", &["beamstream-cli", "beamstream-server"]),
    ("clap", &["beamstream-cli", "beamstream-sim"]),
    ("indicatif", &["beamstream-cli", "beamstream-sim"]),
    ("lz4-sys", &["beamstream-codec"]),
    ("rayon", &["beamstream-cpu"]),
    ("zeromq", &["beamstream-zmq"]),
];

/// Packages that may hold unsafe code.
const UNSAFE: &[&str] = &[
    "beamstream-buffer",
    "beamstream-codec",
    "beamstream-cpu",
    "beamstream-engine",
];

/// Packages that may write to the terminal.
const PRINTING: &[&str] = &["beamstream-benches", "beamstream-cli", "beamstream-sim", "xtask"];

struct Package {
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
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(package)
        .collect()
}

fn package(value: &Value) -> Package {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (mut uses, mut uses_in_tests) = (BTreeSet::new(), BTreeSet::new());
    for dependency in value["dependencies"].as_array().unwrap() {
        let set = if dependency["kind"] == "dev" {
            &mut uses_in_tests
        } else {
            &mut uses
        };
        set.insert(text(&dependency["name"]));
    }
    Package {
        name: text(&value["name"]),
        description: text(&value["description"]),
        folder: Path::new(value["manifest_path"].as_str().unwrap())
            .parent()
            .unwrap()
            .to_owned(),
        uses,
        uses_in_tests,
    }
}

/// The row of a table, empty if there is none.
fn row(table: &[(&str, &[&str])], name: &str) -> BTreeSet<String> {
    let found = table.iter().find(|(package, _)| *package == name);
    found
        .into_iter()
        .flat_map(|(_, row)| row.iter().map(|&entry| entry.to_owned()))
        .collect()
}

/// Fails with all complaints at once.
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn arrows_are_those_of_the_table() {
    let packages = packages();
    let own: BTreeSet<String> = packages.iter().map(|package| package.name.clone()).collect();
    let mut complaints = Vec::new();
    for package in &packages {
        let name = &package.name;
        if !ARROWS.iter().any(|(listed, _)| listed == name) {
            complaints.push(format!("{name} is not in the table"));
        }
        let (allowed, found) = (row(ARROWS, name), &package.uses & &own);
        complaints.extend(
            (&found - &allowed)
                .iter()
                .map(|used| format!("{name} -> {used} is not allowed")),
        );
        complaints.extend(
            (&allowed - &found)
                .iter()
                .map(|used| format!("{name} -> {used} is allowed, but unused")),
        );
        let mut allowed_in_tests = &allowed | &row(TEST_ARROWS, name);
        allowed_in_tests.insert("beamstream-testkit".to_owned());
        let found_in_tests = &package.uses_in_tests & &own;
        complaints.extend(
            (&found_in_tests - &allowed_in_tests)
                .iter()
                .map(|used| format!("{name} -> {used} is not allowed, not even in tests")),
        );
    }
    let gone = ARROWS
        .iter()
        .chain(TEST_ARROWS)
        .filter(|(name, _)| !own.contains(*name));
    complaints.extend(gone.map(|(name, _)| format!("{name} is in the table, but not in the workspace")));
    assert_none(&complaints);
}

#[test]
fn arrows_point_downwards() {
    let place: BTreeMap<&str, usize> = ARROWS
        .iter()
        .enumerate()
        .map(|(at, (name, _))| (*name, at))
        .collect();
    let mut complaints = Vec::new();
    for (name, row) in ARROWS {
        let upwards = row
            .iter()
            .filter(|used| place[**used] >= place[name] && **used != "beamstream-testkit");
        complaints.extend(upwards.map(|used| format!("{used} stands below {name}, which uses it")));
    }
    assert_none(&complaints);
}

#[test]
fn foreign_crates_stay_where_they_belong() {
    let mut complaints = Vec::new();
    for package in packages() {
        for (dependency, users) in RESERVED {
            if package.uses.contains(*dependency) && !users.contains(&package.name.as_str()) {
                complaints.push(format!(
                    "{} uses {dependency}, which is for {}",
                    package.name,
                    users.join(", ")
                ));
            }
        }
    }
    assert_none(&complaints);
}

#[test]
fn every_package_opens_with_its_line_and_keeps_the_lints() {
    let mut complaints = Vec::new();
    for package in packages() {
        let Package {
            name,
            description,
            folder,
            ..
        } = &package;
        let readme = fs::read_to_string(folder.join("README.md")).unwrap_or_default().replace('`', "");
        if !readme.starts_with(&format!("# {name}\n{description}")) {
            complaints.push(format!(
                "the README.md of {name} does not begin with '# {name}' and '{description}'"
            ));
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
        for (exception, packages) in [
            ("unsafe_code", UNSAFE),
            ("print_stdout", PRINTING),
            ("print_stderr", PRINTING),
        ] {
            if packages.contains(&package.name.as_str()) {
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
        &long
            .map(|(path, _)| format!("{} has more than 600 lines", path.display()))
            .collect::<Vec<_>>(),
    );
}
