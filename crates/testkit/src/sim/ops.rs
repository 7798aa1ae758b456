//! Operations of a simulated device: those of the CPU, enqueued.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use beamstream_buffer::{Block, DeviceId, LeaseMut};
use beamstream_core::Format;
use beamstream_ops::{
    AxisEstimate, Backend, BadPixels, FlatField, FlatFieldSpec, MeanImage, Memory, OpError, ProjectionBlock,
    ReconSpec, Reconstruction, ScanStore,
};

use super::core::lock;
use super::stream::{Place, SimStream, host_lease};

pub(super) struct SimBackend {
    stream: Arc<SimStream>,
    cpu: Arc<dyn Backend>,
}

impl SimBackend {
    pub(super) fn new(stream: SimStream, cpu: Arc<dyn Backend>) -> Self {
        Self { stream: Arc::new(stream), cpu }
    }

    fn sim<T: ?Sized>(&self, op: Box<T>) -> Sim<T> {
        Sim { stream: self.stream.clone(), op: Arc::new(Mutex::new(op)) }
    }
}

/// An operation of the CPU that works in the thread of a stream.
struct Sim<T: ?Sized> {
    stream: Arc<SimStream>,
    op: Arc<Mutex<Box<T>>>,
}

impl Backend for SimBackend {
    fn device(&self) -> DeviceId {
        self.stream.core.id
    }

    fn mean_image(&self, format: Format) -> Result<Box<dyn MeanImage>, OpError> {
        self.stream.core.call("mean_image")?;
        Ok(Box::new(SimMean { sim: self.sim(self.cpu.mean_image(format)?), count: 0 }))
    }

    fn flat_field(&self, spec: &FlatFieldSpec, format: Format) -> Result<Box<dyn FlatField>, OpError> {
        self.stream.core.call("flat_field")?;
        Ok(Box::new(self.sim(self.cpu.flat_field(spec, format)?)))
    }

    fn frames_at_once(&self, _format: Format) -> usize {
        4
    }

    fn reconstruction(&self, spec: &ReconSpec) -> Result<Box<dyn Reconstruction>, OpError> {
        self.stream.core.call("reconstruction")?;
        let sums = self.cpu.reconstruction(spec)?;
        Ok(Box::new(SimReconstruction { groups: sums.row_groups(), sim: self.sim(sums) }))
    }

    fn reconstruction_memory(&self, spec: &ReconSpec) -> Memory {
        self.cpu.reconstruction_memory(spec)
    }

    fn batch(&self) -> usize {
        self.cpu.batch()
    }

    fn slices_at_once(&self, spec: &ReconSpec) -> usize {
        self.cpu.slices_at_once(spec)
    }

    fn scan_store(&self, _spec: &ReconSpec, _projections: usize) -> Result<Box<dyn ScanStore>, OpError> {
        let cause = "stores of filtered projections are not simulated".to_owned();
        Err(OpError::Device { device: self.device(), cause })
    }

    fn scan_store_memory(&self, spec: &ReconSpec, projections: usize) -> Memory {
        self.cpu.scan_store_memory(spec, projections)
    }

    fn rescale(&self, from: &Block, range: [f32; 2], to: &mut LeaseMut) -> Result<(), OpError> {
        self.stream.core.call("rescale")?;
        let cpu = self.cpu.clone();
        self.stream.enqueue_on(&[from], &mut [to], move |from, to| {
            let mut scaled = host_lease(to[0].format)?;
            cpu.rescale(&from[0].load()?, range, &mut scaled)?;
            to[0].store(scaled);
            Ok(())
        })
    }

    fn rotation_axis(&self, at_0: &Block, at_180: &Block) -> Result<AxisEstimate, OpError> {
        self.stream.core.call("rotation_axis")?;
        let loaded = Arc::new(Mutex::new(Vec::new()));
        let to = loaded.clone();
        self.stream.enqueue_on(&[at_0, at_180], &mut [], move |from, _| {
            for place in from {
                lock(&to).push(place.load()?);
            }
            Ok(())
        })?;
        self.stream.wait();
        match &lock(&loaded)[..] {
            [at_0, at_180] => self.cpu.rotation_axis(at_0, at_180),
            _ => Err(OpError::Device { device: self.device(), cause: "nothing was loaded".to_owned() }),
        }
    }
}

struct SimMean {
    sim: Sim<dyn MeanImage>,
    count: u64,
}

