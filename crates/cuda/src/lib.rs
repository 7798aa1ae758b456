//! Every operation on NVIDIA GPUs; opens the driver at run time.
//!
//! [`Gpu`] is an open device, [`CudaStream`] a queue of work on it, [`DeviceBuffer`] work space, [`Kernel`] a compiled
//! kernel. An operation on blocks opens an [`Access`], enqueues, and ends it; it waits for nothing.

mod access;
mod args;
mod backend;
mod cache;
mod device;
mod device_buffer;
mod driver;
mod error;
mod fence;
mod fft;
mod gpu;
mod kernel;
mod kernels;
mod library;
mod memory;
mod nvml;
mod nvrtc;
mod nvtx;
mod ops;
mod pages;
mod pinned;
mod probe;
mod progress;
mod recon;
mod source;
mod staging;
mod status;
mod stream;
mod trace;
mod transfer;

/// The driver's own types and calls, for what has no wrapper here.
pub use cudarc::driver::sys;

pub use access::Access;
pub use args::Args;
pub use backend::CudaBackend;
pub use device::CudaDevice;
pub use device_buffer::DeviceBuffer;
pub use driver::Driver;
pub use error::{CudaError, CudaVersion};
pub use fence::CudaFence;
pub use gpu::{Gpu, GpuProperties};
pub use kernel::{Grid, Kernel, Program};
pub use kernels::kernels;
pub use library::SearchPath;
pub use memory::DeviceAllocator;
pub use nvml::PcieLink;
pub use nvrtc::{Compiler, NEWEST};
pub use pinned::PinnedAllocator;
pub use probe::{GpuReport, LibraryFound, LibraryReport, Probe, probe};
pub use source::KernelSource;
pub use stream::CudaStream;
pub use trace::Span;
pub use transfer::CudaTransfer;
