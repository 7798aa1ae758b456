//! The program as its users meet it: arguments in, text and exit code out.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::tempdir;

fn beamstream(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_beamstream"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = beamstream(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[track_caller]
fn refused(folder: &Path, arguments: &[&str], words: &[&str]) {
    let output = beamstream(folder, arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?} does not name {word}: {text}");
    }
    assert!(!text.contains('\u{1b}'), "escape codes in {text}");
}

const PIPELINE: &str = "\
version: 1
nodes:
  beam: { kind: phantom_source, size: 32, rows: 2, angles: 40 }
  correct: { kind: flat_field, input: beam }
  volume: { kind: recon, input: correct, rotation_axis: 15.5 }
  keep: { kind: npy_sink, input: volume, path: v.npy }
";

#[test]
fn help_and_version() {
    let folder = tempdir().unwrap();
    let help = succeeds(folder.path(), &["--help"]);
    assert!(help.contains("beamstream recon scan.nxs -o volume.h5") && help.contains("Exit codes"));
    for command in [
        "demo",
        "run",
        "launch",
        "recon",
        "inspect",
        "nodes",
        "schema",
        "check",
        "explain",
        "doctor",
        "completions",
    ] {
        assert!(
            help.contains(command) && succeeds(folder.path(), &[command, "--help"]).contains("Usage"),
            "{command}"
        );
    }
    assert_eq!(
        succeeds(folder.path(), &["--version"]),
        concat!("beamstream ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn slips_get_suggestions() {
    let folder = tempdir().unwrap();
    refused(folder.path(), &["recom"], &["recom", "recon"]);
    refused(
        folder.path(),
        &["recon", "x.h5", "-o", "v.h5", "--rotation-axs", "3"],
        &["--rotation-axs", "--rotation-axis"],
    );
    refused(folder.path(), &["recon", "x.h5", "-o", "v.h5", "--threads=-3"], &["--threads", "-3"]);
    refused(folder.path(), &["nodes", "recn"], &["recn", "recon"]);
    refused(folder.path(), &["launch", "phantom ! flat_feild ! null"], &["flat_feild", "flat_field"]);
    refused(folder.path(), &["recon", "nowhere.h5", "-o", "v.h5"], &["error: ", "nowhere.h5"]);
    refused(folder.path(), &["check", "none.yaml"], &["none.yaml"]);
}

#[test]
fn mistakes_of_a_pipeline_have_places() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("mine.yaml"), PIPELINE.replace("angles", "angels")).unwrap();
    refused(folder.path(), &["check", "mine.yaml"], &["error: mine.yaml:3:", "angels", "'angles'"]);
}

#[test]
fn json_logs_are_json_to_the_last_line() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("mine.yaml"), PIPELINE).unwrap();
    for arguments in [
        &["--log-format", "json", "recom"][..],
        &["check", "none.yaml", "--log-format=json"],
        &["run", "mine.yaml", "-vv", "--log-format", "json"],
    ] {
        let output = beamstream(folder.path(), arguments);
        let text = stderr(&output);
        assert!(!text.is_empty(), "{arguments:?} tells nothing");
        for line in text.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).unwrap().is_object(), "{line}");
        }
    }
}

#[test]
fn a_pipeline_runs_and_reports() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("mine.yaml"), PIPELINE).unwrap();
    let told = succeeds(
        folder.path(),
        &[
            "run",
            "mine.yaml",
            "--report",
            "r/report.json",
            "--set",
            "beam.size=48",
            "--set",
            "volume.center=23.5",
        ],
    );
    assert!(told.is_empty(), "stdout is for results: {told}");
    let volume = std::fs::read(folder.path().join("v.npy")).unwrap();
    assert!(String::from_utf8_lossy(&volume[..128]).contains("(2, 48, 48)"));
    let report = std::fs::read_to_string(folder.path().join("r/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["series"][0]["rotation_axis_px"], 23.5);
    refused(folder.path(), &["run", "mine.yaml"], &["v.npy", "--overwrite"]);
    succeeds(folder.path(), &["run", "mine.yaml", "--overwrite", "-q"]);
}

#[test]
fn the_plan_tells_types_placement_and_memory() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("mine.yaml"), PIPELINE).unwrap();
    let text = succeeds(folder.path(), &["explain", "mine.yaml"]);
    for word in ["beam", "correct", "volume", "keep", "cpu", "f32", "iB"] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
    let json = succeeds(folder.path(), &["explain", "mine.yaml", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["memory"]["host_bytes"].is_u64(), "{json}");
}

#[test]
fn a_live_pipeline_is_explained_by_a_header() {
    let folder = tempdir().unwrap();
    let line = PIPELINE
        .replace("phantom_source, size: 32, rows: 2, angles: 40", "zmq_source, endpoint: tcp://127.0.0.1:9");
    std::fs::write(folder.path().join("live.yaml"), line).unwrap();
    std::fs::write(folder.path().join("header.json"), r#"{"rows": 4, "columns": 32, "projections": 90}"#)
        .unwrap();
    let text = succeeds(folder.path(), &["explain", "live.yaml", "--header", "header.json", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["memory"]["host_bytes"].is_u64(), "{json}");
}

#[test]
fn machine_output_is_one_document() {
    let folder = tempdir().unwrap();
    for arguments in
        [&["nodes", "--json"][..], &["nodes", "recon", "--json"], &["schema"], &["doctor", "--json"]]
    {
        let text = succeeds(folder.path(), arguments);
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
    assert!(succeeds(folder.path(), &["completions", "bash"]).contains("recon"));
}

#[test]
fn the_demo_leaves_a_volume() {
    let folder = tempdir().unwrap();
    let arguments = [
        "demo",
        "--headless",
        "--seconds",
        "2",
        "--size",
        "32",
        "--angles",
        "40",
        "--out",
        "out",
        "--threads",
        "1",
    ];
    let output = beamstream(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(text.contains("volume.h5") && text.contains("report.json"), "{text}");
    assert!(folder.path().join("out/volume.h5").metadata().unwrap().len() >= 32 * 32 * 4);
}

/// Runs the program as on a machine whose GPUs are all hidden.
fn without_gpu(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_beamstream"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap()
}

#[test]
fn without_a_gpu_the_cpu_computes_and_says_so_once() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("mine.yaml"), PIPELINE).unwrap();
    let output = without_gpu(folder.path(), &["run", "mine.yaml", "-v"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("the CPU computes").count(), 1, "{text}");
    let quiet = without_gpu(folder.path(), &["run", "mine.yaml", "--overwrite"]);
    assert!(!stderr(&quiet).contains("the CPU computes"), "{}", stderr(&quiet));
}

#[test]
fn a_gpu_that_is_not_there_is_refused_in_one_line() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("mine.yaml"), PIPELINE).unwrap();
    for device in ["cuda", "cuda:0", "cuda:63"] {
        let output = without_gpu(folder.path(), &["run", "mine.yaml", "--device", device]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("cuda") && text.trim_end().lines().count() == 1, "{text}");
        assert!(!folder.path().join("v.npy").exists());
    }
}