impl MeanImage for SimMean {
    fn add(&mut self, frame: &Block) -> Result<(), OpError> {
        self.sim.stream.core.call("mean_image.add")?;
        self.count += 1;
        let op = self.sim.op.clone();
        self.sim.stream.enqueue_on(&[frame], &mut [], move |from, _| lock(&op).add(&from[0].load()?))
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn mean(&self) -> Result<Vec<f32>, OpError> {
        self.sim.stream.core.call("mean_image.mean")?;
        self.sim.stream.wait();
        lock(&self.sim.op).mean()
    }

    fn reset(&mut self) {
        self.count = 0;
        let op = self.sim.op.clone();
        self.sim.stream.enqueue(move || {
            lock(&op).reset();
            Ok(())
        });
    }
}

impl FlatField for Sim<dyn FlatField> {
    fn set_references(&mut self, dark: &[f32], flats: &[&[f32]]) -> Result<(), OpError> {
        self.stream.core.call("flat_field.set_references")?;
        let op = self.op.clone();
        let dark = dark.to_vec();
        let flats: Vec<Vec<f32>> = flats.iter().map(|flat| flat.to_vec()).collect();
        self.stream.enqueue(move || {
            let flats: Vec<&[f32]> = flats.iter().map(Vec::as_slice).collect();
            lock(&op).set_references(&dark, &flats)
        });
        Ok(())
    }

    fn correct(&mut self, frame: &Block, later: f32, to: &mut LeaseMut) -> Result<(), OpError> {
        self.stream.core.call("flat_field.correct")?;
        let op = self.op.clone();
        self.stream.enqueue_on(&[frame], &mut [to], move |from, to| {
            let mut corrected = host_lease(to[0].format)?;
            lock(&op).correct(&from[0].load()?, later, &mut corrected)?;
            to[0].store(corrected);
            Ok(())
        })
    }

    fn take_bad_pixels(&mut self) -> Result<BadPixels, OpError> {
        self.stream.core.call("flat_field.take_bad_pixels")?;
        self.stream.wait();
        lock(&self.op).take_bad_pixels()
    }
}

struct SimReconstruction {
    sim: Sim<dyn Reconstruction>,
    groups: Vec<Range<usize>>,
}

impl Reconstruction for SimReconstruction {
    fn accumulate(&mut self, batch: &[ProjectionBlock<'_>]) -> Result<(), OpError> {
        self.sim.stream.core.call("reconstruction.accumulate")?;
        let op = self.sim.op.clone();
        let blocks: Vec<&Block> = batch.iter().map(|projection| projection.block).collect();
        let told: Vec<(usize, f64, f64)> =
            batch.iter().map(|one| (one.first_row, one.angle_rad, one.weight)).collect();
        self.sim.stream.enqueue_on(&blocks, &mut [], move |from, _| {
            let blocks: Vec<Block> = from.iter().map(Place::load).collect::<Result<_, _>>()?;
            let projection = |(block, &(first_row, angle_rad, weight))| ProjectionBlock {
                block,
                first_row,
                angle_rad,
                weight,
            };
            let batch: Vec<ProjectionBlock<'_>> = blocks.iter().zip(&told).map(projection).collect();
            lock(&op).accumulate(&batch)
        })
    }

    fn slice(&mut self, row: usize, scale: f64, to: &mut LeaseMut) -> Result<(), OpError> {
        self.sim.stream.core.call("reconstruction.slice")?;
        let op = self.sim.op.clone();
        self.sim.stream.enqueue_on(&[], &mut [to], move |_, to| {
            let mut slice = host_lease(to[0].format)?;
            lock(&op).slice(row, scale, &mut slice)?;
            to[0].store(slice);
            Ok(())
        })
    }

    fn row_groups(&self) -> Vec<Range<usize>> {
        self.groups.clone()
    }

    fn slices(&mut self, group: usize, scale: f64, to: &mut [LeaseMut]) -> Result<(), OpError> {
        self.sim.stream.core.call("reconstruction.slices")?;
        let op = self.sim.op.clone();
        let mut leases: Vec<&mut LeaseMut> = to.iter_mut().collect();
        self.sim.stream.enqueue_on(&[], &mut leases, move |_, to| {
            let mut slices: Vec<LeaseMut> =
                to.iter().map(|place| host_lease(place.format)).collect::<Result<_, _>>()?;
            lock(&op).slices(group, scale, &mut slices)?;
            for (place, slice) in to.iter().zip(slices) {
                place.store(slice);
            }
            Ok(())
        })
    }

    fn reset(&mut self) {
        let op = self.sim.op.clone();
        self.sim.stream.enqueue(move || {
            lock(&op).reset();
            Ok(())
        });
    }
}
