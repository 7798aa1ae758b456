//! What a trace tells of work on a GPU. Apart from other tests, because it records all work of the process.
#![allow(unsafe_code, reason = "a kernel is started")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::time::{Duration, Instant};

use beamstream_cuda::{Args, CudaStream, Gpu, Grid, KernelSource};

const SOURCE: KernelSource = KernelSource::new(
    "trace_test.cu",
    r#"extern "C" __global__ void spin(long long ns) {
        long long start, now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
        do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < ns);
    }"#,
);

#[test]
fn kernels_are_told_with_node_name_and_times() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    assert_eq!(gpu.take_spans(), (Vec::new(), 0));
    let origin = Instant::now();
    gpu.start_trace(origin).unwrap();
    let streams = ["fast", "slow"].map(|name| CudaStream::new(&gpu, name).unwrap());
    let kernel = gpu.compile(&SOURCE).unwrap().kernel("spin").unwrap();
    let enqueued = origin.elapsed();
    for (stream, micros) in streams.iter().zip([500, 3000_i64]) {
        for _ in 0..3 {
            let args = Args::new().value(&(micros * 1000));
            // SAFETY: the kernel touches no memory.
            unsafe { stream.launch(&kernel, Grid::new([1; 3], [1; 3]), &args) }.unwrap();
        }
    }
    for stream in &streams {
        stream.synchronize().unwrap();
    }
    let ended = origin.elapsed();
    let (spans, dropped) = gpu.take_spans();
    assert_eq!((spans.len(), dropped), (6, 0));
    let slack = Duration::from_micros(300);
    for (name, micros) in [("fast", 500), ("slow", 3000)] {
        let own: Vec<_> = spans.iter().filter(|span| span.stream == name).collect();
        assert_eq!(own.len(), 3);
        for span in &own {
            assert_eq!(span.name, "spin (trace_test.cu)");
            assert!(span.began + Duration::from_micros(micros) <= span.ended, "{span:?}");
            assert!(
                enqueued < span.began + slack && span.ended < ended + slack,
                "{span:?}, {enqueued:?}..{ended:?}"
            );
        }
        assert!(own.windows(2).all(|pair| pair[0].ended <= pair[1].began + Duration::from_micros(5)));
    }
    assert!(gpu.take_spans().0.is_empty());
}
