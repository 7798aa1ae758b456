//! The Fourier reconstruction of a GPU against that of the CPU, within the tolerance of `ReconSpec`. Needs a GPU.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::f64::consts::PI;
use std::sync::Arc;

use beamstream_buffer::{Block, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_cpu::CpuBackend;
use beamstream_cuda::CudaDevice;
use beamstream_ops::{
    Backend, Device, Filter, OpError, Padding, ProjectionBlock, ReconError, ReconSpec, Reconstruction,
    RotationAxis, Transfer,
};

/// Root mean square by which backends may differ, as a part of the slice's range.
const TOLERANCE: f64 = 1e-4;
const GOLDEN_RAD: f64 = 1.941_611_038_725_466_5;

/// Where blocks lie and what computes on them.
struct Place {
    backend: Arc<dyn Backend>,
    device: Option<(CudaDevice, Box<dyn Transfer>)>,
}

impl Place {
    fn cpu() -> Self {
        Self { backend: Arc::new(CpuBackend::new(2)), device: None }
    }

    fn gpu() -> Option<Self> {
        let device = match CudaDevice::open(0, Arc::new(CpuBackend::new(1))) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("skipped: {error}");
                return None;
            }
        };
        let (backend, transfer) = (device.backend("test").unwrap(), device.transfer("test").unwrap());
        Some(Self { backend, device: Some((device, transfer)) })
    }

    /// A pool in the memory that the backend computes on.
    fn pool(&self, slots: usize, format: Format) -> Pool {
        match &self.device {
            Some((device, _)) => Pool::new("test", &*device.allocator(), slots, format.bytes()).unwrap(),
            None => Pool::host("test", slots, format.bytes()).unwrap(),
        }
    }

    /// Brings a block from the host.
    fn bring(&mut self, block: Block) -> Block {
        let Some((device, transfer)) = &mut self.device else { return block };
        let pool = Pool::new("to", &*device.allocator(), 1, block.format().bytes()).unwrap();
        let mut lease = pool.lease(block.format()).unwrap();
        transfer.copy(&block, &mut lease).unwrap();
        lease.freeze(block.meta)
    }

    /// The values of a block.
    fn values(&mut self, block: &Block) -> Vec<f32> {
        let Some((device, transfer)) = &mut self.device else {
            return block.elements::<f32>().unwrap().to_vec();
        };
        let pool = Pool::new("from", &*device.pinned(), 1, block.format().bytes()).unwrap();
        let mut lease = pool.lease(block.format()).unwrap();
        transfer.copy(block, &mut lease).unwrap();
        lease.freeze(block.meta).elements::<f32>().unwrap().to_vec()
    }
}

fn meta() -> BlockMeta {
    BlockMeta::new(FrameId::new(0), Role::Projection)
}

/// Numbers between 0 and 1 in no order.
fn noise(seed: usize) -> f32 {
    let mut x = (seed as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 40) as f32 / (1_u64 << 24) as f32
}

/// A scan of noise.
struct Scan {
    spec: ReconSpec,
    angles_rad: Vec<f64>,
    /// Rows of the blocks above those that are reconstructed.
    first_row: usize,
    /// Projections of each call; the last one takes the rest.
    calls: Vec<usize>,
}

impl Scan {
    fn new(columns: usize, rows: usize, angles: usize) -> Self {
        let spec = ReconSpec::new(rows, columns, columns as f64 / 2.0 - 0.7);
        let angles_rad = (0..angles).map(|at| at as f64 * PI / angles as f64).collect();
        Self { spec, angles_rad, first_row: 0, calls: Vec::new() }
    }

    fn golden(self) -> Self {
        let angles_rad = (0..self.angles_rad.len()).map(|at| at as f64 * GOLDEN_RAD).collect();
        Self { angles_rad, ..self }
    }

    /// The projections as blocks of the host.
    fn blocks(&self) -> Vec<Block> {
        let rows = self.spec.rows + self.first_row;
        let format = Format::frame(ElementType::F32, rows, self.spec.columns);
        let pool = Pool::host("scan", self.angles_rad.len(), format.bytes()).unwrap();
        let block = |number: usize| {
            let mut lease = pool.lease(format).unwrap();
            for (at, value) in lease.elements_mut::<f32>().unwrap().iter_mut().enumerate() {
                *value = noise(number * format.shape.len() + at);
                // Values that are not finite count as 0.
                match (at + number) % 1009 {
                    5 => *value = f32::NAN,
                    6 => *value = f32::INFINITY,
                    _ => {}
                }
            }
            lease.freeze(meta())
        };
        (0..self.angles_rad.len()).map(block).collect()
    }

