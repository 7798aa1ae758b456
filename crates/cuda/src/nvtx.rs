//! Names of nodes in NVIDIA's profilers, by NVTX.
//!
//! A profiler that starts this program names its listener in `NVTX_INJECTION64_PATH`. Only then is a library of NVTX
//! looked for; it hands every range on to the listener, which shows it over the kernels that were enqueued in it.
#![allow(unsafe_code, reason = "NVTX is a C library")]

use std::ffi::{CString, c_char, c_int};
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::library::{Opened, SearchPath};

/// The library in toolkits of CUDA 12, and in the Python package `nvidia-nvtx`.
const LIBRARIES: [&str; 3] = ["libnvToolsExt.so.1", "libnvtx3interop.so", "libnvtx3interop.so.1"];

struct Nvtx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
    _opened: Opened,
}

impl Nvtx {
    /// NVTX, if a profiler listens.
    fn get() -> Option<&'static Self> {
        static NVTX: OnceLock<Option<Nvtx>> = OnceLock::new();
        NVTX.get_or_init(|| {
            std::env::var_os("NVTX_INJECTION64_PATH")?;
            let opened = SearchPath::from_environment().open(&LIBRARIES).ok()?;
            // SAFETY: `int nvtxRangePushA(const char *)`.
            let push = unsafe { opened.function("nvtxRangePushA") }.ok()?;
            // SAFETY: `int nvtxRangePop(void)`.
            let pop = unsafe { opened.function("nvtxRangePop") }.ok()?;
            Some(Self { push, pop, _opened: opened })
        })
        .as_ref()
    }
}

/// A range of the calling thread, which ends when this is dropped, in the same thread.
pub(crate) struct Range {
    nvtx: Option<&'static Nvtx>,
    /// Ranges nest within a thread.
    thread: PhantomData<*const ()>,
}

impl Range {
    /// Begins a range.
    pub(crate) fn new(name: &str) -> Self {
        let nvtx = Nvtx::get();
        if let Some(nvtx) = nvtx {
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: the text ends with a zero and is copied.
            let _level = unsafe { (nvtx.push)(name.as_ptr()) };
        }
        Self { nvtx, thread: PhantomData }
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(nvtx) = self.nvtx {
            // SAFETY: `new` began a range in this thread.
            let _level = unsafe { (nvtx.pop)() };
        }
    }
}
