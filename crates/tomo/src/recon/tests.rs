//! The node on small cases; accuracy is tested with the operations, whole runs in the `tests` package.

use super::*;
use beamstream_testkit::{Harness, phantom};
use serde_json::json;

const N: usize = 48;
const ANGLES: usize = 60;

fn angles() -> Vec<f64> {
    (0..ANGLES).map(|i| std::f64::consts::PI * i as f64 / ANGLES as f64).collect()
}

fn header(announce: bool) -> SeriesHeader {
    let mut header =
        SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::F32, 2, N));
    if announce {
        header.angles_rad = Some(angles().into());
    }
    header.expected_frames = Some(ANGLES as u64);
    header
}

/// Feeds the phantom's projections in some order and gives the slices.
fn volume(
    settings: serde_json::Value,
    announce: bool,
    order: impl IntoIterator<Item = usize>,
) -> Vec<Vec<f32>> {
    let mut node = Harness::<ReconConfig>::new(settings).with_header(header(announce));
    play(&mut node, order);
    all_slices(&node)
}

/// Feeds a series or a pass from its begin to its end.
fn play(node: &mut Harness<ReconConfig>, order: impl IntoIterator<Item = usize>) {
    node.begin().unwrap();
    let rows: Vec<Vec<f32>> = [0.0, 0.1].iter().map(|z| phantom::sinogram(N, &angles(), *z, 22.5)).collect();
    for number in order {
        let pixels: Vec<f32> =
            rows.iter().flat_map(|row| row[number * N..(number + 1) * N].to_vec()).collect();
        let mut meta = BlockMeta::new(FrameId::new(number as u64), Role::Projection);
        meta.projection = number as u64;
        meta.angle_rad = Some(angles()[number]);
        node.feed(meta, &pixels).unwrap();
    }
    node.end().unwrap();
}

fn all_slices(node: &Harness<ReconConfig>) -> Vec<Vec<f32>> {
    node.blocks().iter().map(|block| block.elements::<f32>().unwrap().to_vec()).collect()
}

fn settings() -> serde_json::Value {
    json!({ "rotation_axis": 22.5, "batch": 8 })
}

#[test]
fn the_order_of_arrival_changes_no_bit() {
    let in_order = volume(settings(), true, 0..ANGLES);
    // Within the window of four batches; beyond it the node warns.
    let scrambled = (0..ANGLES).map(|i| i / 20 * 20 + (i * 7) % 20);
    assert_eq!(in_order.len(), 2);
    assert!(in_order == volume(settings(), true, scrambled), "other bits in another order");
}

#[test]
fn any_order_gives_the_same_bits_where_projections_are_kept() {
    let in_order = volume(settings(), false, 0..ANGLES);
    assert!(in_order == volume(settings(), false, (0..ANGLES).rev()), "other bits in reverse order");
}

#[test]
fn lost_projections_leave_the_grey_level() {
    let whole = volume(settings(), true, 0..ANGLES);
    let holed = volume(settings(), true, (0..ANGLES).filter(|i| i % 10 != 3));
    let mean = |slices: &[Vec<f32>]| slices[0].iter().sum::<f32>();
    assert!((mean(&holed) / mean(&whole) - 1.0).abs() < 0.01);
}

#[test]
fn an_axis_that_is_not_given_is_found() {
    let found = volume(json!({ "batch": 8 }), true, 0..ANGLES);
    let given = volume(settings(), true, 0..ANGLES);
    let scale = given[0].iter().fold(0.0_f32, |most, v| most.max(v.abs()));
    let off: f32 = found[0].iter().zip(&given[0]).map(|(a, b)| (a - b).abs()).sum::<f32>() / (N * N) as f32;
    assert!(off < 0.05 * scale, "{off} of {scale}");
}

#[test]
fn rows_of_interest_are_numbered_from_their_first() {
    let mut settings = settings();
    settings["rows"] = json!("1:2");
    let mut node = Harness::<ReconConfig>::new(settings).with_header(header(true));
    let agreed = node.negotiate().unwrap();
    assert_eq!(agreed.output.detector_row(0), 1);
    assert_eq!(agreed.output.expected_frames, Some(1));
    node.begin().unwrap();
}

