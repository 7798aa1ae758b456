//! What all operations rest on: order between streams, copies, kernels, refusals. Needs a GPU.
#![allow(unsafe_code, reason = "kernels are started")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::sync::Arc;

use beamstream_buffer::{Allocator, Block, DeviceId, HostAllocator, LeaseMut, MemoryKind, Pool};
use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};
use beamstream_cuda::{
    Access, Args, CudaStream, CudaTransfer, DeviceAllocator, DeviceBuffer, Gpu, Grid, KernelSource,
    PinnedAllocator,
};
use beamstream_ops::Transfer;

const SOURCE: KernelSource = KernelSource::new(
    "base_test.cu",
    r#"
    // to[i] = a * from[i] + b, after `ns` nanoseconds.
    extern "C" __global__ void scale(const float *from, float *to, unsigned count, float a, float b, long long ns) {
        long long start, now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
        do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < ns);
        const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) to[i] = a * from[i] + b;
    }
    struct Pair { unsigned first; unsigned numbers[7]; };
    // Sums the numbers by way of shared memory of any size.
    extern "C" __global__ void sum(Pair pair, unsigned last, unsigned *to) {
        extern __shared__ unsigned room[];
        if (threadIdx.x < 7) room[last - threadIdx.x] = pair.numbers[threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) { *to = pair.first; for (int i = 0; i < 7; i++) *to += room[last - i]; }
    }
    "#,
);

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
struct Pair {
    first: u32,
    numbers: [u32; 7],
}

fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| eprintln!("skipped: {error}")).ok()
}

fn meta(number: u64) -> BlockMeta {
    BlockMeta::new(FrameId::new(number), Role::Projection)
}

fn pool(allocator: &dyn Allocator, slots: usize, format: Format) -> Pool {
    Pool::new("test", allocator, slots, format.bytes()).unwrap()
}

/// Numbers that differ from element to element and from frame to frame.
fn fill(lease: &mut LeaseMut, frame: u32) {
    for (place, value) in lease.elements_mut::<f32>().unwrap().iter_mut().enumerate() {
        *value = expected(place, frame);
    }
}

fn expected(place: usize, frame: u32) -> f32 {
    ((place as u32).wrapping_mul(2_654_435_761) >> 12) as f32 + frame as f32
}

#[test]
fn sanitize_kernels_get_their_arguments() {
    let Some(gpu) = gpu() else { return };
    let stream = CudaStream::new(&gpu, "test").unwrap();
    let kernel = gpu.compile(&SOURCE).unwrap().kernel("sum").unwrap();
    let sum = DeviceBuffer::<u32>::zeroed(&stream, 1).unwrap();
    let pair = Pair { first: 1000, numbers: [1, 2, 3, 4, 5, 6, 7] };
    for shared in [64, 100 * 1024, gpu.properties().shared_bytes] {
        let grid = Grid::new([1; 3], [32, 1, 1]).with_shared(shared);
        let args = Args::new().value(&pair).u32(shared / 4 - 1).buffer(&sum);
        // SAFETY: the kernel uses the shared memory it is given and writes one number.
        unsafe { stream.launch(&kernel, grid, &args) }.unwrap();
        assert_eq!(sum.download().unwrap(), [1028]);
    }
}

#[test]
fn wrong_launches_are_refused_by_name() {
    let Some(gpu) = gpu() else { return };
    let stream = CudaStream::new(&gpu, "test").unwrap();
    let program = gpu.compile(&SOURCE).unwrap();
    let kernel = program.kernel("sum").unwrap();
    let refused = |grid: Grid, args: &Args| {
        // SAFETY: the launch is refused before anything runs.
        unsafe { stream.launch(&kernel, grid, args) }.unwrap_err().to_string()
    };
    let pair = Pair { first: 0, numbers: [0; 7] };
    let right = Args::new().value(&pair).u32(7).pointer(0);
    let text = refused(Grid::new([1; 3], [32, 1, 1]), &Args::new().value(&pair).pointer(0));
    assert!(text.contains("sum (base_test.cu)") && text.contains("[32, 4, 8]"), "{text}");
    let text = refused(Grid::new([1; 3], [32, 1, 1]).with_shared(1 << 20), &right);
    assert!(text.contains(&gpu.properties().shared_bytes.to_string()), "{text}");
    let text = refused(Grid::new([1; 3], [2048, 1, 1]), &right);
    assert!(text.contains("2048 x 1 x 1 threads"), "{text}");
    let text = program.kernel("product").unwrap_err().to_string();
    assert!(text.contains("product") && text.contains("base_test.cu"), "{text}");
    let wrong = KernelSource::new("wrong.cu", "__global__ void f() { g(); }");
    let text = gpu.compile(&wrong).unwrap_err().to_string();
    assert!(text.contains("wrong.cu(1)") && text.contains("sm_"), "{text}");
}

