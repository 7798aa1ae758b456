//! Runs on a simulated device: placement, transfers, memory, fences, failures.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use beamstream_engine::{ExitCode, Explanation, Plan, PlanError, PlanOptions, Report, Work};
use beamstream_testkit::SimDevice;
use common::{Saw, open_gate, options, plan_on, seen_by};

const MIB: u64 = 1 << 20;

fn device() -> Arc<SimDevice> {
    SimDevice::new(0, 64 * MIB)
}

fn planned(line: &str, device: &Arc<SimDevice>) -> Plan {
    plan_on(line, device, options(1 << 30)).unwrap_or_else(|error| panic!("{error}"))
}

fn run(line: &str, device: &Arc<SimDevice>) -> Report {
    let report = planned(line, device).start().unwrap().wait();
    assert_eq!(device.misuses(), Vec::<String>::new());
    report
}

/// Numbers and pixels of the blocks that a sink saw.
fn blocks(label: &str) -> Vec<(u64, u32)> {
    let block = |saw| match saw {
        Saw::Block { number, pixel, .. } => Some((number, pixel)),
        _ => None,
    };
    seen_by(label).into_iter().filter_map(block).collect()
}

fn counted(frames: u64) -> Vec<(u64, u32)> {
    (0..frames).map(|number| (number, number as u32)).collect()
}

#[test]
fn transfers_stand_where_an_edge_changes_its_place() {
    let line = "count_source name=scan float=true frames=2 ! compute name=one ! compute name=two ! \
                [probe_sink name=keep label=kept, look_sink name=eyes label=seen when_full=latest]";
    let plan: Explanation = planned(line, &device()).explain();
    let nodes: Vec<(&str, &str, &str)> =
        plan.nodes.iter().map(|node| (node.id.as_str(), node.kind, node.device.as_str())).collect();
    assert_eq!(
        nodes,
        [
            ("scan", "count_source", "cpu"),
            ("scan.to_cuda:0", "transfer", "cuda:0"),
            ("one", "compute", "cuda:0"),
            ("two", "compute", "cuda:0"),
            ("two.to_host", "transfer", "cuda:0"),
            ("keep", "probe_sink", "cpu"),
            ("eyes", "look_sink", "cpu"),
        ]
    );
    let pools: Vec<&str> = plan.nodes[..5].iter().map(|node| node.pool_memory.as_str()).collect();
    assert_eq!(pools, ["pinned host", "cuda:0", "cuda:0", "cuda:0", "pinned host"]);
    let edge = |from: &str, to: &str| {
        let edge = plan.edges.iter().find(|edge| edge.from == from && edge.to == to);
        edge.map(|edge| edge.when_full)
    };
    assert_eq!(edge("two", "two.to_host"), Some("block"));
    assert_eq!(edge("two.to_host", "keep"), Some("block"));
    assert_eq!(edge("two.to_host", "eyes"), Some("latest"));
    let bytes = |memory: &str| -> u64 {
        let lies_there = |node: &&beamstream_engine::NodeExplanation| node.pool_memory == memory;
        plan.nodes.iter().filter(lies_there).filter_map(|node| node.pool_bytes).sum()
    };
    assert_eq!(plan.memory.pinned_bytes, Some(bytes("pinned host")));
    assert_eq!(plan.memory.device_bytes, Some(bytes("cuda:0")));
    assert_eq!(plan.memory.host_bytes, Some(0));
    let shown = plan.to_string();
    assert!(shown.contains("device memory") && shown.contains("scan -> scan.to_cuda:0: block"), "{shown}");
}

#[test]
fn blocks_come_through_a_device_as_they_were() {
    let line =
        "count_source float=true frames=300 series=3 size=16 ! compute ! compute ! probe_sink label=thru";
    let report = run(line, &device());
    assert_eq!(report.exit, ExitCode::Done);
    assert_eq!(blocks("thru"), [counted(300), counted(300), counted(300)].concat());
    let series = &report.series[1].bytes;
    let sent = 300 * 16 * 16 * 4;
    assert_eq!((series.taken_in, series.out, series.copied), (sent, sent, 2 * sent));
    assert!(report.memory.pinned_bytes > 0 && report.memory.device_bytes > 0);
    assert!(report.energy_joules.is_some_and(|joules| joules >= 300.0));
}

