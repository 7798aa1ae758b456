//! Every kernel compiles for the GPUs of the field, which need not be here: NVRTC is enough.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use beamstream_cuda::{Compiler, NEWEST, SearchPath, kernels};

/// Compute capabilities: A100, H100 and H200, and the workstation cards of 2025.
const ARCHITECTURES: [u32; 3] = [80, 90, 120];

#[test]
fn all_kernels_compile() {
    let compiler = match Compiler::open(&SearchPath::from_environment(), NEWEST.major()) {
        Ok(compiler) => compiler,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let sources = kernels();
    let jobs: Vec<_> =
        sources.iter().flat_map(|source| ARCHITECTURES.map(|number| (source, number))).collect();
    let next = AtomicUsize::new(0);
    let complaints = Mutex::new(Vec::new());
    let work = || {
        while let Some((source, architecture)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(log) = compiler.compile(source, *architecture) {
                let complaint = format!("{} {:?} for {architecture}: {log}", source.name, source.defines);
                complaints.lock().unwrap().push(complaint);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_kernel_file_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
    let listed: Vec<&str> = kernels().iter().map(|source| source.name).collect();
    let files = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let kernels = files.filter(|path| path.extension().is_some_and(|extension| extension == "cu"));
    let names = kernels.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
    let missing: Vec<String> = names.filter(|name| !listed.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "not in `kernels()`: {}", missing.join(", "));
}
