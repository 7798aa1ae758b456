//! Slices of any orientation from projections that are stored on the device.

use std::time::Instant;

use beamstream_benches::accuracy;
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_ops::{FlatFieldSpec, Plane, ProjectionBlock, ReconSpec, RotationAxis, ScanStore};

use crate::Outcome;
use crate::machine::{Machine, leases, wait};
use crate::results::{Bar, Figure, Results};
use crate::scan::{Extent, Scan, references};
use crate::settings::Settings;

/// Stores the whole scan and asks for three planes through the middle of the volume, along its axes and oblique.
pub(crate) fn measure(
    machine: &Machine,
    scan: &Scan,
    settings: &Settings,
    results: &mut Results,
) -> Outcome<()> {
    let extent = scan.extent;
    let n = extent.columns;
    let backend = machine.backend("planes")?;
    let spec = ReconSpec::new(extent.rows, n, extent.axis_px());
    let mut store = backend.scan_store(&spec, extent.angles)?;
    let frames = machine.upload(scan.projections(0))?;
    let mut flat_field = backend.flat_field(&FlatFieldSpec::default(), extent.frame_format())?;
    let [dark, flat] = references(scan, 0)?;
    flat_field.set_references(&dark, &[&flat])?;
    let corrected = Format::frame(ElementType::F32, extent.rows, n);
    let pool = machine.pool(2, corrected)?;
    let weight = std::f64::consts::PI / extent.angles as f64;
    for projection in 0..extent.angles {
        let mut lease = pool.lease(corrected)?;
        flat_field.correct(&frames[projection % frames.len()], 0.0, &mut lease)?;
        let block = lease.freeze(BlockMeta::new(FrameId::new(projection as u64), Role::Projection));
        let angle_rad = extent.angle_rad(projection as u64);
        store.add(&[ProjectionBlock { block: &block, first_row: 0, angle_rad, weight }])?;
    }

    let memory = backend.scan_store_memory(&spec, extent.angles).total_bytes() as f64 * 1e-9;
    let row = extent.rows / 2;
    let axis_aligned = [Plane::horizontal(row, n), Plane::frontal(n / 2, n), Plane::sagittal(n / 2, n)];
    for (what, planes) in [("along the axes", axis_aligned), ("oblique", oblique(&extent))] {
        let (seconds, first) = time(machine, store.as_mut(), &extent, &planes, settings)?;
        let mut figure =
            Figure::median(format!("three planes of {n}^2 from {}, {what}", extent.angles), &seconds, "s");
        if (extent.rows, n, extent.angles) == (2048, 2048, 1800) {
            figure = figure.bar(Bar::AtMost(0.030));
        }
        let quality = if planes[0] == axis_aligned[0] {
            let found = accuracy(&first, &extent.truth(row), n);
            format!("; horizontal: nRMSE {:.4}, gain {:.4}", found.nrmse, found.gain)
        } else {
            String::new()
        };
        results.add(figure.note(format!("store {memory:.1} GB{quality}")));
    }
    Ok(())
}

/// Planes through the middle of the volume along no axis: two steep ones and a flat one.
fn oblique(extent: &Extent) -> [Plane; 3] {
    let along = [[0.3, 0.5, 0.8], [0.1, 0.7, 0.7], [0.0, 0.2, 1.0]];
    let beside = [[0.7, -0.6, 0.2], [1.0, 0.1, 0.2], [0.34, 0.94, -0.1]];
    let middle = [(extent.rows as f64 - 1.0) / 2.0, 0.0, 0.0];
    let half = (extent.columns as f64 - 1.0) / 2.0;
    std::array::from_fn(|plane| {
        let right = unit(along[plane]);
        let across: f64 = right.iter().zip(beside[plane]).map(|(right, beside)| right * beside).sum();
        let down = unit(std::array::from_fn(|axis| beside[plane][axis] - across * right[axis]));
        let origin = std::array::from_fn(|axis| middle[axis] - half * (down[axis] + right[axis]));
        Plane { origin, down, right }
    })
}

fn unit(vector: [f64; 3]) -> [f64; 3] {
    let length = vector.iter().map(|part| part * part).sum::<f64>().sqrt();
    vector.map(|part| part / length)
}

/// Seconds that the planes take, and the pixels of the first.
fn time(
    machine: &Machine,
    store: &mut dyn ScanStore,
    extent: &Extent,
    planes: &[Plane],
    settings: &Settings,
) -> Outcome<(Vec<f64>, Vec<f32>)> {
    let shape = Format::frame(ElementType::F32, extent.columns, extent.columns);
    let images = machine.pool(planes.len(), shape)?;
    let axis = RotationAxis::Same(extent.axis_px());
    let (mut all, mut first) = (Vec::new(), None);
    for _ in 0..=2 * settings.repeats {
        drop(first.take());
        let mut to = leases(&images, shape, planes.len())?;
        let began = Instant::now();
        store.planes(&axis, planes, 1.0, &mut to)?;
        let meta = BlockMeta::new(FrameId::new(0), Role::Projection);
        let mut blocks: Vec<_> = to.into_iter().map(|lease| lease.freeze(meta)).collect();
        blocks.iter().for_each(wait);
        all.push(began.elapsed().as_secs_f64());
        first = Some(blocks.swap_remove(0));
    }
    // The first warms up.
    let pixels = first.map(|block| machine.download(&block)).transpose()?.unwrap_or_default();
    Ok((all.split_off(1), pixels))
}
