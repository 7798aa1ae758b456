//! Whole runs: order, ends, failures, stops, changes, memory.

mod common;

use std::time::{Duration, Instant};

use beamstream_engine::{ExitCode, WorkerState};
use common::{Saw, open_gate, plan, plan_with, seen_by};
use serde_json::json;

fn blocks(node: &str) -> Vec<u32> {
    seen_by(node)
        .iter()
        .filter_map(|saw| match saw {
            Saw::Block { pixel, .. } => Some(*pixel),
            _ => None,
        })
        .collect()
}

#[test]
fn every_block_arrives_once_and_in_order() {
    let report =
        plan("count_source frames=500 size=8 ! add add=1 ! probe_sink label=order").start().unwrap().wait();
    assert_eq!(report.exit, ExitCode::Done);
    assert_eq!(blocks("order"), (1..=500).collect::<Vec<u32>>());
    assert_eq!(report.nodes.iter().map(|node| node.blocks).collect::<Vec<_>>(), [500, 500, 500]);
}

#[test]
fn series_are_framed_on_every_branch() {
    let line =
        "count_source frames=3 series=2 ! [probe_sink label=left, add add=10 ! probe_sink label=right]";
    plan(line).start().unwrap().wait();
    for (node, add) in [("left", 0), ("right", 10)] {
        let series = |number: u64| {
            let mut saw = vec![Saw::Begin(number)];
            saw.extend((0..3).map(|n| Saw::Block { number: n, pixel: n as u32 + add, epoch: 0 }));
            saw.push(Saw::End { aborted: false });
            saw
        };
        assert_eq!(seen_by(node), [series(0), series(1)].concat(), "{node}");
    }
}

#[test]
fn a_sink_that_fails_ends_the_run_and_is_named() {
    let line = "count_source frames=100000 ! [probe_sink label=whole, probe_sink label=broken fail_at=5]";
    let report = plan(line).start().unwrap().wait();
    assert_eq!(report.exit_code(), 4);
    assert_eq!(report.errors[0].node, "probe_sink_2");
    assert!(report.errors[0].message.contains("no space left"));
    assert_eq!(blocks("broken").len(), 5);
    assert!(
        matches!(seen_by("whole").last(), Some(Saw::End { .. })),
        "the other branch was not ended properly"
    );
}

#[test]
fn a_source_that_fails_still_ends_its_series() {
    let report = plan("count_source frames=10 fail_after=4 ! probe_sink label=cut").start().unwrap().wait();
    assert_eq!(report.exit_code(), 4);
    assert_eq!(seen_by("cut").last(), Some(&Saw::End { aborted: true }));
    assert_eq!(blocks("cut").len(), 4);
}

#[test]
fn a_node_that_panics_is_replaced_and_goes_on_with_the_next_series() {
    let report =
        plan("count_source frames=6 series=3 ! probe_sink label=shaky panic_at=2").start().unwrap().wait();
    assert_eq!(report.exit, ExitCode::Internal);
    assert!(report.warnings.iter().any(|warning| warning.message.contains("a programming error")));
    let begun: Vec<Saw> = seen_by("shaky").into_iter().filter(|saw| matches!(saw, Saw::Begin(_))).collect();
    assert_eq!(begun, [Saw::Begin(0), Saw::Begin(1), Saw::Begin(2)]);
    assert_eq!(blocks("shaky").len(), 2 + 6 + 6);
}

#[test]
fn a_series_that_a_node_refuses_is_skipped_and_reported() {
    let report =
        plan("count_source frames=2 series=3 ! probe_sink label=picky refuse=1").start().unwrap().wait();
    assert_eq!(report.exit, ExitCode::Incomplete);
    assert_eq!(blocks("picky").len(), 4);
    assert!(report.warnings[0].message.contains("not for me"));
}

#[test]
fn a_drain_finishes_what_is_under_way() {
    let run = &mut plan("count_source frames=1 endless=true ! add add=0 ! probe_sink label=drained")
        .start()
        .unwrap();
    while run.status().nodes[2].blocks_in < 100 {
        std::thread::yield_now();
    }
    run.drain();
    let report = run.wait();
    assert_eq!(report.exit_code(), 130);
    let sent = report.nodes[0].blocks;
    assert_eq!(blocks("drained").len() as u64, sent, "blocks that were sent did not arrive");
    assert!(matches!(seen_by("drained").last(), Some(Saw::End { .. })));
}

#[test]
fn a_halt_ends_a_run_that_is_stuck() {
    let run = &mut plan(
        "count_source frames=1 endless=true size=64 ! add add=0 ! probe_sink label=held gated=true",
    )
    .start()
    .unwrap();
    while run.status().nodes[2].blocks_in < 1 {
        std::thread::yield_now();
    }
    run.drain();
    assert!(run.wait_timeout(Duration::from_millis(50)).is_none(), "the sink is held, so the run cannot end");
    run.halt();
    open_gate("held");
    assert_eq!(run.wait().exit_code(), 130);
}

