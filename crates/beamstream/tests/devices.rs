//! The whole pipeline on a simulated device gives what the CPU gives.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::path::Path;
use std::time::Duration;

use beamstream::{ExitCode, Options, Plan, PlanOptions, Report, load_line, registry};
use beamstream_testkit::SimDevice;

/// Runs a launch line and gives its report.
fn run(line: &str, options: &PlanOptions) -> Report {
    let registry = registry();
    let graph = load_line(line, &[] as &[&str], &registry).unwrap();
    let mut run = Plan::new(&graph, &registry, options).unwrap().start().unwrap();
    let report = run.wait_timeout(Duration::from_mins(1));
    report.unwrap_or_else(|| panic!("the run hangs: {:#?}", run.status()))
}

fn line(out: &Path, more: &str) -> String {
    format!(
        "phantom_source size=32 rows=6 angles=50 noise=1000 ! flat_field ! recon {more} ! \
         [npy_sink path={out}, view images=2 when_full=latest]",
        out = out.display()
    )
}

/// A device that is lost in the middle of anything ends the run, names the node, and leaves no file.
#[test]
fn a_lost_device_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("lost.npy");
    let cpu = Options { device: beamstream::Device::Cpu, ..Options::default() }.plan_options().unwrap();
    let registry = registry();
    let graph = load_line(&line(&out, "rotation_axis=15.5"), &[] as &[&str], &registry).unwrap();
    let mut lost = 0;
    // A step that shares no factor with the calls for a block, so that every kind of call is met.
    for call in (0..).step_by(7) {
        let gpu = SimDevice::new(0, 1 << 30);
        gpu.fail_at(call);
        let options = PlanOptions { devices: vec![gpu.clone()], overwrite: true, ..cpu.clone() };
        let message = match Plan::new(&graph, &registry, &options) {
            Err(error) => error.to_string(),
            Ok(plan) => {
                let mut run = plan.start().unwrap();
                let report = run.wait_timeout(Duration::from_mins(1));
                let report =
                    report.unwrap_or_else(|| panic!("call {call}: the run hangs: {:#?}", run.status()));
                if gpu.calls() <= call {
                    assert_eq!(report.exit, ExitCode::Done);
                    break;
                }
                assert!(matches!(report.exit, ExitCode::Io | ExitCode::Config), "{:?}", report.exit);
                let error = report.errors.first().unwrap_or_else(|| panic!("call {call}: no error"));
                assert!(!error.node.is_empty());
                error.message.clone()
            }
        };
        assert!(message.contains("as told, at call"), "call {call}: {message}");
        assert!(!out.exists(), "call {call}: a file that is not whole");
        lost += 1;
    }
    assert!(lost > 20, "{lost}");
}

#[test]
fn a_device_gives_the_bits_of_the_cpu() {
    let folder = tempfile::tempdir().unwrap();
    let cpu = Options { device: beamstream::Device::Cpu, ..Options::default() }.plan_options().unwrap();
    for (name, more) in [("axis", "rotation_axis=15.5"), ("search", ""), ("batches", "batch=7 method=fbp")] {
        let (host, device) =
            (folder.path().join(format!("{name}.npy")), folder.path().join(format!("{name}_d.npy")));
        assert_eq!(run(&line(&host, more), &cpu).exit, ExitCode::Done);
        let gpu = SimDevice::new(0, 1 << 30);
        let report = run(&line(&device, more), &PlanOptions { devices: vec![gpu.clone()], ..cpu.clone() });
        assert_eq!(report.exit, ExitCode::Done, "{:?}", report.errors);
        assert_eq!(gpu.misuses(), Vec::<String>::new());
        assert_eq!(std::fs::read(&host).unwrap(), std::fs::read(&device).unwrap(), "{name}");
        let seconds = &report.series[0].seconds;
        assert!(seconds.last_frame_to_volume_on_device <= seconds.last_frame_to_volume, "{seconds:?}");
        assert!(seconds.last_frame_to_volume_on_device.is_some());
    }
}