#[test]
fn slices_of_two_passes_are_welcome_where_passes_follow_each_other() {
    let likes = |count: usize| {
        let mut header = header(true);
        header.pass = beamstream_core::Pass { index: 0, count, first_row: 0, total_rows: 2 * count };
        Harness::<ReconConfig>::new(settings()).with_header(header).negotiate().unwrap().likes_blocks
    };
    assert_eq!([likes(1), likes(2), likes(5)], [2 + 2, 4 + 2, 4 + 2]);
}

#[test]
fn passes_share_sums_and_leave_nothing_in_them() {
    let expected = volume(settings(), true, 0..ANGLES);
    let mut node = Harness::<ReconConfig>::new(settings());
    for index in 0..3 {
        let pass = beamstream_core::Pass { index, count: 3, first_row: 2 * index, total_rows: 6 };
        node = node.with_header(SeriesHeader { pass, ..header(true) });
        play(&mut node, 0..ANGLES);
    }
    assert!(all_slices(&node) == [expected.clone(), expected.clone(), expected].concat());
}

#[test]
fn what_cannot_be_is_named() {
    let refusal = |settings: serde_json::Value| {
        Harness::<ReconConfig>::new(settings).with_header(header(true)).negotiate().unwrap_err().full_text()
    };
    assert!(refusal(json!({ "rotation_axis": 5000 })).contains("5000"));
    assert!(refusal(json!({ "rows": "1:9" })).contains("1:9"));
    let counts =
        SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::U16, 2, N));
    let node = Harness::<ReconConfig>::new(json!({})).with_header(counts);
    assert!(node.negotiate().unwrap_err().full_text().contains("flat_field"));
}

#[test]
fn a_series_without_projections_gives_no_slice() {
    let mut node = Harness::<ReconConfig>::new(settings()).with_header(header(true));
    node.begin().unwrap();
    node.end().unwrap();
    assert!(node.blocks().is_empty());
}

#[test]
fn looks_come_while_projections_arrive() {
    let settings =
        json!({ "rotation_axis": 22.5, "batch": 8, "preview": { "every_projections": 16, "slices": [1] } });
    let mut node = Harness::<ReconConfig>::new(settings).with_header(header(true));
    node.begin().unwrap();
    for number in 0..32 {
        let mut meta = BlockMeta::new(FrameId::new(number), Role::Projection);
        meta.projection = number;
        node.feed(meta, &vec![1.0_f32; 2 * N]).unwrap();
    }
    assert_eq!(node.previews().len(), 2);
    assert!(node.previews().iter().all(|block| block.meta.frame.number == 1));
    assert!(node.blocks().is_empty());
}

/// Feeds the phantom's projections from `first` on.
fn feed(node: &mut Harness<ReconConfig>, numbers: std::ops::Range<usize>) {
    let rows: Vec<Vec<f32>> = [0.0, 0.1].iter().map(|z| phantom::sinogram(N, &angles(), *z, 22.5)).collect();
    for number in numbers {
        let pixels: Vec<f32> =
            rows.iter().flat_map(|row| row[number * N..(number + 1) * N].to_vec()).collect();
        let mut meta = BlockMeta::new(FrameId::new(number as u64), Role::Projection);
        meta.projection = number as u64;
        node.feed(meta, &pixels).unwrap();
    }
}

fn slices(node: &Harness<ReconConfig>) -> Vec<Vec<f32>> {
    node.blocks().iter().map(|block| block.elements::<f32>().unwrap().to_vec()).collect()
}

#[test]
fn an_axis_moved_during_the_scan_is_as_if_it_had_always_been_there() {
    let moved = json!({ "rotation_axis": 20.0, "batch": 8, "keep": "all" });
    let mut node = Harness::<ReconConfig>::new(moved).with_header(header(true));
    node.begin().unwrap();
    feed(&mut node, 0..37);
    assert_eq!(node.set("rotation_axis", &json!(22.5)), Ok(TakesEffect::Now));
    let looks = node.previews().len();
    assert!(looks >= 2, "{looks} looks with the new axis");
    feed(&mut node, 37..ANGLES);
    node.end().unwrap();
    assert!(
        slices(&node) == volume(settings(), true, 0..ANGLES),
        "other bits than with the axis from the start"
    );
}

