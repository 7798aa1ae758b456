//! What this machine has of CUDA, and what is missing costs.

use std::path::{Path, PathBuf};

use beamstream_buffer::DeviceId;

use crate::cache::DiskCache;
use crate::driver::Driver;
use crate::error::CudaError;
use crate::gpu::GpuProperties;
use crate::nvml::{Meter, Nvml, PcieLink};
use crate::nvrtc::Compiler;

/// A library that was looked for.
#[derive(Debug, Clone)]
pub struct LibraryReport {
    /// Its name.
    pub name: &'static str,
    /// What it is for, and so what is missing without it.
    pub purpose: &'static str,
    /// Where it lies and which version it is, or why it cannot be used.
    pub found: Result<LibraryFound, String>,
}

/// A library that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryFound {
    /// The file.
    pub path: PathBuf,
    /// Its version, in words.
    pub version: String,
}

/// A GPU that was found.
#[derive(Debug, Clone)]
pub struct GpuReport {
    /// The device.
    pub id: DeviceId,
    /// What it is.
    pub properties: GpuProperties,
    /// Memory that no program uses, where NVML tells. Unit: bytes.
    pub free_bytes: Option<u64>,
    /// Its connection to the host, where NVML tells.
    pub link: Option<PcieLink>,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The libraries, needed ones first.
    pub libraries: Vec<LibraryReport>,
    /// The GPUs.
    pub gpus: Vec<GpuReport>,
    /// Where compiled kernels are kept; `None` if the user has no folder for it.
    pub kernel_cache: Option<PathBuf>,
}

/// Looks for CUDA. It opens libraries, but starts no work on a GPU and takes no memory of it.
pub fn probe() -> Probe {
    let driver = Driver::get();
    let newest = driver.as_ref().map_or(crate::nvrtc::NEWEST, |driver| driver.version());
    let libraries = vec![
        LibraryReport {
            name: "libcuda",
            purpose: "the NVIDIA driver; without it everything is computed on the CPU",
            found: driver.as_ref().map(|driver| found_driver(driver)).map_err(ToString::to_string),
        },
        LibraryReport {
            name: "libnvrtc",
            purpose: "compiles the kernels for the GPU that is found; without it no GPU can be used",
            found: Compiler::get(newest).map_err(|error| error.to_string()).map(|compiler| LibraryFound {
                path: compiler.path().to_owned(),
                version: format!("CUDA {}", compiler.version()),
            }),
        },
        LibraryReport {
            name: "libnvidia-ml",
            purpose: "measures energy and reads the PCI link; without it reports lack both",
            found: Nvml::get().map(|nvml| LibraryFound {
                path: nvml.path().to_owned(),
                version: nvml
                    .driver_version()
                    .map_or_else(|| "unknown".to_owned(), |text| format!("driver {text}")),
            }),
        },
    ];
    let ordinals = driver.as_ref().map_or(0..0, |driver| 0..driver.gpu_count());
    let gpus =
        driver.iter().flat_map(|driver| ordinals.clone().filter_map(|ordinal| report(driver, ordinal).ok()));
    Probe { libraries, gpus: gpus.collect(), kernel_cache: DiskCache::of_user().folder().map(Path::to_owned) }
}

fn found_driver(driver: &Driver) -> LibraryFound {
    LibraryFound { path: driver.path().to_owned(), version: format!("supports CUDA {}", driver.version()) }
}

fn report(driver: &Driver, ordinal: u32) -> Result<GpuReport, CudaError> {
    let device = driver.device(ordinal)?;
    let properties = GpuProperties::of(device)?;
    let meter = Meter::open(&properties.pci_address);
    Ok(GpuReport {
        id: device.id,
        properties,
        free_bytes: meter.as_ref().and_then(Meter::free_bytes),
        link: meter.as_ref().and_then(Meter::link),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_is_reported_whether_it_is_there_or_not() {
        let probe = probe();
        assert_eq!(probe.libraries.len(), 3);
        for library in probe.libraries {
            assert!(library.purpose.contains("without it"));
            if let Err(text) = library.found {
                assert!(text.contains(library.name), "{text}");
            }
        }
    }
}
