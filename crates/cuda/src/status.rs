//! Status codes of the driver.
#![allow(unsafe_code, reason = "the driver gives the texts of its codes as C strings")]

use std::ffi::{CStr, c_char};

use beamstream_buffer::DeviceId;
use cudarc::driver::sys::{self, CUresult};

use crate::CudaError;

/// An error that names the call, unless it succeeded.
pub(crate) fn check(device: DeviceId, call: &'static str, status: CUresult) -> Result<(), CudaError> {
    match status {
        CUresult::CUDA_SUCCESS => Ok(()),
        _ if is_fatal(status) => Err(CudaError::Lost { device, call, cause: words(status) }),
        _ => Err(CudaError::Call { device, call, cause: words(status) }),
    }
}

/// For calls that give something back when a value is dropped: nobody is left to hear of a failure, and a
/// device that is lost has freed everything itself.
pub(crate) fn ignore(_status: CUresult) {}

/// Whether every later call of this process will fail too.
fn is_fatal(status: CUresult) -> bool {
    matches!(
        status,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_UNKNOWN
    )
}

/// The name and the text of a code.
pub(crate) fn words(status: CUresult) -> String {
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: the driver stores a pointer to a constant string, or null for a code it does not know.
    let _known = unsafe { sys::cuGetErrorName(status, &raw mut name) };
    // SAFETY: as above.
    let _known = unsafe { sys::cuGetErrorString(status, &raw mut text) };
    format!("'{}' ({})", constant(text, "unknown error"), constant(name, "no name"))
}

fn constant(text: *const c_char, otherwise: &str) -> String {
    if text.is_null() {
        return otherwise.to_owned();
    }
    // SAFETY: not null, so it is one of the driver's constant strings, which end with a zero and live for ever.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
