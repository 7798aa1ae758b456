//! NVRTC: the compiler of the kernels. It needs neither a GPU nor the driver.
#![allow(unsafe_code, reason = "NVRTC is a C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use crate::error::{CudaError, CudaVersion};
use crate::kernels::HEADERS;
use crate::library::{Opened, SearchPath};
use crate::source::KernelSource;

/// The newest CUDA whose compiler we look for: what is taken where there is no driver to suit.
pub const NEWEST: CudaVersion = CudaVersion(13_000);

/// Status of a call; 0 is success.
type Status = c_int;
/// A program of NVRTC.
type Handle = *mut c_void;

/// The functions of `nvrtc.h` that we use. cudarc's table of them opens one major version of NVRTC by its
/// name and panics if it is missing; we take the one that suits the driver, from where it lies.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Handle) -> Status,
    log_size: SizeOf,
    log: CopyOf,
    cubin_size: SizeOf,
    cubin: CopyOf,
    ptx_size: SizeOf,
    ptx: CopyOf,
    architecture_count: unsafe extern "C" fn(*mut c_int) -> Status,
    architectures: unsafe extern "C" fn(*mut c_int) -> Status,
}

/// Tells the size of a result.
type SizeOf = unsafe extern "C" fn(Handle, *mut usize) -> Status;
/// Copies a result of that size.
type CopyOf = unsafe extern "C" fn(Handle, *mut c_char) -> Status;

impl Functions {
    /// # Safety
    /// `opened` is NVRTC 12 or 13.
    unsafe fn of(opened: &Opened) -> Result<Self, String> {
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: by the promise of the caller the types are those of `nvrtc.h`.
                unsafe { opened.function($name) }?
            };
        }
        Ok(Self {
            version: function!("nvrtcVersion"),
            error_string: function!("nvrtcGetErrorString"),
            create: function!("nvrtcCreateProgram"),
            compile: function!("nvrtcCompileProgram"),
            destroy: function!("nvrtcDestroyProgram"),
            log_size: function!("nvrtcGetProgramLogSize"),
            log: function!("nvrtcGetProgramLog"),
            cubin_size: function!("nvrtcGetCUBINSize"),
            cubin: function!("nvrtcGetCUBIN"),
            ptx_size: function!("nvrtcGetPTXSize"),
            ptx: function!("nvrtcGetPTX"),
            architecture_count: function!("nvrtcGetNumSupportedArchs"),
            architectures: function!("nvrtcGetSupportedArchs"),
        })
    }
}

/// The open compiler.
pub struct Compiler {
    opened: Opened,
    functions: Functions,
    version: CudaVersion,
    architectures: Vec<u32>,
}

impl Compiler {
    /// The compiler whose code a driver of this version runs.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`] if there is none; it is not looked for again.
    pub fn get(driver: CudaVersion) -> Result<&'static Self, CudaError> {
        static COMPILER: OnceLock<Result<Compiler, CudaError>> = OnceLock::new();
        let open = || Self::open(&SearchPath::from_environment(), driver.major());
        COMPILER.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// Opens the newest compiler up to a major version of CUDA: a driver does not load the code of a later one.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`] if none is found, or it cannot be opened.
    pub fn open(search: &SearchPath, newest_major: u32) -> Result<Self, CudaError> {
        let no_compiler = |cause| CudaError::NoCompiler { cause };
        let names: Vec<&str> = [(13, "libnvrtc.so.13"), (12, "libnvrtc.so.12")]
            .iter()
            .filter(|(major, _)| *major <= newest_major)
            .map(|(_, name)| *name)
            .collect();
        let opened = search.open(&names).map_err(no_compiler)?;
        // SAFETY: the name of the library carries its major version.
        let functions = unsafe { Functions::of(&opened) }.map_err(no_compiler)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: it stores two integers.
        let status = unsafe { (functions.version)(&raw mut major, &raw mut minor) };
        let version = CudaVersion((major * 1000 + minor * 10).unsigned_abs());
        let mut compiler = Self { opened, functions, version, architectures: Vec::new() };
        compiler.check(status).map_err(no_compiler)?;
        compiler.architectures = compiler.read_architectures().map_err(no_compiler)?;
        Ok(compiler)
    }

    /// The file of the library.
    pub fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Its version.
    pub fn version(&self) -> CudaVersion {
        self.version
    }

    /// What it compiles `architecture` (90 for compute capability 9.0) to: machine code if it knows it, else PTX for
    /// the nearest earlier one, which the driver translates.
    pub(crate) fn target(&self, architecture: u32) -> String {
        let earlier = self.architectures.iter().filter(|known| **known < architecture).max();
        match earlier {
            Some(earlier) if !self.architectures.contains(&architecture) => format!("compute_{earlier}"),
            _ => format!("sm_{architecture}"),
        }
    }

    /// Compiles a kernel file: a cubin, or PTX with a zero at its end.
    ///
    /// # Errors
    /// The compiler's log, which names files and lines.
    pub fn compile(&self, source: &KernelSource, architecture: u32) -> Result<Vec<u8>, String> {
        let target = self.target(architecture);
        let mut options = source.compiler_options();
        options.push(format!("--gpu-architecture={target}"));
        let program = Program::create(self, source)?;
        if let Err(status) = program.compile(&options)? {
            return Err(format!("{status}\n{}", program.log()));
        }
        if target.starts_with("sm_") {
            program.result(self.functions.cubin_size, self.functions.cubin)
        } else {
            program.result(self.functions.ptx_size, self.functions.ptx)
        }
    }