#[test]
fn buffers_that_travel_through_the_host_are_pinned_from_the_start() {
    let forwarded = "count_source float=true frames=50 size=8 ! pass ! compute ! probe_sink label=passed";
    assert_eq!(run(forwarded, &device()).exit, ExitCode::Done);
    assert_eq!(blocks("passed"), counted(50));
}

#[test]
fn one_producer_serves_both_places_with_one_transfer_each() {
    let line = "count_source float=true frames=40 size=8 ! [compute ! probe_sink label=there, \
                compute ! probe_sink label=too, probe_sink label=here]";
    let report = run(line, &device());
    let transfers = report.nodes.iter().filter(|node| node.kind == "transfer").count();
    assert_eq!(transfers, 3);
    for label in ["there", "too", "here"] {
        assert_eq!(blocks(label), counted(40), "{label}");
    }
}

#[test]
fn no_node_waits_for_a_device_on_the_host() {
    let device = device();
    let line = "count_source float=true frames=10 size=8 ! compute ! compute ! probe_sink label=late";
    let plan = planned(line, &device);
    device.hold();
    let mut run = plan.start().unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    loop {
        let status = run.status();
        // All nodes up to the transfer to the host have enqueued all of the series.
        if status.nodes[..5].iter().all(|node| node.blocks_out == 10) {
            break;
        }
        assert!(Instant::now() < give_up, "a node waits for the device: {:?}", status.nodes);
        std::thread::yield_now();
    }
    assert_eq!(blocks("late"), []);
    device.release();
    let report = run.wait();
    assert_eq!(report.exit, ExitCode::Done);
    assert_eq!(blocks("late"), counted(10));
    let limit = report.limit.unwrap();
    assert_eq!((limit.node.as_str(), limit.device.as_str(), limit.work), ("compute_2", "cuda:0", Work::Node));
    assert!(limit.busy > 0.3 && limit.to_string().contains("compute_2 on cuda:0"), "{limit}");
}

#[test]
fn a_trace_tells_what_nodes_and_devices_did_when() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let line = "count_source float=true frames=20 size=8 ! compute ! probe_sink label=traced";
    let traced = PlanOptions { trace: Some(path.clone()), ..options(1 << 30) };
    let report = plan_on(line, &device(), traced).unwrap().start().unwrap().wait();
    assert_eq!(report.exit, ExitCode::Done);
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let rows: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .filter_map(|event| event["args"]["name"].as_str())
        .collect();
    for row in ["count_source", "compute", "compute.to_host", "probe_sink"] {
        assert!(rows.contains(&row), "{row} is missing in {rows:?}");
    }
    let spans =
        |name: &str| events.iter().filter(|event| event["ph"] == "X" && event["name"] == name).count();
    // A block each in the source, two transfers, the step and the sink; three streams.
    assert_eq!((spans("process"), spans("work")), (100, 60));
    assert!(events.iter().any(|event| event["ph"] == "C" && event["name"] == "compute -> compute.to_host"));
}

#[test]
fn looks_at_unfinished_work_pass_to_those_who_welcome_them() {
    let line = "count_source float=true frames=30 size=8 ! compute previews=true ! \
                [probe_sink label=finished, look_sink label=looking]";
    assert_eq!(run(line, &device()).exit, ExitCode::Done);
    assert_eq!(blocks("finished"), counted(30));
    assert_eq!(blocks("looking").len(), 60);
}

#[test]
fn a_slow_viewer_delays_nobody() {
    let line = "count_source float=true frames=100 size=8 ! compute ! \
                [probe_sink label=quick, probe_sink label=slow gated=true when_full=latest]";
    let device = device();
    let mut run = planned(line, &device).start().unwrap();
    let give_up = Instant::now() + Duration::from_secs(30);
    while blocks("quick").len() < 100 {
        assert!(Instant::now() < give_up, "the viewer holds everybody up");
        std::thread::yield_now();
    }
    open_gate("slow");
    assert_eq!(run.wait().exit, ExitCode::Done);
    assert_eq!(blocks("quick"), counted(100));
    assert!(blocks("slow").iter().all(|(number, pixel)| *number == u64::from(*pixel)));
}

