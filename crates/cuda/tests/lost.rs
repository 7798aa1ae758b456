//! A kernel that fails takes the GPU from this process: everything says so, nothing hangs. Needs a GPU.
#![allow(unsafe_code, reason = "a kernel is started")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use beamstream_buffer::Fence;
use beamstream_cuda::{Access, Args, CudaError, CudaStream, DeviceBuffer, Gpu, Grid, KernelSource};
use beamstream_ops::OpError;

const SOURCE: KernelSource =
    KernelSource::new("lost_test.cu", "extern \"C\" __global__ void poke(int *to) { *to = 1; }");

#[test]
fn a_lost_gpu_is_told_in_words() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let stream = CudaStream::new(&gpu, "test").unwrap();
    let kernel = gpu.compile(&SOURCE).unwrap().kernel("poke").unwrap();
    // SAFETY: it is meant to fail: no memory of anybody lies at this address.
    unsafe { stream.launch(&kernel, Grid::new([1; 3], [1; 3]), &Args::new().pointer(0x10)) }.unwrap();
    let fence = stream.fence().unwrap();
    fence.wait();
    assert!(fence.is_done());
    let Err(error) = Access::new(&stream) else { panic!("the GPU is not lost") };
    assert!(matches!(error, CudaError::Lost { .. }), "{error}");
    let text = OpError::from(error).to_string();
    assert!(text.starts_with("cuda:0 failed") && text.contains("restart"), "{text}");
    assert!(DeviceBuffer::<f32>::alloc(&stream, 10).is_err());
    eprintln!("{text}");
}
