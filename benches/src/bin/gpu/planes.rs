//! Slices of any orientation from projections that are stored on the device.

use std::time::Instant;

use beamstream_benches::accuracy;
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_ops::{FlatFieldSpec, Plane, ProjectionBlock, ReconSpec, RotationAxis};

use crate::Outcome;
use crate::machine::{Machine, leases, wait};
use crate::results::{Bar, Figure, Results};
use crate::scan::{Scan, references};
use crate::settings::Settings;

/// Stores the whole scan and asks for the three planes through the middle of the volume.
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

    let row = extent.rows / 2;
    let planes = [Plane::horizontal(row, n), Plane::frontal(n / 2, n), Plane::sagittal(n / 2, n)];
    let shape = Format::frame(ElementType::F32, n, n);
    let images = machine.pool(planes.len(), shape)?;
    let axis = RotationAxis::Same(extent.axis_px());
    let (mut all, mut horizontal) = (Vec::new(), None);
    for _ in 0..=2 * settings.repeats {
        drop(horizontal.take());
        let mut to = leases(&images, shape, planes.len())?;
        let began = Instant::now();
        store.planes(&axis, &planes, 1.0, &mut to)?;
        let meta = BlockMeta::new(FrameId::new(0), Role::Projection);
        let mut blocks: Vec<_> = to.into_iter().map(|lease| lease.freeze(meta)).collect();
        blocks.iter().for_each(wait);
        all.push(began.elapsed().as_secs_f64());
        horizontal = Some(blocks.swap_remove(0));
    }
    let image = horizontal.map(|block| machine.download(&block)).transpose()?.unwrap_or_default();
    let found = accuracy(&image, &extent.truth(row), n);
    let mut figure = Figure::median(format!("three planes of {n}^2 from {}", extent.angles), &all[1..], "s");
    if (extent.rows, n, extent.angles) == (2048, 2048, 1800) {
        figure = figure.bar(Bar::AtMost(0.030));
    }
    let memory = backend.scan_store_memory(&spec, extent.angles).total_bytes() as f64 * 1e-9;
    results.add(
        figure.note(format!(
            "store {memory:.1} GB; horizontal: nRMSE {:.4}, gain {:.4}",
            found.nrmse, found.gain
        )),
    );
    Ok(())
}
