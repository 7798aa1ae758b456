//! Computation alone: everything lies on the device before the clock starts.

use std::time::Instant;

use beamstream_buffer::Block;
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_ops::{FlatFieldSpec, Method, ProjectionBlock, ReconSpec, Reconstruction, Storage};

use crate::Outcome;
use crate::machine::{Machine, leases, wait};
use crate::results::{Bar, Figure, Results};
use crate::scan::{Scan, line_integrals, references};
use crate::settings::Settings;

/// Name of the figure by which others are judged.
pub(crate) const VOLUME: &str = "computation of the volume";
/// Rows of the direct backprojection.
const DIRECT_ROWS: usize = 64;

/// Flat field and reconstruction of the whole volume.
pub(crate) fn volume(
    machine: &Machine,
    scan: &Scan,
    settings: &Settings,
    results: &mut Results,
) -> Outcome<()> {
    let extent = scan.extent;
    let frames = machine.upload(scan.projections(0))?;
    let (correct, sum) = (machine.backend("correct")?, machine.backend("volume")?);
    let mut flat_field = correct.flat_field(&FlatFieldSpec::default(), extent.frame_format())?;
    let [dark, flat] = references(scan, 0)?;
    flat_field.set_references(&dark, &[&flat])?;
    let batch = sum.batch();
    let spec = ReconSpec { batch, ..ReconSpec::new(extent.rows, extent.columns, extent.axis_px()) };
    let mut recon = sum.reconstruction(&spec)?;
    let corrected = Format::frame(ElementType::F32, extent.rows, extent.columns);
    // One batch is corrected while the one before is added.
    let pool = machine.pool(2 * batch, corrected)?;
    let mut all = Vec::new();
    for _ in 0..=settings.repeats {
        recon.reset();
        let began = Instant::now();
        let mut waiting: Vec<Block> = Vec::with_capacity(batch);
        for projection in 0..extent.angles {
            let mut lease = pool.lease(corrected)?;
            flat_field.correct(&frames[projection % frames.len()], 0.0, &mut lease)?;
            let mut meta = BlockMeta::new(FrameId::new(projection as u64), Role::Projection);
            meta.angle_rad = Some(extent.angle_rad(projection as u64));
            waiting.push(lease.freeze(meta));
            if waiting.len() == batch || projection + 1 == extent.angles {
                add(&mut *recon, &waiting, extent.angles)?;
                waiting.clear();
            }
        }
        slices(machine, &mut *recon, &spec)?;
        all.push(began.elapsed().as_secs_f64());
    }
    let mut figure = Figure::median(VOLUME, &all[1..], "s");
    if (extent.rows, extent.columns, extent.angles) == (2048, 2048, 1800) {
        figure = figure.bar(Bar::AtMost(0.65));
    }
    results.add(figure.note("flat field to the last slice, on the device"));
    Ok(())
}

/// Adds corrected projections with the weights of an even scan over half a turn.
fn add(recon: &mut dyn Reconstruction, blocks: &[Block], angles: usize) -> Outcome<()> {
    let weight = std::f64::consts::PI / angles as f64;
    let projection = |block| ProjectionBlock { block, first_row: 0, angle_rad: angle_of(block), weight };
    let projections: Vec<ProjectionBlock<'_>> = blocks.iter().map(projection).collect();
    Ok(recon.accumulate(&projections)?)
}

fn angle_of(block: &Block) -> f64 {
    block.meta.angle_rad.unwrap_or(0.0)
}

/// All slices, into buffers that are used again and again; waits for the last.
fn slices(machine: &Machine, recon: &mut dyn Reconstruction, spec: &ReconSpec) -> Outcome<()> {
    let format = Format::frame(ElementType::F32, spec.columns, spec.columns);
    let groups = recon.row_groups();
    let widest = groups.iter().map(ExactSizeIterator::len).max().unwrap_or(1);
    let pool = machine.pool(2 * widest, format)?;
    let mut last = None;
    for (group, rows) in groups.iter().enumerate() {
        let mut to = leases(&pool, format, rows.len())?;
        recon.slices(group, 1.0, &mut to)?;
        last = to.pop().map(|lease| lease.freeze(BlockMeta::new(FrameId::new(0), Role::Projection)));
    }
    last.iter().for_each(wait);
    Ok(())
}

/// Filter and direct backprojection of some slices, in both precisions.
pub(crate) fn direct(machine: &Machine, settings: &Settings, results: &mut Results) -> Outcome<()> {
    let extent = settings.extent;
    let rows = DIRECT_ROWS.min(extent.rows);
    let integrals = machine.upload(&line_integrals(&extent, rows)?)?;
    let scan: Vec<Block> = (0..extent.angles)
        .map(|projection| {
            let mut block = integrals[projection % integrals.len()].clone();
            block.meta.angle_rad = Some(extent.angle_rad(projection as u64));
            block
        })
        .collect();
    // The ceilings are those of an H200's texture units, measured apart.
    for (storage, least, ceiling) in [(Storage::F32, 950.0, 1033.0), (Storage::F16, 2900.0, 3123.0)] {
        let backend = machine.backend("direct")?;
        let spec = ReconSpec {
            method: Method::Fbp,
            storage,
            batch: backend.batch(),
            ..ReconSpec::new(rows, extent.columns, extent.axis_px())
        };
        let mut recon = backend.reconstruction(&spec)?;
        let mut all = Vec::new();
        for _ in 0..=settings.repeats {
            recon.reset();
            let began = Instant::now();
            for batch in scan.chunks(spec.batch) {
                add(&mut *recon, batch, extent.angles)?;
            }
            slices(machine, &mut *recon, &spec)?;
            let updates = (rows * extent.columns * extent.columns * extent.angles) as f64;
            all.push(updates / began.elapsed().as_secs_f64() * 1e-9);
        }
        let what = format!("direct backprojection, {storage}, {rows} slices");
        let mut figure = Figure::median(what, &all[1..], "GUPS");
        if machine.gpu().is_some() && extent.columns == 2048 {
            figure = figure.bar(Bar::AtLeast(least)).ceiling(ceiling, "texture units");
        }
        results.add(figure.note("with the filter and the slices' copies out"));
    }
    Ok(())
}
