//! NVML, the library behind `nvidia-smi`: energy, memory in use, the link to the host.
#![allow(unsafe_code, reason = "NVML is a C library")]

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::OnceLock;

use crate::library::{Opened, SearchPath};

/// Status of a call; 0 is success.
type Status = c_int;
/// A GPU of NVML.
type Handle = *mut c_void;

/// Name of the library. It comes with the driver.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct MemoryInfo {
    total: u64,
    free: u64,
    used: u64,
}

/// The functions of `nvml.h` that we use.
struct Functions {
    by_pci_address: unsafe extern "C" fn(*const c_char, *mut Handle) -> Status,
    energy: unsafe extern "C" fn(Handle, *mut u64) -> Status,
    memory: unsafe extern "C" fn(Handle, *mut MemoryInfo) -> Status,
    link_generation: unsafe extern "C" fn(Handle, *mut c_uint) -> Status,
    link_width: unsafe extern "C" fn(Handle, *mut c_uint) -> Status,
    driver_version: unsafe extern "C" fn(*mut c_char, c_uint) -> Status,
}

/// The open library; it stays open.
pub(crate) struct Nvml {
    opened: Opened,
    functions: Functions,
}

impl Nvml {
    /// NVML of this machine.
    pub(crate) fn get() -> Result<&'static Self, String> {
        static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
        NVML.get_or_init(|| Self::open(&SearchPath::from_environment())).as_ref().map_err(Clone::clone)
    }

    fn open(search: &SearchPath) -> Result<Self, String> {
        let opened = search.open(&[LIBRARY])?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is that of `nvml.h`.
                unsafe { opened.function($name) }?
            };
        }
        let init: unsafe extern "C" fn() -> Status = function!("nvmlInit_v2");
        let functions = Functions {
            by_pci_address: function!("nvmlDeviceGetHandleByPciBusId_v2"),
            energy: function!("nvmlDeviceGetTotalEnergyConsumption"),
            memory: function!("nvmlDeviceGetMemoryInfo"),
            link_generation: function!("nvmlDeviceGetMaxPcieLinkGeneration"),
            link_width: function!("nvmlDeviceGetMaxPcieLinkWidth"),
            driver_version: function!("nvmlSystemGetDriverVersion"),
        };
        // SAFETY: the first call has to be this one.
        match unsafe { init() } {
            0 => Ok(Self { opened, functions }),
            code => Err(format!("NVML cannot be used: nvmlInit gives {code}")),
        }
    }

    /// The file of the library.
    pub(crate) fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Version of the driver: `580.95.05`.
    pub(crate) fn driver_version(&self) -> Option<String> {
        let mut text = [0_u8; 80];
        // SAFETY: it stores at most that many characters and a zero.
        let status =
            unsafe { (self.functions.driver_version)(text.as_mut_ptr().cast(), text.len() as c_uint) };
        let end = text.iter().position(|byte| *byte == 0)?;
        (status == 0).then(|| String::from_utf8_lossy(&text[..end]).into_owned())
    }
}

/// The connection of a GPU to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcieLink {
    /// Generation of PCI Express.
    pub generation: u32,
    /// Lanes.
    pub lanes: u32,
}

/// One GPU as NVML sees it.
pub(crate) struct Meter {
    functions: &'static Functions,
    handle: Handle,
}

// SAFETY: NVML may be used from any thread, and its handles stay valid.
unsafe impl Send for Meter {}
// SAFETY: as above.
unsafe impl Sync for Meter {}

impl Meter {
    /// The GPU at this place of the PCI bus; `None` if NVML is missing or does not know it.
    pub(crate) fn open(pci_address: &str) -> Option<Self> {
        let functions = &Nvml::get().ok()?.functions;
        let address = CString::new(pci_address).ok()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the text ends with a zero; it stores one handle.
        let status = unsafe { (functions.by_pci_address)(address.as_ptr(), &raw mut handle) };
        (status == 0).then_some(Self { functions, handle })
    }

    /// Energy used since the driver was loaded. Unit: joules.
    pub(crate) fn energy_joules(&self) -> Option<f64> {
        let mut millijoules = 0;
        // SAFETY: the handle is valid; it stores one integer.
        let status = unsafe { (self.functions.energy)(self.handle, &raw mut millijoules) };
        (status == 0).then_some(millijoules as f64 / 1000.0)
    }

    /// Memory that no program uses. Unit: bytes.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let mut memory = MemoryInfo::default();
        // SAFETY: the handle is valid; it stores one structure of this layout.
        let status = unsafe { (self.functions.memory)(self.handle, &raw mut memory) };
        (status == 0).then_some(memory.free)
    }

    /// The fastest link that GPU and board have in common.
    pub(crate) fn link(&self) -> Option<PcieLink> {
        let (mut generation, mut lanes) = (0, 0);
        // SAFETY: the handle is valid; it stores one integer.
        let first = unsafe { (self.functions.link_generation)(self.handle, &raw mut generation) };
        // SAFETY: as above.
        let second = unsafe { (self.functions.link_width)(self.handle, &raw mut lanes) };
        (first == 0 && second == 0).then_some(PcieLink { generation, lanes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_nothing_is_measured() {
        let Err(text) = Nvml::open(&SearchPath::default()) else { panic!("it was opened") };
        assert!(text.contains(LIBRARY), "{text}");
    }
}
