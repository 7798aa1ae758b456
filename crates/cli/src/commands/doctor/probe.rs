//! Looks at the machine. Reads files of the system and changes nothing.

use std::path::Path;

use beamstream::{available_host_bytes, probe_gpus, show_bytes};
use io_uring::IoUring;

use super::{Finding, gpu};

/// Memory under which small detectors only can be reconstructed.
const LITTLE_MEMORY_BYTES: u64 = 4 << 30;
/// Open files that a scan in many files, or many connections, may want.
const ENOUGH_FILES: u64 = 4096;
/// Memory that should be lockable for asynchronous reads and writes.
const ENOUGH_LOCKED_BYTES: u64 = 64 << 20;

/// Everything that matters to a run.
pub(super) fn all() -> Vec<Finding> {
    let mut findings = vec![
        Finding::good("version", env!("CARGO_PKG_VERSION")),
        cpu(),
        simd(),
        memory(),
        huge_pages(),
        locked_memory(),
        open_files(),
        io_uring(),
    ];
    findings.extend(gpu::all(&probe_gpus()));
    findings
}

fn cpu() -> Finding {
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let found = format!("{}, {threads} threads for us", model.unwrap_or(std::env::consts::ARCH));
    if threads > 1 {
        Finding::good("cpu", found)
    } else {
        Finding::limited(
            "cpu",
            found,
            "receiving and computing share one thread: live scans keep up with slow detectors only",
        )
    }
}

#[cfg(target_arch = "x86_64")]
fn simd() -> Finding {
    if is_x86_feature_detected!("avx512f") {
        Finding::good("simd", "AVX-512")
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        Finding::good("simd", "AVX2 and FMA")
    } else {
        Finding::limited("simd", "SSE2 only", "reconstruction takes a multiple of the time that AVX2 needs")
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn simd() -> Finding {
    Finding::good("simd", std::env::consts::ARCH)
}

fn memory() -> Finding {
    let free = available_host_bytes();
    let found = format!("{} that a run may take", show_bytes(free));
    if free >= LITTLE_MEMORY_BYTES {
        Finding::good("memory", found)
    } else {
        Finding::limited("memory", found, "large scans are reconstructed in several passes over the file")
    }
}

fn huge_pages() -> Finding {
    let setting = read("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = setting.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    match chosen {
        Some(chosen @ ("always" | "madvise")) => {
            Finding::good("huge pages", format!("transparent: {chosen}"))
        }
        Some(chosen) => Finding::limited(
            "huge pages",
            format!("transparent: {chosen}"),
            "a few per cent of the speed on large slices",
        ),
        None => Finding::missing("huge pages", "none", "a few per cent of the speed on large slices"),
    }
}

fn locked_memory() -> Finding {
    let costs = "buffers that a disk reads and writes by itself will need more than this (ulimit -l)";
    match limit("Max locked memory") {
        None => Finding::good("locked memory", "unlimited"),
        Some(bytes) if bytes >= ENOUGH_LOCKED_BYTES => Finding::good("locked memory", show_bytes(bytes)),
        Some(bytes) => Finding::limited("locked memory", show_bytes(bytes), costs),
    }
}

fn open_files() -> Finding {
    let costs = "a server with many connections may run out of them (ulimit -n)";
    match limit("Max open files") {
        None => Finding::good("open files", "unlimited"),
        Some(files) if files >= ENOUGH_FILES => Finding::good("open files", files.to_string()),
        Some(files) => Finding::limited("open files", files.to_string(), costs),
    }
}

/// Asks the kernel for a ring: in containers it is often refused though the kernel has it.
fn io_uring() -> Finding {
    let costs = "nothing in this version: files are written by ordinary calls";
    match IoUring::new(2) {
        Ok(_ring) => Finding::good("io_uring", "allowed"),
        Err(error) => Finding::missing("io_uring", format!("refused: {error}"), costs),
    }
}

/// A soft limit of this process; `None` if it has none.
fn limit(name: &str) -> Option<u64> {
    let limits = read("/proc/self/limits");
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
