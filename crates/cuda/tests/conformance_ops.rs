//! Operations on frames and slices give what the CPU's give.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

mod common;

use beamstream_buffer::{Block, LeaseMut};
use beamstream_core::{ElementType, Format};
use beamstream_ops::{Backend, FlatFieldSpec, OUTPUT_TYPES};
use common::{Random, Rig, lease_on_host, on_host, rig, values_on_host};
use half::f16;

/// Rows and columns: one pixel, odd widths around a warp, more than a block.
const SHAPES: [(usize, usize); 6] = [(1, 1), (3, 31), (2, 33), (5, 257), (2, 2048), (2, 5001)];

/// A frame of counts from 5 to 120, with `bad` of 256 pixels saturated or no numbers.
fn frame(element: ElementType, rows: usize, columns: usize, bad: usize, random: &mut Random) -> Block {
    let format = Format::frame(element, rows, columns);
    let mut counts = || -> Vec<Option<u8>> {
        (0..rows * columns).map(|_| (random.below(256) >= bad).then(|| 5 + random.below(115) as u8)).collect()
    };
    macro_rules! block {
        ($type:ty, $mark:expr) => {
            on_host::<$type>(
                format,
                &counts().into_iter().map(|c| c.map_or($mark, <$type>::from)).collect::<Vec<_>>(),
            )
        };
    }
    match element {
        ElementType::U8 => block!(u8, u8::MAX),
        ElementType::U16 => block!(u16, u16::MAX),
        ElementType::U32 => block!(u32, u32::MAX),
        ElementType::I16 => block!(i16, i16::MAX),
        ElementType::I32 => block!(i32, i32::MAX),
        ElementType::F16 => block!(f16, f16::NAN),
        ElementType::F32 => block!(f32, f32::INFINITY),
    }
}

#[test]
fn sanitize_means_are_the_same_to_the_last_bit() {
    let Some(mut rig) = rig() else { return };
    let mut random = Random(1);
    for element in ElementType::ALL {
        for (rows, columns) in SHAPES {
            let format = Format::frame(element, rows, columns);
            let (mut cpu, mut cuda) =
                (rig.cpu.mean_image(format).unwrap(), rig.cuda.mean_image(format).unwrap());
            assert_eq!(cuda.mean().unwrap(), vec![0.0; rows * columns]);
            for _ in 0..3 {
                let frame = frame(element, rows, columns, 80, &mut random);
                cpu.add(&frame).unwrap();
                cuda.add(&rig.on_device(&frame)).unwrap();
            }
            assert_eq!(cuda.mean().unwrap(), cpu.mean().unwrap(), "{format}");
            assert_eq!(cuda.count(), 3);
            cuda.reset();
            assert_eq!((cuda.count(), cuda.mean().unwrap()), (0, vec![0.0; rows * columns]));
        }
    }
}

/// References for a shape, some of them without a beam or not numbers.
fn references(pixels: usize, flats: usize, bad: usize, random: &mut Random) -> (Vec<f32>, Vec<Vec<f32>>) {
    let mut image = |low: f64, high: f64| -> Vec<f32> {
        (0..pixels)
            .map(|_| match random.below(256) {
                place if place < bad / 2 => f32::NAN,
                place if place < bad => 0.0,
                _ => (low + (high - low) * random.next()) as f32,
            })
            .collect()
    };
    (image(2.0, 9.0), (0..flats).map(|_| image(80.0, 110.0)).collect())
}

fn compare_flat_fields(
    rig: &mut Rig,
    minus_log: bool,
    format: Format,
    flats: usize,
    bad: usize,
    random: &mut Random,
) {
    let spec = FlatFieldSpec { minus_log };
    let out = format.with_element(ElementType::F32);
    let (mut cpu, mut cuda) =
        (rig.cpu.flat_field(&spec, format).unwrap(), rig.cuda.flat_field(&spec, format).unwrap());
    let (dark, flats) = references(format.shape.len(), flats, bad, random);
    let flats: Vec<&[f32]> = flats.iter().map(Vec::as_slice).collect();
    for (round, later) in [0.0, 0.3, 1.0].into_iter().enumerate() {
        if round == 1 {
            // The first frame was corrected without references.
            cpu.set_references(&dark, &flats).unwrap();
            cuda.set_references(&dark, &flats).unwrap();
        }
        let frame = frame(format.element, format.shape.rows, format.shape.columns, bad, random);
        let (mut expected, mut found) = (lease_on_host(out), rig.lease_on_device(out));
        cpu.correct(&frame, later, &mut expected).unwrap();
        cuda.correct(&rig.on_device(&frame), later, &mut found).unwrap();
        let (expected, found) = (values_on_host::<f32>(expected), rig.values::<f32>(found));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let error = (found - expected).abs();
            assert!(
                error <= 2e-6 * expected.abs().max(1.0),
                "{format} {spec:?} {} flats, later {later}, pixel {at}: {found} for {expected}",
                flats.len()
            );
        }
    }
    // Several at once, more than go into one launch, are corrected like one after the other.
    let frames: Vec<Block> = (0..if format.shape.len() < 200 { 19 } else { 3 })
        .map(|_| frame(format.element, format.shape.rows, format.shape.columns, bad, random))
        .collect();
    let there: Vec<Block> = frames.iter().map(|frame| rig.on_device(frame)).collect();
    let mut found: Vec<LeaseMut> = frames.iter().map(|_| rig.lease_on_device(out)).collect();
    cuda.correct_all(&there, 0.3, &mut found).unwrap();
    for (frame, found) in frames.iter().zip(found) {
        let (mut expected, mut alone) = (lease_on_host(out), rig.lease_on_device(out));
        // Twice, as on the device.
        cpu.correct(frame, 0.3, &mut expected).unwrap();
        cpu.correct(frame, 0.3, &mut expected).unwrap();
        cuda.correct(&rig.on_device(frame), 0.3, &mut alone).unwrap();
        assert!(rig.values::<f32>(found) == rig.values::<f32>(alone), "{format} {spec:?}: one of several");
    }
    assert_eq!(cuda.take_bad_pixels().unwrap(), cpu.take_bad_pixels().unwrap(), "{format} {spec:?}");
    assert_eq!(cuda.take_bad_pixels().unwrap().total(), 0);
}