#[test]
fn a_source_that_cannot_wait_is_through_while_its_blocks_wait_on_disk() {
    let line = "count_source frames=400 size=64 series=2 ! \
                probe_sink label=spilled gated=true when_full=spill capacity_blocks=2";
    let run = &mut plan(line).start().unwrap();
    while run.status().nodes[0].state != WorkerState::Done {
        std::thread::yield_now();
    }
    assert!(run.status().nodes[1].blocks_in <= 1, "the sink is held");
    open_gate("spilled");
    let report = run.wait();
    assert_eq!(report.exit, ExitCode::Done);
    assert_eq!(blocks("spilled").len(), 800);
    assert!(blocks("spilled").chunks(400).all(<[u32]>::is_sorted), "the order is another");
    assert!(report.edges[0].spilled > 700, "{:?}", report.edges[0]);
}

#[test]
fn a_changed_parameter_is_an_epoch() {
    let run = &mut plan("count_source frames=1 endless=true ! add add=0 ! probe_sink label=changed")
        .start()
        .unwrap();
    let epoch = run.set("add", "add", json!(1_000_000)).unwrap();
    let seen = run.status().nodes[2].blocks_in;
    while run.status().nodes[2].blocks_in < seen + 100 {
        std::thread::yield_now();
    }
    assert!(run.set("add", "sub", json!(1)).unwrap_err().to_string().contains("'sub'"));
    assert!(run.set("nobody", "add", json!(1)).unwrap_err().to_string().contains("'nobody'"));
    run.drain();
    let report = run.wait();
    assert_eq!((report.changes.len(), report.changes[0].epoch), (1, epoch));
    for saw in seen_by("changed") {
        if let Saw::Block { number, pixel, epoch: of_block } = saw {
            let expected = if of_block == epoch { number as u32 + 1_000_000 } else { number as u32 };
            assert_eq!(pixel, expected, "a block carries the epoch that made it");
        }
    }
}

/// Runs until the sink has seen the end of a series so often.
fn until_ends(label: &str, ends: usize) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while seen_by(label).iter().filter(|saw| matches!(saw, Saw::End { .. })).count() < ends {
        assert!(Instant::now() < give_up, "{:?}", seen_by(label));
        std::thread::yield_now();
    }
}

#[test]
fn a_change_that_takes_effect_now_hands_the_series_on_again() {
    let run = &mut plan("count_source frames=3 stay=true ! again add=0 ! add add=0 ! probe_sink label=again")
        .start()
        .unwrap();
    until_ends("again", 1);
    let epoch = run.set("again", "add", json!(100)).unwrap();
    until_ends("again", 2);
    run.drain();
    assert_eq!(run.wait().changes.len(), 1);
    let mut expected = vec![Saw::Begin(0)];
    expected.extend((0..3).map(|number| Saw::Block { number, pixel: number as u32, epoch: 0 }));
    expected.extend([Saw::End { aborted: false }, Saw::BeginAgain { number: 0, epoch }]);
    expected.extend((0..3).map(|number| Saw::Block { number, pixel: number as u32 + 100, epoch }));
    expected.push(Saw::End { aborted: false });
    assert_eq!(seen_by("again"), expected);
}

#[test]
fn a_series_that_cannot_be_made_again_is_ended_and_told() {
    let run = &mut plan("count_source frames=3 stay=true ! again add=0 fails=true ! probe_sink label=fails")
        .start()
        .unwrap();
    until_ends("fails", 1);
    let epoch = run.set("again", "add", json!(100)).unwrap();
    until_ends("fails", 2);
    run.drain();
    let report = run.wait();
    assert!(report.warnings.iter().any(|warning| warning.message.contains("cannot be made again")));
    assert_eq!(seen_by("fails")[5..], [Saw::BeginAgain { number: 0, epoch }, Saw::End { aborted: true }]);
}

#[test]
fn a_series_that_does_not_fit_is_refused_before_the_start() {
    let Err(error) =
        plan_with("count_source frames=1 size=2000 ! add add=0 ! probe_sink label=big", 100 << 20)
    else {
        panic!("2000 x 2000 x 4 bytes in two pools of 20 buffers fit 100 MiB");
    };
    let text = error.to_string();
    assert!(text.contains("--memory") && text.contains("100.0 MiB"), "{text}");
    let Err(error) =
        plan_with("count_source frames=1 ! add add=0 memory_bytes=2000000 ! probe_sink label=b", 1 << 20)
    else {
        panic!("a node may take twice what the run may");
    };
    assert!(error.to_string().contains("node 'add'"), "{error}");
}

#[test]
fn a_plan_says_types_places_and_bytes() {
    let text = plan("count_source frames=1 size=100 ! add add=0 ! probe_sink label=told").explain();
    assert_eq!(
        text.memory.host_bytes,
        text.nodes.iter().map(|node| Some(node.pool_bytes? + node.memory_bytes?)).sum()
    );
    let shown = text.to_string();
    for word in ["count_source", "add", "cpu", "u32", "100", "KiB"] {
        assert!(shown.contains(word), "'{word}' is missing in\n{shown}");
    }
}

#[test]
fn many_series_leave_nothing_behind() {
    let report = plan("count_source frames=2 series=2000 ! probe_sink label=many").start().unwrap().wait();
    assert_eq!(report.exit, ExitCode::Done);
    assert_eq!(report.series.len(), 2000);
    assert_eq!(blocks("many").len(), 4000);
}