#[test]
fn sanitize_buffers_hold_what_is_sent() {
    let Some(gpu) = gpu() else { return };
    let stream = CudaStream::new(&gpu, "test").unwrap();
    // Larger than the staging memory, and no multiple of it.
    for len in [0, 1, 1000, 1_234_567] {
        let values: Vec<u32> = (0..len).map(|place: u32| place.wrapping_mul(2_654_435_761)).collect();
        let mut buffer = DeviceBuffer::from_slice(&stream, &values).unwrap();
        assert_eq!(buffer.download().unwrap(), values);
        buffer.zero().unwrap();
        assert!(buffer.download().unwrap().iter().all(|value| *value == 0));
        assert!(buffer.upload(&vec![0; values.len() + 1]).unwrap_err().to_string().contains("found"));
    }
}

#[test]
fn uploads_do_not_overtake_each_other() {
    let Some(gpu) = gpu() else { return };
    let stream = CudaStream::new(&gpu, "test").unwrap();
    let mut parameters = DeviceBuffer::<u32>::alloc(&stream, 50_000).unwrap();
    let kept: Vec<DeviceBuffer<u32>> =
        (0..30).map(|_| DeviceBuffer::alloc(&stream, 50_000).unwrap()).collect();
    for (round, keep) in kept.iter().enumerate() {
        parameters.upload(&vec![round as u32; 50_000]).unwrap();
        // SAFETY: both buffers have that size and belong to the stream.
        unsafe {
            beamstream_cuda::sys::cuMemcpyAsync(
                keep.pointer(),
                parameters.pointer(),
                keep.bytes(),
                stream.raw(),
            )
        };
    }
    for (round, keep) in kept.iter().enumerate() {
        assert!(keep.download().unwrap().iter().all(|value| *value == round as u32), "round {round}");
    }
}