#[test]
fn sanitize_flat_fields_agree_and_count_the_same_pixels() {
    let Some(mut rig) = rig() else { return };
    let mut random = Random(2);
    for element in ElementType::ALL {
        for (rows, columns) in SHAPES {
            for (minus_log, flats, bad) in [(true, 1, 0), (true, 2, 40), (false, 1, 40), (true, 1, 200)] {
                let format = Format::frame(element, rows, columns);
                compare_flat_fields(&mut rig, minus_log, format, flats, bad, &mut random);
            }
        }
    }
    // Not one good pixel, and wide gaps.
    let format = Format::frame(ElementType::U16, 3, 700);
    compare_flat_fields(&mut rig, true, format, 1, 256, &mut random);
    compare_flat_fields(&mut rig, false, format, 2, 253, &mut random);
}

#[test]
fn references_of_another_size_are_refused() {
    let Some(mut rig) = rig() else { return };
    let format = Format::frame(ElementType::U16, 2, 3);
    let mut flat_field = rig.cuda.flat_field(&FlatFieldSpec::default(), format).unwrap();
    assert!(flat_field.set_references(&[0.0; 6], &[]).is_err());
    assert!(flat_field.set_references(&[0.0; 5], &[&[1.0; 6]]).is_err());
    let other = on_host(Format::frame(ElementType::U16, 3, 2), &[0_u16; 6]);
    let mut to = rig.lease_on_device(format.with_element(ElementType::F32));
    let other = rig.on_device(&other);
    let text = flat_field.correct(&other, 0.0, &mut to).unwrap_err().to_string();
    assert!(text.contains(&format.to_string()) && text.contains(&other.format().to_string()), "{text}");
    assert!(rig.cuda.mean_image(format).unwrap().add(&other).is_err());
}

#[test]
fn sanitize_slices_are_rescaled_alike() {
    let Some(mut rig) = rig() else { return };
    let mut random = Random(3);
    for size in [1, 3, 31, 64] {
        let from = Format::slice(ElementType::F32, size);
        let values: Vec<f32> = (0..size * size)
            .map(|_| match random.below(20) {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => -1e6,
                _ => (4.0 * random.next() - 2.0) as f32,
            })
            .collect();
        let block = on_host(from, &values);
        let on_device = rig.on_device(&block);
        for element in OUTPUT_TYPES {
            for range in [[-1.1, 1.3], [0.5, 0.5]] {
                let to = from.with_element(element);
                let (mut expected, mut found) = (lease_on_host(to), rig.lease_on_device(to));
                rig.cpu.rescale(&block, range, &mut expected).unwrap();
                rig.cuda.rescale(&on_device, range, &mut found).unwrap();
                match element {
                    ElementType::U8 => assert_eq!(rig.values::<u8>(found), values_on_host::<u8>(expected)),
                    ElementType::U16 => {
                        assert_eq!(rig.values::<u16>(found), values_on_host::<u16>(expected));
                    }
                    ElementType::F16 => {
                        let (found, expected) = (rig.values::<f16>(found), values_on_host::<f16>(expected));
                        let same = |(a, b): (&f16, &f16)| a == b || (a.is_nan() && b.is_nan());
                        assert!(found.iter().zip(&expected).all(same), "{found:?} for {expected:?}");
                    }
                    _ => {
                        let (found, expected) = (rig.values::<f32>(found), values_on_host::<f32>(expected));
                        assert!(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()));
                    }
                }
            }
        }
        let mut other = rig.lease_on_device(from.with_element(ElementType::I16));
        let text = rig.cuda.rescale(&on_device, [0.0, 1.0], &mut other).unwrap_err().to_string();
        assert!(text.contains("f16") && text.contains("i16"), "{text}");
    }
}

#[test]
fn the_rotation_axis_is_the_hosts() {
    let Some(mut rig) = rig() else { return };
    let (rows, columns, axis) = (40, 200, 103.25);
    let format = Format::frame(ElementType::F32, rows, columns);
    let at = |sign: f64| -> Block {
        let values: Vec<f32> = (0..rows * columns)
            .map(|at| {
                let (row, x) = ((at / columns) as f64, (at % columns) as f64 - axis);
                (-(sign * x - row).powi(2) / 200.0).exp() as f32
            })
            .collect();
        on_host(format, &values)
    };
    let (first, second) = (at(1.0), at(-1.0));
    let expected = rig.cpu.rotation_axis(&first, &second).unwrap();
    let (first, second) = (rig.on_device(&first), rig.on_device(&second));
    assert_eq!(rig.cuda.rotation_axis(&first, &second).unwrap(), expected);
    assert!((expected.rotation_axis_px - axis).abs() < 0.1, "{expected:?}");
}
