//! On what a pipeline runs.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use beamstream_cpu::CpuBackend;
use beamstream_cuda::CudaDevice;
use beamstream_engine::{PlanOptions, available_host_bytes};
use beamstream_ops::{Backend, Device as OpsDevice};

use crate::images::ScanImages;
use crate::{Error, date};

/// Where a pipeline computes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Device {
    /// The best that there is.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// GPUs by their numbers; the first if no number is given. Nodes are placed on the first of them.
    Cuda(Vec<u32>),
}

/// A text that names no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, cpu or cuda[:N[,M…]], found '{0}'")]
pub struct ParseDeviceError(String);

impl FromStr for Device {
    type Err = ParseDeviceError;

    fn from_str(text: &str) -> Result<Self, ParseDeviceError> {
        let wrong = || ParseDeviceError(text.to_owned());
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(Vec::new())),
            _ => {
                let numbers = text.strip_prefix("cuda:").ok_or_else(wrong)?;
                let numbers: Result<Vec<u32>, _> = numbers.split(',').map(str::parse).collect();
                numbers.map(Self::Cuda).map_err(|_no_number| wrong())
            }
        }
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(numbers) if numbers.is_empty() => f.write_str("cuda"),
            Self::Cuda(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                write!(f, "cuda:{}", numbers.join(","))
            }
        }
    }
}

/// On what a pipeline runs, and what it may take and do.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The device that computes.
    pub device: Device,
    /// Threads that compute; by default as many as the machine runs at once.
    pub threads: Option<NonZeroUsize>,
    /// Memory that the run may take, in bytes, on the host and on each device; by default most of what is free.
    pub memory_bytes: Option<u64>,
    /// Whether outputs may replace files that exist.
    pub overwrite: bool,
    /// File for a trace of the run, for Perfetto or `chrome://tracing`.
    pub trace: Option<PathBuf>,
}

impl Options {
    /// What [`beamstream_engine::Plan::new`] wants to know.
    ///
    /// # Errors
    /// [`Error::NoGpu`] if a GPU is asked for that cannot be used.
    pub fn plan_options(&self) -> Result<PlanOptions, Error> {
        let ops: Arc<dyn Backend> = Arc::new(CpuBackend::new(self.thread_count()));
        Ok(PlanOptions {
            devices: self.devices(&ops)?,
            memory_bytes: self.memory_limit_bytes(),
            device_memory_bytes: self.memory_bytes,
            overwrite: self.overwrite,
            trace: self.trace.clone(),
            date: date::now(),
            ..PlanOptions::new(ops.clone(), Arc::new(ScanImages::new(ops)))
        })
    }

    /// Host memory that the run may take, in bytes.
    pub(crate) fn memory_limit_bytes(&self) -> u64 {
        self.memory_bytes.unwrap_or_else(available_host_bytes)
    }

    /// Opens the GPUs.
    fn devices(&self, host: &Arc<dyn Backend>) -> Result<Vec<Arc<dyn OpsDevice>>, Error> {
        let open = |number: u32| -> Result<Arc<dyn OpsDevice>, Error> {
            let gpu = CudaDevice::open(number, host.clone()).map_err(|error| Error::NoGpu {
                device: format!("cuda:{number}"),
                cause: error.to_string(),
            })?;
            Ok(Arc::new(gpu))
        };
        match &self.device {
            Device::Cpu => Ok(Vec::new()),
            Device::Cuda(numbers) if numbers.is_empty() => Ok(vec![open(0)?]),
            Device::Cuda(numbers) => match numbers[..] {
                [number] => Ok(vec![open(number)?]),
                _ => Err(Error::NoGpu {
                    device: self.device.to_string(),
                    cause: "this version computes on one GPU at a time: name one".to_owned(),
                }),
            },
            Device::Auto => match open(0) {
                Ok(gpu) => Ok(vec![gpu]),
                Err(error) => {
                    tracing::info!("the CPU computes: {error}");
                    Ok(Vec::new())
                }
            },
        }
    }

    fn thread_count(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(all, NonZeroUsize::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_and_written_alike() {
        for text in ["auto", "cpu", "cuda", "cuda:0", "cuda:2,5"] {
            assert_eq!(text.parse::<Device>().unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0"] {
            assert!(text.parse::<Device>().unwrap_err().to_string().contains(&format!("'{text}'")));
        }
    }

    #[test]
    fn several_gpus_at_once_are_refused_and_not_ignored() {
        let options = Options { device: Device::Cuda(vec![0, 1]), ..Default::default() };
        let Err(error) = options.plan_options() else { panic!("only the first would compute") };
        assert!(error.to_string().contains("cuda:0,1") && error.to_string().contains("one GPU"), "{error}");
    }

    #[test]
    fn a_gpu_is_refused_in_one_line() {
        let options = Options { device: Device::Cuda(vec![63]), ..Default::default() };
        let Err(error) = options.plan_options() else { panic!("there is no such device") };
        assert!(error.to_string().contains("cuda:63") && !error.to_string().contains('\n'), "{error}");
    }
}