#[test]
fn memory_that_is_not_there_is_refused_with_what_is() {
    let Some(gpu) = gpu() else { return };
    let stream = CudaStream::new(&gpu, "test").unwrap();
    let (free, total) = gpu.memory().unwrap();
    assert!(0 < free && free <= total && total == gpu.properties().total_bytes);
    let text = DeviceBuffer::<u8>::alloc(&stream, total + 1).unwrap_err().to_string();
    assert!(text.contains(&(total + 1).to_string()) && text.contains("are free"), "{text}");
    let Err(error) = DeviceAllocator::new(&gpu).allocate(total + 1) else { panic!("more than there is") };
    assert!(error.to_string().contains("cuda:0"), "{error}");
    // What work space gave back can be had by a pool.
    drop(DeviceBuffer::<u8>::alloc(&stream, free / 4 * 3).unwrap());
    assert!(gpu.memory().unwrap().0 > free / 8 * 7);
    drop(DeviceAllocator::new(&gpu).allocate(free / 4 * 3).unwrap());
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_those_that_are() {
    let Some(gpu) = gpu() else { return };
    let text = Gpu::open(1000).unwrap_err().to_string();
    assert!(text.contains("cuda:1000") && text.contains("cuda:0"), "{text}");
    assert!(text.contains(&gpu.properties().name), "{text}");
    assert!(Arc::ptr_eq(&gpu, &Gpu::open(0).unwrap()));
}

/// Frames go up, through a slow kernel on another stream, and down, with few buffers: what arrives is right only if
/// every stream waits for the others, for what it reads and for what it overwrites.
fn pump(gpu: &Arc<Gpu>, frames: u32, format: Format, host: &dyn Allocator) {
    let slots = 3;
    let device = DeviceAllocator::new(gpu);
    let pools = [pool(host, slots, format), pool(&device, 2, format), pool(&device, 2, format)];
    let [up, raw, scaled] = &pools;
    let down = pool(host, slots, format);
    let mut upload = CudaTransfer::new(gpu, "upload").unwrap();
    let mut download = CudaTransfer::new(gpu, "download").unwrap();
    let stream = CudaStream::new(gpu, "scale").unwrap();
    let kernel = gpu.compile(&SOURCE).unwrap().kernel("scale").unwrap();
    let check = |block: &Block, frame: u32| {
        let values = block.elements::<f32>().unwrap();
        let wrong =
            values.iter().enumerate().find(|(place, value)| **value != 2.0 * expected(*place, frame) + 1.0);
        assert!(wrong.is_none(), "frame {frame}: {wrong:?}");
    };
    let mut arrived: Vec<(Block, u32)> = Vec::new();
    for frame in 0..frames {
        let mut lease = up.lease(format).unwrap();
        fill(&mut lease, frame);
        let source = lease.freeze(meta(u64::from(frame)));
        let mut lease = raw.lease(format).unwrap();
        upload.copy(&source, &mut lease).unwrap();
        let on_device = lease.freeze(source.meta);
        let mut lease = scaled.lease(format).unwrap();
        let mut access = Access::new(&stream).unwrap();
        let (from, to) = (access.read(&on_device).unwrap(), access.write(&mut lease).unwrap());
        let count = format.shape.len();
        let delay_ns = if frame % 3 == 0 { 200_000_i64 } else { 0 };
        let args = Args::new().pointer(from).pointer(to).u32(count as u32).f32(2.0).f32(1.0).value(&delay_ns);
        // SAFETY: both blocks hold `count` numbers, and the access keeps others off.
        unsafe { stream.launch(&kernel, Grid::linear(count, 256), &args) }.unwrap();
        access.finish().unwrap();
        let result = lease.freeze(source.meta);
        let mut lease = down.lease(format).unwrap();
        download.copy(&result, &mut lease).unwrap();
        arrived.push((lease.freeze(source.meta), frame));
        if arrived.len() == slots {
            let (block, frame) = arrived.remove(0);
            check(&block, frame);
        }
    }
    for (block, frame) in &arrived {
        check(block, *frame);
    }
    gpu.check().unwrap();
}

#[test]
fn sanitize_streams_keep_the_order_of_blocks() {
    let Some(gpu) = gpu() else { return };
    pump(&gpu, 12, Format::frame(ElementType::F32, 31, 57), &PinnedAllocator::new(&gpu));
}

#[test]
fn many_blocks_pass_through_few_buffers() {
    let Some(gpu) = gpu() else { return };
    let format = Format::frame(ElementType::F32, 301, 517);
    pump(&gpu, 300, format, &PinnedAllocator::new(&gpu));
    // Ordinary host memory is slower, not wrong.
    pump(&gpu, 50, format, &HostAllocator);
}

#[test]
fn copies_cross_the_borders_of_pinned_pieces() {
    let Some(gpu) = gpu() else { return };
    // 5 buffers of 200 MB: borders lie within them, and most pieces are pinned while the copies begin.
    let format = Format::frame(ElementType::F32, 5000, 10_000);
    let pinned = pool(&PinnedAllocator::new(&gpu), 5, format);
    let device = pool(&DeviceAllocator::new(&gpu), 1, format);
    let mut transfer = CudaTransfer::new(&gpu, "copy").unwrap();
    assert_eq!(pinned.kind(), MemoryKind::Pinned);
    let mut kept = Vec::new();
    for frame in 0..2 {
        let mut lease = pinned.lease(format).unwrap();
        fill(&mut lease, frame);
        let source = lease.freeze(meta(u64::from(frame)));
        let mut lease = device.lease(format).unwrap();
        transfer.copy(&source, &mut lease).unwrap();
        let there = lease.freeze(source.meta);
        let mut lease = pinned.lease(format).unwrap();
        transfer.copy(&there, &mut lease).unwrap();
        let back = lease.freeze(source.meta);
        assert!(back.bytes() == source.bytes(), "frame {frame}");
        kept.push((source, back));
    }
}

#[test]
fn blocks_elsewhere_are_refused_by_kernels() {
    let Some(gpu) = gpu() else { return };
    let stream = CudaStream::new(&gpu, "test").unwrap();
    let format = Format::frame(ElementType::F32, 2, 2);
    let block = pool(&HostAllocator, 1, format).lease(format).unwrap().freeze(meta(0));
    let mut access = Access::new(&stream).unwrap();
    let text = access.read(&block).unwrap_err().to_string();
    assert!(text.contains("cuda:0") && text.contains("host memory"), "{text}");
    assert_eq!(gpu.id(), DeviceId::Cuda(0));
}

#[test]
fn blocks_go_from_gpu_to_gpu() {
    let Some(gpu) = gpu() else { return };
    let other = match Gpu::open(1) {
        Ok(other) => other,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let format = Format::frame(ElementType::F32, 1024, 4096);
    let host = pool(&PinnedAllocator::new(&gpu), 4, format);
    let (here, there) = (DeviceAllocator::new(&gpu), DeviceAllocator::new(&other));
    let (here, there) = (pool(&here, 2, format), pool(&there, 2, format));
    let mut upload = CudaTransfer::new(&gpu, "upload").unwrap();
    let mut across = CudaTransfer::new(&other, "across").unwrap();
    let mut download = CudaTransfer::new(&other, "download").unwrap();
    let mut arrived: Vec<(Block, u32)> = Vec::new();
    for frame in 0..40 {
        let mut lease = host.lease(format).unwrap();
        fill(&mut lease, frame);
        let mut block = lease.freeze(meta(u64::from(frame)));
        for (transfer, pool) in [(&mut upload, &here), (&mut across, &there), (&mut download, &host)] {
            let mut lease = pool.lease(format).unwrap();
            transfer.copy(&block, &mut lease).unwrap();
            block = lease.freeze(block.meta);
        }
        arrived.push((block, frame));
        if arrived.len() == 3 {
            let (block, frame) = arrived.remove(0);
            let values = block.elements::<f32>().unwrap();
            assert!(
                values.iter().enumerate().all(|(place, value)| *value == expected(place, frame)),
                "{frame}"
            );
        }
    }
    gpu.check().unwrap();
    other.check().unwrap();
}