#[test]
fn the_volume_is_made_again_after_the_last_projection() {
    let mut settings = json!({ "rotation_axis": 20.0, "batch": 8, "keep": "all" });
    let mut node = Harness::<ReconConfig>::new(settings.clone()).with_header(header(true));
    node.begin().unwrap();
    feed(&mut node, 0..ANGLES);
    node.end().unwrap();
    assert_eq!(node.set("center", &json!(22.5)), Ok(TakesEffect::Now));
    assert_eq!(node.set("filter", &json!("hann")), Ok(TakesEffect::Now));
    assert_eq!((node.headers().len(), slices(&node).len()), (3, 6));
    assert!(slices(&node)[2..4] == volume(self::settings(), true, 0..ANGLES), "the second volume");
    settings["rotation_axis"] = json!(22.5);
    settings["filter"] = json!("hann");
    assert!(slices(&node)[4..] == volume(settings, true, 0..ANGLES), "the third volume");
}

#[test]
fn without_kept_projections_a_change_waits_for_the_next_series() {
    let mut node = Harness::<ReconConfig>::new(settings()).with_header(header(true));
    node.begin().unwrap();
    feed(&mut node, 0..9);
    assert_eq!(node.set("rotation_axis", &json!(20)), Ok(TakesEffect::WithNextSeries));
    assert!(node.set("rotation_axis", &json!("left")).unwrap_err().contains("'left'"));
    assert!(node.set("rows", &json!("0:1")).is_err());
}

#[test]
fn an_impossible_axis_leaves_the_one_there_is() {
    let settings = json!({ "rotation_axis": 22.5, "batch": 8, "keep": "all" });
    let mut node = Harness::<ReconConfig>::new(settings).with_header(header(true));
    node.begin().unwrap();
    feed(&mut node, 0..ANGLES);
    assert!(node.set("rotation_axis", &json!(5000)).unwrap_err().contains("5000"));
    node.end().unwrap();
    assert!(slices(&node) == volume(self::settings(), true, 0..ANGLES));
}

#[test]
fn an_axis_that_was_right_before_skips_a_narrower_series_and_no_more() {
    let mut node = Harness::<ReconConfig>::new(settings()).with_header(header(true));
    node.begin().unwrap();
    assert_eq!(node.set("rotation_axis", &json!(40)), Ok(TakesEffect::Now));
    let mut narrow = header(true);
    narrow.format = Format::frame(ElementType::F32, 2, 32);
    let refused = node.with_header(narrow).negotiate().unwrap_err();
    assert_eq!(refused.kind(), NodeErrorKind::Series);
}

#[test]
fn an_axis_that_was_found_can_be_searched_again() {
    let mut node = Harness::<ReconConfig>::new(json!({ "batch": 8 })).with_header(header(true));
    node.begin().unwrap();
    assert!(node.set("rotation_axis", &json!(20)).is_ok());
    assert_eq!(node.set("rotation_axis", &json!("auto")), Ok(TakesEffect::WithNextSeries));
    let mut given = Harness::<ReconConfig>::new(settings()).with_header(header(true));
    assert!(given.set("rotation_axis", &json!("auto")).unwrap_err().contains("given axis"));
}

#[test]
fn projections_that_could_not_be_kept_are_told_of() {
    let mut unannounced = header(false);
    unannounced.expected_frames = None;
    let settings = json!({ "rotation_axis": 22.5, "batch": 8, "keep": "all", "store_bytes": 0 });
    let mut node = Harness::<ReconConfig>::new(settings).with_header(unannounced);
    node.begin().unwrap();
    for number in 0..ANGLES as u64 {
        let mut meta = BlockMeta::new(FrameId::new(number), Role::Projection);
        meta.projection = number;
        meta.angle_rad = Some(angles()[number as usize]);
        node.feed(meta, &vec![1.0_f32; 2 * N]).unwrap();
    }
    node.end().unwrap();
    assert!(node.warnings().iter().any(|text| text.contains("store_bytes")), "{:?}", node.warnings());
}