    /// Adds projections, in the calls that were asked for.
    fn add(&self, sums: &mut dyn Reconstruction, blocks: &[Block]) {
        let weight = PI / self.angles_rad.len() as f64;
        let batch: Vec<ProjectionBlock<'_>> = blocks
            .iter()
            .zip(&self.angles_rad)
            .map(|(block, &angle_rad)| ProjectionBlock {
                block,
                first_row: self.first_row,
                angle_rad,
                weight,
            })
            .collect();
        let mut rest = batch.as_slice();
        for count in &self.calls {
            let (now, later) = rest.split_at(*count);
            sums.accumulate(now).unwrap();
            rest = later;
        }
        sums.accumulate(rest).unwrap();
    }

    /// All slices, made group by group.
    fn slices(&self, place: &mut Place, sums: &mut dyn Reconstruction, scale: f64) -> Vec<Vec<f32>> {
        let format = Format::slice(ElementType::F32, self.spec.size());
        let mut slices = Vec::new();
        for (group, rows) in sums.row_groups().into_iter().enumerate() {
            let pool = place.pool(rows.len(), format);
            let mut leases: Vec<_> = rows.map(|_| pool.lease(format).unwrap()).collect();
            sums.slices(group, scale, &mut leases).unwrap();
            for lease in leases {
                slices.push(place.values(&lease.freeze(meta())));
            }
        }
        slices
    }

    fn slice(&self, place: &mut Place, sums: &mut dyn Reconstruction, row: usize) -> Vec<f32> {
        let format = Format::slice(ElementType::F32, self.spec.size());
        let mut lease = place.pool(1, format).lease(format).unwrap();
        sums.slice(row, 1.0, &mut lease).unwrap();
        place.values(&lease.freeze(meta()))
    }

    fn volume(&self, place: &mut Place) -> Vec<Vec<f32>> {
        let blocks: Vec<Block> = self.blocks().into_iter().map(|block| place.bring(block)).collect();
        let mut sums = place.backend.reconstruction(&self.spec).unwrap();
        self.add(&mut *sums, &blocks);
        self.slices(place, &mut *sums, 1.0)
    }

    /// Compares all slices of both backends.
    fn check(&self, name: &str) {
        let Some(mut gpu) = Place::gpu() else { return };
        let (found, expected) = (self.volume(&mut gpu), self.volume(&mut Place::cpu()));
        assert_eq!(found.len(), self.spec.rows);
        let worst = found.iter().zip(&expected).map(|(found, expected)| difference(found, expected));
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < TOLERANCE, "{name}: {worst:.2e} of the range");
        eprintln!("{name}: {worst:.2e} of the range");
    }
}

/// Root mean square of the difference, over the range of what is expected; over its magnitude where all is the same.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let squares: f64 = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let (low, high) =
        expected.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let scale = if high > low { high - low } else { high.abs() };
    (squares / found.len() as f64).sqrt() / f64::from(scale)
}

#[test]
fn widths_of_all_kinds() {
    for (columns, rows, angles) in [
        (1, 1, 3),
        (8, 2, 5),
        (31, 3, 20),
        (64, 2, 65),
        (257, 3, 30),
        (320, 1, 64),
        (321, 5, 70),
        (545, 2, 40),
    ] {
        Scan::new(columns, rows, angles).check(&format!("{columns} columns"));
    }
}

#[test]
fn a_wide_detector() {
    Scan::new(2048, 3, 50).check("2048 columns");
}

#[test]
fn more_rows_than_a_chunk() {
    for rows in [64, 65, 130] {
        Scan::new(33, rows, 9).check(&format!("{rows} rows"));
    }
}

