//! Accuracy: against the analytic phantom, and against the CPU on the same projections.

use beamstream_benches::{accuracy, distance};
use beamstream_buffer::{Block, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_cpu::CpuBackend;
use beamstream_ops::{Backend, Method, ProjectionBlock, ReconSpec, Storage};
use beamstream_phantom::{heights, sinogram, truth};

use crate::Outcome;
use crate::machine::{Machine, leases};
use crate::results::{Bar, Figure, Results};
use crate::settings::Settings;

/// Rows that are reconstructed: their heights differ, and an odd number leaves one without a partner.
const ROWS: usize = 3;

/// All methods and precisions.
pub(crate) fn measure(machine: &Machine, settings: &Settings, results: &mut Results) -> Outcome<()> {
    let (n, angles) = (settings.extent.columns, settings.extent.angles);
    let axis_px = settings.extent.axis_px();
    let projections = projections(n, angles, axis_px)?;
    let truth = truth(n, heights(ROWS)[0]);
    let there = machine.upload(&projections)?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpu = CpuBackend::new(threads);
    let full = n >= 2048 && angles >= 1800;
    for (method, storage, same_within) in [
        (Method::Fourier, Storage::F32, 1e-4),
        (Method::Fbp, Storage::F32, 1e-4),
        (Method::Fbp, Storage::F16, 1e-3),
    ] {
        let spec = ReconSpec { method, storage, ..ReconSpec::new(ROWS, n, axis_px) };
        let backend = machine.backend("quality")?;
        let ours = slices(machine, &*backend, &spec, &there)?;
        let found = accuracy(&ours[0], &truth, n);
        let mut figure = Figure::new(format!("nRMSE of {method}, {storage}"), found.nrmse, "");
        if full && method == Method::Fourier {
            figure = figure.bar(Bar::AtMost(0.0035));
        }
        results.add(figure.note(format!("gain {:.5}", found.gain)));
        if machine.gpu().is_some() {
            let theirs = slices(machine, &cpu, &spec, &projections)?;
            let apart =
                ours.iter().zip(&theirs).map(|(ours, theirs)| distance(ours, theirs)).fold(0.0, f64::max);
            let figure = Figure::new(format!("distance to the CPU of {method}, {storage}"), apart, "");
            results.add(
                figure.bar(Bar::AtMost(same_within)).note("root mean square over the range, worst slice"),
            );
        }
    }
    Ok(())
}

/// Line integrals of the phantom `(row, column)`, each with its angle.
fn projections(n: usize, angles: usize, axis_px: f64) -> Outcome<Vec<Block>> {
    let format = Format::frame(ElementType::F32, ROWS, n);
    let pool = Pool::host("phantom", angles, format.bytes())?;
    let angle_of = |at: usize| std::f64::consts::PI * at as f64 / angles as f64;
    let all: Vec<f64> = (0..angles).map(angle_of).collect();
    let rows: Vec<Vec<f32>> = heights(ROWS).iter().map(|z| sinogram(n, &all, *z, axis_px)).collect();
    let mut blocks = Vec::with_capacity(angles);
    for (at, &angle_rad) in all.iter().enumerate() {
        let mut lease = pool.lease(format)?;
        for (line, row) in lease.elements_mut::<f32>()?.chunks_exact_mut(n).zip(&rows) {
            line.copy_from_slice(&row[at * n..(at + 1) * n]);
        }
        let mut meta = BlockMeta::new(FrameId::new(at as u64), Role::Projection);
        meta.angle_rad = Some(angle_rad);
        blocks.push(lease.freeze(meta));
    }
    Ok(blocks)
}

/// The slices of all rows, on the host.
fn slices(
    machine: &Machine,
    backend: &dyn Backend,
    spec: &ReconSpec,
    projections: &[Block],
) -> Outcome<Vec<Vec<f32>>> {
    let spec = ReconSpec { batch: backend.batch(), ..spec.clone() };
    let mut recon = backend.reconstruction(&spec)?;
    let weight = std::f64::consts::PI / projections.len() as f64;
    for batch in projections.chunks(spec.batch) {
        let batch: Vec<ProjectionBlock<'_>> = batch
            .iter()
            .map(|block| ProjectionBlock {
                block,
                first_row: 0,
                angle_rad: block.meta.angle_rad.unwrap_or(0.0),
                weight,
            })
            .collect();
        recon.accumulate(&batch)?;
    }
    let format = Format::frame(ElementType::F32, spec.columns, spec.columns);
    let on_host = projections.first().is_some_and(|block| block.kind().is_host());
    let pool = if on_host {
        Pool::host("slices", spec.rows, format.bytes())?
    } else {
        machine.pool(spec.rows, format)?
    };
    let mut images = Vec::with_capacity(spec.rows);
    for (group, rows) in recon.row_groups().iter().enumerate() {
        let mut to = leases(&pool, format, rows.len())?;
        recon.slices(group, 1.0, &mut to)?;
        for lease in to {
            let block = lease.freeze(BlockMeta::new(FrameId::new(0), Role::Projection));
            images.push(machine.download(&block)?);
        }
    }
    Ok(images)
}
