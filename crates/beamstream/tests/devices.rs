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
