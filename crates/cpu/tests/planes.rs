//! Planes through the analytic phantom, against whole slices of the same projections.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::f64::consts::PI;

use beamstream_buffer::{Block, LeaseMut, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role, angular_weights};
use beamstream_cpu::CpuBackend;
use beamstream_ops::{Backend, Method, OpError, Plane, ProjectionBlock, ReconSpec, RotationAxis};
use beamstream_phantom as phantom;

const N: usize = 48;
const ROWS: usize = 5;
const ANGLES: usize = 64;
const AXIS_PX: f64 = 22.75;

fn scan() -> (Vec<f64>, Vec<Block>) {
    let angles: Vec<f64> = (0..ANGLES).map(|i| PI * i as f64 / ANGLES as f64).collect();
    let rows: Vec<Vec<f32>> =
        phantom::heights(ROWS).into_iter().map(|z| phantom::sinogram(N, &angles, z, AXIS_PX)).collect();
    let format = Format::frame(ElementType::F32, ROWS, N);
    let pool = Pool::host("projections", ANGLES, format.bytes()).unwrap();
    let blocks = (0..ANGLES).map(|at| {
        let mut lease = pool.lease(format).unwrap();
        let pixels = lease.elements_mut::<f32>().unwrap();
        for (line, row) in pixels.chunks_mut(N).zip(&rows) {
            line.copy_from_slice(&row[at * N..(at + 1) * N]);
        }
        lease.freeze(BlockMeta::new(FrameId::new(at as u64), Role::Projection))
    });
    (angles.clone(), blocks.collect())
}

fn lease(rows: usize, columns: usize) -> LeaseMut {
    let format = Format::frame(ElementType::F32, rows, columns);
    Pool::host("plane", 1, format.bytes()).unwrap().lease(format).unwrap()
}

fn pixels(lease: LeaseMut) -> Vec<f32> {
    let block = lease.freeze(BlockMeta::new(FrameId::new(0), Role::Projection));
    block.elements::<f32>().unwrap().to_vec()
}

fn rms(one: &[f32], other: &[f32]) -> f64 {
    let squares = one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / one.len() as f64).sqrt()
}

#[test]
fn planes_are_cut_out_of_the_volume() {
    let (angles, blocks) = scan();
    let weights = angular_weights(&angles);
    let batch: Vec<ProjectionBlock<'_>> = (0..ANGLES)
        .map(|at| ProjectionBlock {
            block: &blocks[at],
            first_row: 0,
            angle_rad: angles[at],
            weight: weights[at],
        })
        .collect();
    let backend = CpuBackend::new(2);
    let spec = ReconSpec { method: Method::Fbp, ..ReconSpec::new(ROWS, N, AXIS_PX) };

    let mut sums = backend.reconstruction(&spec).unwrap();
    sums.accumulate(&batch).unwrap();
    let mut volume = Vec::new();
    for row in 0..ROWS {
        let mut slice = lease(N, N);
        sums.slice(row, 2.0, &mut slice).unwrap();
        volume.push(pixels(slice));
    }

    let mut store = backend.scan_store(&spec, ANGLES).unwrap();
    store.add(&batch).unwrap();
    assert_eq!(store.len(), ANGLES);
    let axis = RotationAxis::Same(AXIS_PX);
    let between = Plane {
        origin: [1.5, Plane::horizontal(0, N).origin[1], Plane::horizontal(0, N).origin[2]],
        ..Plane::horizontal(0, N)
    };
    let planes = [Plane::horizontal(2, N), Plane::frontal(20, N), Plane::sagittal(31, N), between];
    let mut leases = vec![lease(N, N), lease(ROWS, N), lease(ROWS, N), lease(N, N)];
    store.planes(&axis, &planes, 2.0, &mut leases).unwrap();
    let found: Vec<Vec<f32>> = leases.into_iter().map(pixels).collect();

    let frontal: Vec<f32> = volume.iter().flat_map(|slice| slice[20 * N..21 * N].to_vec()).collect();
    let sagittal: Vec<f32> =
        volume.iter().flat_map(|slice| slice.iter().skip(31).step_by(N).copied()).collect();
    let between: Vec<f32> = volume[1].iter().zip(&volume[2]).map(|(a, b)| f32::midpoint(*a, *b)).collect();
    let range = volume[2].iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    for (name, found, expected) in [
        ("horizontal", &found[0], &volume[2]),
        ("frontal", &found[1], &frontal),
        ("sagittal", &found[2], &sagittal),
        ("between two rows", &found[3], &between),
    ] {
        let off = rms(found, expected);
        assert!(off < 1e-5 * f64::from(range), "{name}: {off} of {range}");
    }

    let other = RotationAxis::Same(AXIS_PX + 2.0);
    let mut moved = vec![lease(N, N)];
    store.planes(&other, &planes[..1], 2.0, &mut moved).unwrap();
    assert!(rms(&pixels(moved.remove(0)), &volume[2]) > 0.05 * f64::from(range), "the axis has moved");
}

#[test]
fn a_full_store_and_missing_buffers_are_refused() {
    let (angles, blocks) = scan();
    let one =
        |at: usize| ProjectionBlock { block: &blocks[at], first_row: 0, angle_rad: angles[at], weight: 1.0 };
    let spec = ReconSpec::new(ROWS, N, AXIS_PX);
    let mut store = CpuBackend::new(1).scan_store(&spec, 1).unwrap();
    store.add(&[one(0)]).unwrap();
    assert!(matches!(store.add(&[one(1)]), Err(OpError::Count { expected: 1, found: 2, .. })));
    let planes = [Plane::horizontal(0, N)];
    let missing = store.planes(&RotationAxis::Same(AXIS_PX), &planes, 1.0, &mut []);
    assert!(matches!(missing, Err(OpError::Count { expected: 1, found: 0, .. })));
}
