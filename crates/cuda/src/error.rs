//! What CUDA refuses, in words.

use beamstream_buffer::DeviceId;
use beamstream_ops::OpError;

/// A version of CUDA, as `1000 * major + 10 * minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion(pub u32);

impl CudaVersion {
    /// The part before the point.
    pub const fn major(self) -> u32 {
        self.0 / 1000
    }
}

impl std::fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major(), self.0 % 1000 / 10)
    }
}

/// Why a GPU did not do what was asked. The texts do not name the device: whoever asked knows it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no driver.
    #[error("there is no NVIDIA driver: {cause}; install it, or compute on the CPU")]
    NoDriver {
        /// What was looked for, or what the driver said.
        cause: String,
    },
    /// The driver is older than what this program was written for.
    #[error("the NVIDIA driver supports CUDA {found}, {needed} is needed: update the driver")]
    DriverTooOld {
        /// What the driver supports.
        found: CudaVersion,
        /// The oldest that suffices.
        needed: CudaVersion,
    },
    /// There is no GPU of this number.
    #[error("there is no {device}: {present}")]
    NoDevice {
        /// The device asked for.
        device: DeviceId,
        /// The devices there are, in words.
        present: String,
    },
    /// The GPU is older than what the kernels are written for.
    #[error("its compute capability is {}.{}, 8.0 is needed: compute on the CPU", found.0, found.1)]
    DeviceTooOld {
        /// The device.
        device: DeviceId,
        /// Its compute capability.
        found: (u32, u32),
    },
    /// NVRTC, which compiles the kernels, was not found.
    #[error(
        "NVRTC, which compiles the kernels, was not found: {cause}; install the CUDA toolkit, or the Python \
         package nvidia-cuda-nvrtc with the version of the driver"
    )]
    NoCompiler {
        /// What was looked for, or why it could not be opened.
        cause: String,
    },
    /// Memory of the device is short.
    #[error(
        "no room for {bytes} bytes: {free} of {total} bytes are free; reconstruct fewer rows at a time, or close \
         other programs that use the GPU"
    )]
    OutOfMemory {
        /// The device.
        device: DeviceId,
        /// What was asked for.
        bytes: usize,
        /// What is free.
        free: usize,
        /// What there is.
        total: usize,
    },
    /// The device cannot be used any more by this process.
    #[error("the GPU is lost to this program: {call} says {cause}; restart the program")]
    Lost {
        /// The device.
        device: DeviceId,
        /// The call that told it; the cause may lie in earlier work.
        call: &'static str,
        /// What CUDA said.
        cause: String,
    },
    /// Another call was refused.
    #[error("{call} says {cause}")]
    Call {
        /// The device.
        device: DeviceId,
        /// The call of the driver.
        call: &'static str,
        /// What CUDA said.
        cause: String,
    },
    /// A kernel text is wrong, or not for this GPU.
    #[error("{source_name} was not compiled for {architecture}: {log}")]
    Compile {
        /// The device.
        device: DeviceId,
        /// The file.
        source_name: String,
        /// What it was compiled for.
        architecture: String,
        /// What the compiler said, with files and lines.
        log: String,
    },
    /// A kernel was not started.
    #[error("kernel {kernel} was not started with {geometry}: {cause}")]
    Launch {
        /// The device.
        device: DeviceId,
        /// The kernel.
        kernel: String,
        /// Blocks, threads and shared memory.
        geometry: String,
        /// What is wrong.
        cause: String,
    },
    /// More elements than a buffer has room for.
    #[error("expected at most {room} elements, found {found}")]
    Length {
        /// The device.
        device: DeviceId,
        /// Elements of the buffer.
        room: usize,
        /// Elements given.
        found: usize,
    },
    /// Host memory could not be pinned.
    #[error(
        "{bytes} bytes of host memory could not be pinned: {cause}; raise the limit of locked memory (ulimit -l)"
    )]
    Pinning {
        /// The device.
        device: DeviceId,
        /// What was to be pinned together.
        bytes: usize,
        /// What the system or the driver said.
        cause: String,
    },
    /// A block does not lie where the operation computes.
    #[error("expected a block in the memory of {device}, found one in {found} memory")]
    Misplaced {
        /// Where it should lie.
        device: DeviceId,
        /// Where it lies.
        found: String,
    },
}

impl CudaError {
    /// The device that refused; the first one where none was reached.
    pub fn device(&self) -> DeviceId {
        match self {
            Self::NoDriver { .. } | Self::DriverTooOld { .. } | Self::NoCompiler { .. } => DeviceId::Cuda(0),
            Self::NoDevice { device, .. }
            | Self::DeviceTooOld { device, .. }
            | Self::OutOfMemory { device, .. }
            | Self::Lost { device, .. }
            | Self::Call { device, .. }
            | Self::Compile { device, .. }
            | Self::Launch { device, .. }
            | Self::Length { device, .. }
            | Self::Pinning { device, .. }
            | Self::Misplaced { device, .. } => *device,
        }
    }
}

impl From<CudaError> for OpError {
    fn from(error: CudaError) -> Self {
        Self::Device { device: error.device(), cause: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_say_what_to_do() {
        let text =
            CudaError::DriverTooOld { found: CudaVersion(11_080), needed: CudaVersion(12_000) }.to_string();
        assert!(text.contains("CUDA 11.8") && text.contains("12.0") && text.contains("update"), "{text}");
        let text = CudaError::DeviceTooOld { device: DeviceId::Cuda(0), found: (7, 5) }.to_string();
        assert!(text.contains("7.5") && text.contains("8.0") && text.contains("CPU"), "{text}");
        let error = CudaError::OutOfMemory { device: DeviceId::Cuda(1), bytes: 7, free: 3, total: 5 };
        let text = OpError::from(error).to_string();
        assert!(text.starts_with("cuda:1 failed: no room for 7 bytes: 3 of 5"), "{text}");
    }
}
