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
