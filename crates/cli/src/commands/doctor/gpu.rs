//! GPUs, the libraries that they need, and where compiled kernels are kept.

use std::path::Path;

use beamstream::{GpuProbe, GpuReport, LibraryReport, show_bytes};

use super::Finding;

/// Everything that matters to a run on a GPU.
pub(super) fn all(probe: &GpuProbe) -> Vec<Finding> {
    let mut findings: Vec<Finding> = probe.gpus.iter().map(gpu).collect();
    if findings.is_empty() {
        let costs = "everything is computed on the CPU: large scans take minutes instead of seconds";
        findings.push(Finding::missing("gpu", "none that CUDA lists", costs));
    }
    findings.extend(probe.libraries.iter().map(library));
    findings.push(kernel_cache(probe.kernel_cache.as_deref()));
    findings
}

fn gpu(report: &GpuReport) -> Finding {
    let properties = &report.properties;
    let (major, minor) = properties.compute_capability;
    let total = show_bytes(properties.total_bytes as u64);
    let free = report.free_bytes.map_or_else(String::new, |bytes| format!(" ({} free)", show_bytes(bytes)));
    let link = report.link.map_or_else(String::new, |link| {
        format!(", PCI Express {} with {} lanes", link.generation, link.lanes)
    });
    Finding::good(
        "gpu",
        format!(
            "{}: {}, compute capability {major}.{minor}, {total}{free}{link}",
            report.id, properties.name
        ),
    )
}

fn library(report: &LibraryReport) -> Finding {
    match &report.found {
        Ok(found) => Finding::good(report.name, format!("{}, {}", found.version, found.path.display())),
        Err(reason) => Finding::missing(report.name, reason, report.purpose),
    }
}

/// Whether kernels that were compiled once are at hand the next time.
fn kernel_cache(folder: Option<&Path>) -> Finding {
    let name = "kernel cache";
    let costs = "each start on a GPU compiles its kernels anew, which takes seconds";
    let Some(folder) = folder else {
        return Finding::limited(name, "neither XDG_CACHE_HOME nor HOME is set", costs);
    };
    let shown = folder.display();
    // The nearest folder that exists decides whether ours can be made.
    let existing = folder.ancestors().find(|folder| folder.is_dir());
    let writable = existing.is_some_and(|folder| {
        let probe = folder.join(format!(".beamstream-{}", std::process::id()));
        let written = std::fs::write(&probe, []).is_ok();
        // It may not be there to be removed.
        std::fs::remove_file(&probe).ok();
        written
    });
    if !writable {
        return Finding::limited(name, format!("{shown} cannot be written"), costs);
    }
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes: Vec<u64> = files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).collect();
    let bytes = show_bytes(sizes.iter().sum());
    Finding::good(name, format!("{shown}, {} kernels, {bytes}", sizes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::State;

    #[test]
    fn without_a_gpu_each_missing_thing_is_one_line() {
        let missing = LibraryReport {
            name: "libcuda",
            purpose: "the NVIDIA driver; without it everything is computed on the CPU",
            found: Err("libcuda.so.1 is not in the loader's path".to_owned()),
        };
        let probe = GpuProbe { libraries: vec![missing], gpus: Vec::new(), kernel_cache: None };
        let findings = all(&probe);
        let names: Vec<&str> = findings.iter().map(|finding| finding.name).collect();
        assert_eq!(names, ["gpu", "libcuda", "kernel cache"]);
        for finding in findings {
            assert_ne!(finding.state, State::Good);
            assert!(!finding.found.contains('\n') && finding.costs.is_some(), "{finding:?}");
        }
    }

    #[test]
    fn the_folder_of_kernels_is_looked_at_not_made() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("beamstream/kernels");
        let finding = kernel_cache(Some(&folder));
        assert!(finding.state == State::Good && finding.found.contains("0 kernels"), "{finding:?}");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
