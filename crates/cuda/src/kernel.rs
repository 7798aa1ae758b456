//! Kernels: compiled, cached, started.
#![allow(unsafe_code, reason = "modules and functions are handles of the driver")]

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUfunction_attribute, CUresult};

use crate::args::Args;
use crate::cache::DiskCache;
use crate::driver::Driver;
use crate::error::CudaError;
use crate::gpu::Gpu;
use crate::nvrtc::Compiler;
use crate::source::KernelSource;
use crate::status::{check, ignore, words};
use crate::stream::CudaStream;

/// Shared memory that every kernel may use unasked. Unit: bytes.
const SHARED_UNASKED: u32 = 48 * 1024;

/// A loaded module; any thread may use it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawModule(sys::CUmodule);

// SAFETY: modules may be used from any thread, the driver locks.
unsafe impl Send for RawModule {}

/// The modules of a GPU by their fingerprints. Whoever needs one that is being compiled waits for it alone.
pub(crate) type Modules = Mutex<HashMap<u128, Arc<Mutex<Option<RawModule>>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frees all modules; the context is current and no kernel is left.
pub(crate) fn unload(modules: &Modules) {
    for (_, entry) in lock(modules).drain() {
        if let Some(module) = lock(&entry).take() {
            // SAFETY: loaded once, in this context, and nobody else has the handle.
            ignore(unsafe { sys::cuModuleUnload(module.0) });
        }
    }
}

/// A compiled kernel file on one GPU.
#[derive(Debug, Clone)]
pub struct Program {
    gpu: Arc<Gpu>,
    name: &'static str,
    module: RawModule,
}

// SAFETY: the module is a handle that the driver locks, and nothing of a program changes once it is there.
unsafe impl Sync for Program {}

impl Gpu {
    /// Compiles a kernel file for this GPU, or takes it from memory or from the cache on disk.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`], or [`CudaError::Compile`] with the compiler's log.
    pub fn compile(self: &Arc<Self>, source: &KernelSource) -> Result<Program, CudaError> {
        let compiler = Compiler::get(Driver::get()?.version())?;
        let architecture = self.properties().architecture();
        let target = format!("{} {}", compiler.version(), compiler.target(architecture));
        let fingerprint = source.fingerprint(&target);
        let entry = lock(self.modules()).entry(fingerprint).or_default().clone();
        let mut entry = lock(&entry);
        let module = match *entry {
            Some(module) => module,
            None => *entry.insert(self.load_or_compile(compiler, source, fingerprint)?),
        };
        Ok(Program { gpu: self.clone(), name: source.name, module })
    }

    fn load_or_compile(
        &self,
        compiler: &Compiler,
        source: &KernelSource,
        fingerprint: u128,
    ) -> Result<RawModule, CudaError> {
        let cache = DiskCache::of_user();
        if let Some(module) = cache.load(fingerprint).and_then(|code| self.load(&code).ok()) {
            return Ok(module);
        }
        let architecture = self.properties().architecture();
        let code = compiler.compile(source, architecture).map_err(|log| CudaError::Compile {
            device: self.id(),
            source_name: source.name.to_owned(),
            architecture: compiler.target(architecture),
            log,
        })?;
        let module = self.load(&code)?;
        cache.store(fingerprint, &code);
        Ok(module)
    }

    fn load(&self, code: &[u8]) -> Result<RawModule, CudaError> {
        self.bind()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the code is a whole cubin, or PTX with a zero at its end, as the compiler gave it.
        let status = unsafe { sys::cuModuleLoadData(&raw mut module, code.as_ptr().cast()) };
        check(self.id(), "cuModuleLoadData", status)?;
        Ok(RawModule(module))
    }
}

impl Program {
    /// The kernel of this name, which is declared `extern "C" __global__`.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the file has none.
    pub fn kernel(&self, name: &str) -> Result<Kernel, CudaError> {
        let gpu = &self.gpu;
        gpu.bind()?;
        let text = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a zero; it stores one handle.
        let status = unsafe { sys::cuModuleGetFunction(&raw mut function, self.module.0, text.as_ptr()) };
        if status != CUresult::CUDA_SUCCESS {
            let cause = format!("{} for kernel {name} of {}", words(status), self.name);
            return Err(CudaError::Call { device: gpu.id(), call: "cuModuleGetFunction", cause });
        }
        let function = RawFunction(function);
        Ok(Kernel {
            gpu: gpu.clone(),
            function,
            name: format!("{name} ({})", self.name),
            parameters: function.parameters(),
            registers: function.attribute(gpu, CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            shared_allowed: AtomicU32::new(SHARED_UNASKED),
        })
    }
}

/// A kernel in a loaded module; any thread may use it.
#[derive(Debug, Clone, Copy)]
struct RawFunction(sys::CUfunction);

// SAFETY: functions may be used from any thread, the driver locks.
unsafe impl Send for RawFunction {}
// SAFETY: as above.
unsafe impl Sync for RawFunction {}

impl RawFunction {
    fn attribute(self, gpu: &Gpu, attribute: CUfunction_attribute) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: the function is loaded; it stores one integer.
        let status = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, self.0) };
        check(gpu.id(), "cuFuncGetAttribute", status)?;
        Ok(value.unsigned_abs())
    }

    /// Sizes of the parameters, where the driver tells them: since CUDA 12.4.
    fn parameters(self) -> Option<Vec<usize>> {
        type ParamInfo = unsafe extern "C" fn(sys::CUfunction, usize, *mut usize, *mut usize) -> CUresult;
        // SAFETY: a kernel exists, so the driver is open.
        let driver = unsafe { sys::culib() };
        // SAFETY: the type is that of the driver's documentation.
        let param_info = unsafe { driver.get::<ParamInfo>(b"cuFuncGetParamInfo\0") }.ok()?;
        let size = |index: usize| {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is loaded; it stores two sizes.
            let status = unsafe { param_info(self.0, index, &raw mut offset, &raw mut size) };
            (status == CUresult::CUDA_SUCCESS).then_some(size)
        };
        Some((0..).map_while(size).collect())
    }
}