    fn read_architectures(&self) -> Result<Vec<u32>, String> {
        let mut count = 0;
        // SAFETY: it stores one integer.
        self.check(unsafe { (self.functions.architecture_count)(&raw mut count) })?;
        let mut numbers = vec![0_i32; count.unsigned_abs() as usize];
        // SAFETY: it stores `count` integers.
        self.check(unsafe { (self.functions.architectures)(numbers.as_mut_ptr()) })?;
        Ok(numbers.into_iter().map(i32::unsigned_abs).collect())
    }

    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: it gives a constant string for every code.
        let text = unsafe { (self.functions.error_string)(status) };
        // SAFETY: as above, so the string ends with a zero and lives for ever.
        Err(format!("NVRTC says {}", unsafe { CStr::from_ptr(text) }.to_string_lossy()))
    }
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NVRTC {} of {}", self.version, self.opened.path.display())
    }
}

/// A text without zeros, as C takes it.
fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|error| format!("a text with a zero inside: {error}"))
}

/// A program of NVRTC, with the texts that it may refer to.
struct Program<'a> {
    compiler: &'a Compiler,
    handle: Handle,
    _texts: Vec<CString>,
}

impl<'a> Program<'a> {
    fn create(compiler: &'a Compiler, source: &KernelSource) -> Result<Self, String> {
        let mut texts = vec![c_string(source.text)?, c_string(source.name)?];
        for (name, text) in HEADERS {
            texts.extend([c_string(text)?, c_string(name)?]);
        }
        let header = |offset: usize| texts[2..].iter().skip(offset).step_by(2).map(|text| text.as_ptr());
        let (headers, names): (Vec<_>, Vec<_>) = (header(0).collect(), header(1).collect());
        let mut handle = std::ptr::null_mut();
        // SAFETY: all strings end with a zero and live in `texts`, which moves into the program without moving them.
        let status = unsafe {
            (compiler.functions.create)(
                &raw mut handle,
                texts[0].as_ptr(),
                texts[1].as_ptr(),
                headers.len() as c_int,
                headers.as_ptr(),
                names.as_ptr(),
            )
        };
        compiler.check(status)?;
        Ok(Self { compiler, handle, _texts: texts })
    }

    /// The outer error is one of the call, the inner one of the text.
    fn compile(&self, options: &[String]) -> Result<Result<(), String>, String> {
        let options = options.iter().map(|option| c_string(option)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the handle is alive, and the options live until the call returns.
        let status = unsafe {
            (self.compiler.functions.compile)(self.handle, pointers.len() as c_int, pointers.as_ptr())
        };
        Ok(self.compiler.check(status))
    }

    fn log(&self) -> String {
        let functions = &self.compiler.functions;
        let bytes = self.result(functions.log_size, functions.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches(['\0', '\n']).to_owned()
    }

    fn result(&self, size_of: SizeOf, copy_of: CopyOf) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the handle is alive; it stores one size.
        self.compiler.check(unsafe { size_of(self.handle, &raw mut size) })?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: the handle is alive; it stores as many bytes as it just said.
        self.compiler.check(unsafe { copy_of(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is alive and not used again.
        let _status = unsafe { (self.compiler.functions.destroy)(&raw mut self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler() -> Option<Compiler> {
        let found = Compiler::open(&SearchPath::from_environment(), 13);
        if let Err(error) = &found {
            eprintln!("skipped: {error}");
        }
        found.ok()
    }

    #[test]
    fn a_missing_compiler_is_named_with_the_cure() {
        let text = Compiler::open(&SearchPath::default(), 12).unwrap_err().to_string();
        assert!(text.contains("libnvrtc.so.12") && !text.contains("so.13"), "{text}");
        assert!(text.contains("nvidia-cuda-nvrtc"), "{text}");
    }

    #[test]
    fn kernels_are_compiled_for_the_gpus_of_the_field() {
        let Some(compiler) = compiler() else { return };
        let source = KernelSource::new(
            "add.cu",
            "extern \"C\" __global__ void add(float *to) { to[threadIdx.x] += VALUE; }",
        );
        for architecture in [80, 90] {
            let code = compiler.compile(&source.clone().define("VALUE", "0.5f"), architecture).unwrap();
            assert!(code.starts_with(b"\x7fELF"));
        }
        // An architecture of the future gets PTX.
        assert!(compiler.target(999).starts_with("compute_"));
        let code = compiler.compile(&source.define("VALUE", 1), 999).unwrap();
        assert!(String::from_utf8_lossy(&code).contains(".version") && code.ends_with(&[0]));
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said_with_file_and_line() {
        let Some(compiler) = compiler() else { return };
        let source = KernelSource::new("wrong.cu", "// one\n__global__ void add(float *to) { nonsense; }");
        let log = compiler.compile(&source, 90).unwrap_err();
        assert!(log.contains("wrong.cu(2)") && log.contains("nonsense"), "{log}");
    }
}