#[test]
fn what_a_node_likes_is_granted_as_far_as_memory_is_left() {
    let line = "count_source float=true frames=100 size=32 ! compute gather=true name=volume ! \
                probe_sink label=all capacity_blocks=2";
    let slots = |device: &Arc<SimDevice>| {
        let plan = planned(line, device).explain();
        let volume = plan.nodes.iter().find(|node| node.id == "volume").unwrap().clone();
        assert!(plan.memory.device_bytes.unwrap() <= plan.memory.device_limit_bytes.unwrap());
        volume.buffers.unwrap()
    };
    let least = slots(&SimDevice::new(0, 520 << 10));
    let all = slots(&device());
    assert!(least < 100, "{least}");
    assert_eq!(all, 103);
    let report = run(line, &device());
    assert_eq!(report.exit, ExitCode::Done);
    assert_eq!(blocks("all"), counted(100));
}

#[test]
fn a_node_that_got_what_it_likes_does_not_wait_for_those_behind() {
    for (label, between) in [("held_up", ""), ("held_up_late", "compute !")] {
        let line = format!(
            "count_source float=true frames=100 size=8 ! compute gather=true name=volume ! {between} \
             probe_sink label={label} gated=true capacity_blocks=2"
        );
        let device = device();
        let mut run = planned(&line, &device).start().unwrap();
        let give_up = Instant::now() + Duration::from_secs(30);
        while run.status().nodes[2].blocks_out < 100 {
            assert!(Instant::now() < give_up, "the node waits for the sink: {:?}", run.status().nodes);
            std::thread::yield_now();
        }
        open_gate(label);
        assert_eq!(run.wait().exit, ExitCode::Done);
        assert_eq!(blocks(label), counted(100));
    }
}

#[test]
fn a_device_without_room_is_named_before_the_start() {
    let line = "count_source float=true frames=10 size=1000 ! compute name=volume ! probe_sink label=none";
    let Err(error) = plan_on(line, &SimDevice::new(0, 20 * MIB), options(1 << 30)) else {
        panic!("two pools of blocks of 4 MB fit 20 MiB");
    };
    let text = error.to_string();
    assert!(matches!(error, PlanError::Memory { .. }), "{text}");
    assert!(text.contains("cuda:0") && text.contains("19.4 MiB"), "{text}");
    let limited = PlanOptions { device_memory_bytes: Some(20 * MIB), ..options(1 << 30) };
    assert!(matches!(plan_on(line, &SimDevice::new(0, 1 << 30), limited), Err(PlanError::Memory { .. })));
    let Err(error) = plan_on(line, &SimDevice::new(0, 1 << 30), options(20 * MIB)) else {
        panic!("pinned memory counts as host memory");
    };
    assert!(error.to_string().contains("host memory") && error.to_string().contains("--memory"), "{error}");
}

#[test]
fn a_device_that_is_lost_ends_the_run_and_the_node_is_named() {
    let line = "count_source float=true frames=6 size=8 ! compute ! probe_sink label=lost";
    let whole = device();
    assert_eq!(run(line, &whole).exit, ExitCode::Done);
    assert!(whole.calls() > 15);
    for call in 0..whole.calls() {
        let device = device();
        device.fail_at(call);
        let text = match plan_on(line, &device, options(1 << 30)) {
            Err(error) => error.to_string(),
            Ok(plan) => {
                let mut run = plan.start().unwrap();
                let report = run.wait_timeout(Duration::from_mins(1));
                let report = report.unwrap_or_else(|| panic!("the run hangs after call {call}"));
                assert_ne!(report.exit, ExitCode::Done, "call {call} failed unseen");
                let error = report.errors.first().unwrap_or_else(|| panic!("call {call}: no error"));
                assert!(!error.node.is_empty());
                format!("{}: {}", error.node, error.message)
            }
        };
        assert!(text.contains("as told, at call") && text.contains("cuda:0"), "call {call}: {text}");
    }
}

#[test]
fn what_waits_is_taken_in_one_go_and_in_order() {
    let device = device();
    let line = "count_source frames=20 series=3 float=true ! compute name=one ! compute name=two takes=4 ! \
                probe_sink label=several gated=true";
    let mut running = planned(line, &device).start().unwrap();
    // Behind the closed gate blocks pile up until nothing moves any more.
    let mut calls = 0;
    while std::mem::replace(&mut calls, device.calls()) != device.calls() || calls == 0 {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    open_gate("several");
    let report = running.wait();
    assert_eq!((report.exit_code(), device.misuses()), (0, Vec::<String>::new()));
    assert_eq!(blocks("several"), [counted(20), counted(20), counted(20)].concat());
    assert!(report.warnings.iter().any(|warning| warning.message.contains("as many as it takes")));
}