/// How many blocks of how many threads a kernel is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z; at most 65535 in y and z. Where one is 0, nothing is started.
    pub blocks: [u32; 3],
    /// Threads of a block in x, y and z.
    pub threads: [u32; 3],
    /// Shared memory of a block beside what the kernel declares. Unit: bytes.
    pub shared_bytes: u32,
}

impl Grid {
    /// Blocks and threads without further shared memory.
    pub const fn new(blocks: [u32; 3], threads: [u32; 3]) -> Self {
        Self { blocks, threads, shared_bytes: 0 }
    }

    /// As many blocks of `threads` as `items` need, in one dimension.
    pub const fn linear(items: usize, threads: u32) -> Self {
        Self::new([items.div_ceil(threads as usize) as u32, 1, 1], [threads, 1, 1])
    }

    /// The same with shared memory.
    #[must_use]
    pub const fn with_shared(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }
}

impl std::fmt::Display for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [x, y, z] = self.blocks;
        let [i, j, k] = self.threads;
        write!(f, "{x} x {y} x {z} blocks of {i} x {j} x {k} threads and {} bytes", self.shared_bytes)
    }
}

/// A kernel of one GPU, ready to be started.
#[derive(Debug)]
pub struct Kernel {
    gpu: Arc<Gpu>,
    function: RawFunction,
    name: String,
    parameters: Option<Vec<usize>>,
    registers: u32,
    /// Shared memory that the driver has been told to allow.
    shared_allowed: AtomicU32,
}

impl Kernel {
    /// Name of the kernel and of its file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// The driver's handle, valid as long as this kernel.
    pub fn raw(&self) -> sys::CUfunction {
        self.function.0
    }

    fn refuse(&self, grid: Grid, cause: String) -> CudaError {
        CudaError::Launch {
            device: self.gpu.id(),
            kernel: self.name.clone(),
            geometry: grid.to_string(),
            cause,
        }
    }

    /// Whether number and sizes of the arguments are those of the parameters.
    fn check_args(&self, grid: Grid, args: &Args) -> Result<(), CudaError> {
        match &self.parameters {
            Some(expected) if !args.sizes().eq(expected.iter().copied()) => {
                let found: Vec<usize> = args.sizes().collect();
                let cause = format!("expected arguments of {expected:?} bytes, found {found:?}");
                Err(self.refuse(grid, cause))
            }
            _ => Ok(()),
        }
    }

    /// Asks for as much shared memory as the launch needs, once.
    fn allow_shared(&self, grid: Grid) -> Result<(), CudaError> {
        if grid.shared_bytes <= self.shared_allowed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function is loaded and its context current.
        let status =
            unsafe { sys::cuFuncSetAttribute(self.raw(), attribute, grid.shared_bytes.cast_signed()) };
        if status != CUresult::CUDA_SUCCESS {
            let most = self.gpu.properties().shared_bytes;
            let cause = format!("a block of this GPU has at most {most} bytes of shared memory");
            return Err(self.refuse(grid, cause));
        }
        self.shared_allowed.store(grid.shared_bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl CudaStream {
    /// Enqueues a kernel.
    ///
    /// # Errors
    /// [`CudaError::Launch`] if the geometry or the arguments do not fit, [`CudaError::Lost`] if earlier work failed.
    ///
    /// # Safety
    /// The kernel touches only memory that this call may touch: each pointer among `args` covers what the kernel reads
    /// and writes by its documentation, stays allocated until the stream is past it, and is not used by work
    /// elsewhere that no fence keeps apart.
    pub unsafe fn launch(&self, kernel: &Kernel, grid: Grid, args: &Args) -> Result<(), CudaError> {
        kernel.check_args(grid, args)?;
        if grid.blocks.contains(&0) {
            return Ok(());
        }
        self.gpu().bind()?;
        kernel.allow_shared(grid)?;
        let ([x, y, z], [i, j, k]) = (grid.blocks, grid.threads);
        let mut addresses = args.addresses();
        self.traced(&kernel.name, || {
            // SAFETY: the handles are alive, the arguments were compared with the parameters, their addresses live
            // until the call returns, and what the kernel touches is by the promise of the caller.
            let status = unsafe {
                sys::cuLaunchKernel(
                    kernel.raw(),
                    x,
                    y,
                    z,
                    i,
                    j,
                    k,
                    grid.shared_bytes,
                    self.raw(),
                    addresses.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
            match check(self.gpu().id(), "cuLaunchKernel", status) {
                Err(CudaError::Call { cause, .. }) => Err(kernel.refuse(grid, cause)),
                other => other,
            }
        })
    }
}
