//! The driver of the GPUs: opened once, when the first GPU is asked for.
#![allow(unsafe_code, reason = "the driver is a C library")]

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use beamstream_buffer::DeviceId;
use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};

use crate::error::{CudaError, CudaVersion};
use crate::library::SearchPath;
use crate::status::{check, words};

/// The oldest driver whose functions we use.
const OLDEST: CudaVersion = CudaVersion(12_000);

/// Name of the driver's library.
const LIBRARY: &str = "libcuda.so.1";

/// The open driver.
#[derive(Debug)]
pub struct Driver {
    path: PathBuf,
    version: CudaVersion,
    gpus: u32,
}

impl Driver {
    /// The driver of this machine.
    ///
    /// # Errors
    /// [`CudaError::NoDriver`] or [`CudaError::DriverTooOld`].
    pub fn get() -> Result<&'static Self, CudaError> {
        static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
        DRIVER.get_or_init(|| Self::open(&SearchPath::from_environment())).as_ref().map_err(Clone::clone)
    }

    /// Opens the driver, which then stays open.
    pub(crate) fn open(search: &SearchPath) -> Result<Self, CudaError> {
        let no_driver = |cause| CudaError::NoDriver { cause };
        let opened = search.open(&[LIBRARY]).map_err(no_driver)?;
        // SAFETY: `CUresult cuDriverGetVersion(int *)`, in every version of the driver.
        let get_version: unsafe extern "C" fn(*mut c_int) -> u32 =
            unsafe { opened.function("cuDriverGetVersion") }.map_err(no_driver)?;
        let mut version = 0;
        // SAFETY: it stores one integer.
        let _status = unsafe { get_version(&raw mut version) };
        let version = CudaVersion(version.unsigned_abs());
        if version < OLDEST {
            return Err(CudaError::DriverTooOld { found: version, needed: OLDEST });
        }
        let path = opened.path.clone();
        // cudarc looks the library up by name, and finds this one because it stays open.
        std::mem::forget(opened);
        // SAFETY: it only opens libraries by name.
        if !unsafe { sys::is_culib_present() } {
            return Err(no_driver(format!("{} cannot be opened by its name", path.display())));
        }
        // SAFETY: the library is there, and the first call has to be this one.
        let status = unsafe { sys::cuInit(0) };
        let gpus = match status {
            CUresult::CUDA_SUCCESS => count()?,
            CUresult::CUDA_ERROR_NO_DEVICE => 0,
            other => return Err(no_driver(format!("cuInit says {}", words(other)))),
        };
        Ok(Self { path, version, gpus })
    }

    /// The file of the driver's library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest CUDA that the driver supports.
    pub fn version(&self) -> CudaVersion {
        self.version
    }

    /// How many GPUs there are.
    pub fn gpu_count(&self) -> u32 {
        self.gpus
    }

    /// The GPU of this number, before it is opened.
    pub(crate) fn device(&self, ordinal: u32) -> Result<RawDevice, CudaError> {
        let id = DeviceId::Cuda(ordinal);
        if ordinal >= self.gpus {
            return Err(CudaError::NoDevice { device: id, present: self.present() });
        }
        let mut raw = 0;
        // SAFETY: it stores one handle.
        let status = unsafe { sys::cuDeviceGet(&raw mut raw, ordinal as c_int) };
        check(id, "cuDeviceGet", status)?;
        Ok(RawDevice { id, raw })
    }

    fn present(&self) -> String {
        let name = |ordinal| self.device(ordinal).and_then(RawDevice::name).unwrap_or_default();
        let names: Vec<String> =
            (0..self.gpus).map(|n| format!("{} ({})", DeviceId::Cuda(n), name(n))).collect();
        if names.is_empty() {
            "this machine has none, or CUDA_VISIBLE_DEVICES hides them".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        }
    }
}

fn count() -> Result<u32, CudaError> {
    let mut count = 0;
    // SAFETY: it stores one integer.
    let status = unsafe { sys::cuDeviceGetCount(&raw mut count) };
    check(DeviceId::Cuda(0), "cuDeviceGetCount", status)?;
    Ok(count.unsigned_abs())
}

/// A GPU as the driver lists it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawDevice {
    pub(crate) id: DeviceId,
    pub(crate) raw: sys::CUdevice,
}

impl RawDevice {
    /// One property.
    pub(crate) fn attribute(self, attribute: CUdevice_attribute) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: it stores one integer.
        let status = unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, self.raw) };
        check(self.id, "cuDeviceGetAttribute", status)?;
        Ok(value)
    }

    /// The name of the model.
    pub(crate) fn name(self) -> Result<String, CudaError> {
        let mut text = [0; 256];
        // SAFETY: it stores at most that many characters and a zero.
        let status = unsafe { sys::cuDeviceGetName(text.as_mut_ptr(), text.len() as c_int, self.raw) };
        check(self.id, "cuDeviceGetName", status)?;
        Ok(text_of(&text))
    }

    /// Domain, bus and device: `0000:17:00.0`.
    pub(crate) fn pci_address(self) -> Result<String, CudaError> {
        let mut text = [0; 32];
        // SAFETY: it stores at most that many characters and a zero.
        let status = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, self.raw) };
        check(self.id, "cuDeviceGetPCIBusId", status)?;
        Ok(text_of(&text).to_lowercase())
    }

    /// All of its memory. Unit: bytes.
    pub(crate) fn total_bytes(self) -> Result<usize, CudaError> {
        let mut bytes = 0;
        // SAFETY: it stores one size.
        let status = unsafe { sys::cuDeviceTotalMem_v2(&raw mut bytes, self.raw) };
        check(self.id, "cuDeviceTotalMem", status)?;
        Ok(bytes)
    }
}

/// A text that ends with a zero within its buffer.
fn text_of(buffer: &[c_char]) -> String {
    let bytes: &[u8] = bytemuck::cast_slice(buffer);
    CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_driver_is_told_so() {
        let error = Driver::open(&SearchPath::default()).unwrap_err();
        assert!(matches!(error, CudaError::NoDriver { .. }));
        let text = error.to_string();
        assert!(text.contains("libcuda.so.1") && text.contains("install") && text.contains("CPU"), "{text}");
    }
}