#[test]
fn angles_in_any_number_and_order() {
    Scan::new(64, 3, 1).check("one angle");
    Scan::new(65, 3, 7).check("seven angles");
    Scan::new(100, 3, 150).golden().check("golden angles");
    let mut scan = Scan::new(90, 2, 40);
    scan.angles_rad.iter_mut().enumerate().for_each(|(at, angle)| *angle = 20.0 - at as f64 * 0.7);
    scan.check("angles beyond a turn");
}

#[test]
fn every_filter_and_padding() {
    for filter in Filter::ALL {
        for padding in [Padding::Zero, Padding::Edge] {
            let mut scan = Scan::new(50, 2, 30);
            scan.spec.filter = *filter;
            scan.spec.padding = padding;
            scan.check(&format!("{filter}, {padding}"));
        }
    }
}

#[test]
fn each_row_has_an_axis() {
    for padding in [Padding::Zero, Padding::Edge] {
        let mut scan = Scan::new(101, 7, 40);
        scan.spec.padding = padding;
        scan.spec.rotation_axis =
            RotationAxis::PerRow((0..7).map(|row| 47.0 + 1.3 * f64::from(row)).collect());
        scan.check("tilted axis");
    }
}

#[test]
fn parts_of_projections_and_of_batches() {
    let mut scan = Scan::new(70, 4, 150);
    scan.first_row = 5;
    scan.calls = vec![1, 0, 3, 70];
    scan.spec.batch = 16;
    scan.check("batches of 16");
    scan.spec.batch = 1000;
    scan.check("batches longer than the kernels take");
}

#[test]
fn slices_before_the_end_and_after_a_reset() {
    let Some(mut gpu) = Place::gpu() else { return };
    let scan = Scan::new(80, 70, 30);
    let blocks: Vec<Block> = scan.blocks().into_iter().map(|block| gpu.bring(block)).collect();
    let mut sums = gpu.backend.reconstruction(&scan.spec).unwrap();
    scan.add(&mut *sums, &blocks[..10]);
    let early = scan.slice(&mut gpu, &mut *sums, 67);
    scan.add(&mut *sums, &blocks[10..]);
    let late = scan.slices(&mut gpu, &mut *sums, 1.0);
    assert_ne!(early, late[67]);
    for row in [0, 1, 63, 64, 67, 69] {
        assert_eq!(scan.slice(&mut gpu, &mut *sums, row), late[row], "row {row}");
    }
    for (scaled, slice) in scan.slices(&mut gpu, &mut *sums, -2.0).iter().zip(&late) {
        assert!(scaled.iter().zip(slice).all(|(scaled, value)| *scaled == -2.0 * value));
    }
    sums.reset();
    assert!(scan.slice(&mut gpu, &mut *sums, 3).iter().all(|value| *value == 0.0));
    scan.add(&mut *sums, &blocks[..10]);
    // The same bits: the result does not depend on time.
    assert_eq!(scan.slice(&mut gpu, &mut *sums, 67), early);
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(mut gpu) = Place::gpu() else { return };
    let scan = Scan::new(40, 6, 4);
    let blocks: Vec<Block> = scan.blocks().into_iter().map(|block| gpu.bring(block)).collect();
    let mut sums = gpu.backend.reconstruction(&scan.spec).unwrap();
    let one = |first_row, weight| [ProjectionBlock { block: &blocks[0], first_row, angle_rad: 0.0, weight }];
    let refused = sums.accumulate(&one(1, 1.0)).unwrap_err();
    assert!(matches!(refused, OpError::Recon(ReconError::ProjectionLength { .. })), "{refused}");
    let refused = sums.accumulate(&one(0, f64::NAN)).unwrap_err();
    assert!(matches!(refused, OpError::Recon(ReconError::Angle { .. })), "{refused}");
    let format = Format::slice(ElementType::F32, 40);
    let mut lease = gpu.pool(1, format).lease(format).unwrap();
    let refused = sums.slice(6, 1.0, &mut lease).unwrap_err();
    assert!(matches!(refused, OpError::Recon(ReconError::Row { .. })), "{refused}");
    let refused = sums.slices(0, 1.0, std::slice::from_mut(&mut lease)).unwrap_err();
    assert!(matches!(refused, OpError::Recon(ReconError::Slices { .. })), "{refused}");
    let wide = ReconSpec::new(1, 1 << 16, 100.0);
    let refused = gpu.backend.reconstruction(&wide).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("65536"), "{refused}");
}
