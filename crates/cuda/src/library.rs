//! Shared libraries that are opened when the program runs.
#![allow(unsafe_code, reason = "opening a shared library runs its initialisers")]

use std::error::Error;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Where libraries are looked for.
#[derive(Debug, Clone, Default)]
pub struct SearchPath {
    /// Whether the system's loader is asked first (`LD_LIBRARY_PATH`, `ldconfig`).
    pub loader: bool,
    /// Folders that are looked through after that, in order.
    pub folders: Vec<PathBuf>,
}

impl SearchPath {
    /// The loader, a CUDA toolkit (`CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda*`), and the Python packages that
    /// carry CUDA libraries (of `VIRTUAL_ENV`, `CONDA_PREFIX` and the `python3` on `PATH`).
    pub fn from_environment() -> Self {
        let mut folders = Vec::new();
        for variable in ["CUDA_HOME", "CUDA_PATH"] {
            folders.extend(std::env::var_os(variable).map(|root| PathBuf::from(root).join("lib64")));
        }
        folders.push(PathBuf::from("/usr/local/nvidia/lib64"));
        folders.extend(matching(Path::new("/usr/local"), "cuda").into_iter().map(|root| root.join("lib64")));
        for prefix in python_prefixes() {
            folders.push(prefix.join("lib"));
            folders.extend(python_packages(&prefix).iter().flat_map(|site| wheel_folders(site)));
        }
        folders.retain(|folder| folder.is_dir());
        Self { loader: true, folders }
    }

    /// Opens the first of `names` that is found, and says where it lies.
    pub(crate) fn open(&self, names: &[&str]) -> Result<Opened, String> {
        let mut refusals = Vec::new();
        for name in names {
            let by_loader = self.loader.then(|| PathBuf::from(name));
            let by_folder = self.folders.iter().map(|folder| folder.join(name)).filter(|path| path.is_file());
            for path in by_loader.into_iter().chain(by_folder) {
                match Opened::new(&path) {
                    Ok(opened) => return Ok(opened),
                    Err(error) if path.is_absolute() => refusals.push(cause(&error)),
                    Err(_not_known_to_the_loader) => {}
                }
            }
        }
        refusals.insert(0, format!("{} is not in {}", names.join(" or "), self.describe()));
        Err(refusals.join("; "))
    }

    fn describe(&self) -> String {
        let loader = self.loader.then(|| "the loader's path".to_owned());
        let folders = self.folders.iter().map(|folder| folder.display().to_string());
        let places: Vec<String> = loader.into_iter().chain(folders).collect();
        if places.is_empty() { "any folder".to_owned() } else { places.join(", ") }
    }
}

/// What the loader said, which the error holds as its source.
fn cause(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// An open library and where it was found.
pub(crate) struct Opened {
    pub(crate) library: Library,
    pub(crate) path: PathBuf,
}

impl Opened {
    fn new(path: &Path) -> Result<Self, libloading::Error> {
        if path.is_absolute() {
            preload_companions(path);
        }
        // SAFETY: the initialisers of NVIDIA's libraries need nothing of us and may run in any thread.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?;
        Ok(Self { library, path: mapped_path(path).unwrap_or_else(|| path.to_owned()) })
    }

    /// The function of this name, as the type `F`.
    ///
    /// # Safety
    /// `F` is a function pointer of the type that the library's documentation gives for `name`.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> Result<F, String> {
        // SAFETY: by the promise of the caller; the library stays open as long as `self`.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|error| format!("{}: {}", self.path.display(), cause(&error)))
    }
}

/// Opens what NVRTC looks up by name alone, `libnvrtc-builtins`, from the folder in which NVRTC itself lies.
fn preload_companions(path: &Path) {
    let is_nvrtc = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so"));
    if let Some(folder) = path.parent().filter(|_| is_nvrtc) {
        for companion in matching(folder, "libnvrtc-builtins.so") {
            // SAFETY: as for the library itself; it holds data only.
            if let Ok(library) = unsafe { Library::open(Some(&companion), RTLD_NOW | RTLD_GLOBAL) } {
                // It has to stay open as long as NVRTC, which is for ever.
                std::mem::forget(library);
            }
        }
    }
}

/// Where a library that the loader found by name lies, by the kernel's list of mappings.
fn mapped_path(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().split_inclusive(".so").next()?.to_owned() + ".";
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    // The file may carry another version than the name by which it is opened: libcuda.so.580.95.05.
    let is_it = |path: &&Path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name));
    paths.filter(is_it).map(Path::to_owned).next()
}

/// Entries of `folder` that begin with `prefix`, the highest name first.
fn matching(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found
}

/// Folders that hold a Python installation, the chosen one first.
fn python_prefixes() -> Vec<PathBuf> {
    let chosen = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .filter(|folder| folder.join("python3").exists())
        .filter_map(|folder| folder.parent().map(Path::to_owned));
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local"));
    let mut prefixes: Vec<PathBuf> = Vec::new();
    for prefix in chosen.chain(on_path).chain(home) {
        if !prefixes.contains(&prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// The package folders of a Python installation.
fn python_packages(prefix: &Path) -> Vec<PathBuf> {
    let versions = matching(&prefix.join("lib"), "python3");
    versions.iter().flat_map(|lib| ["site-packages", "dist-packages"].map(|name| lib.join(name))).collect()
}

/// Where the packages `nvidia-cuda-nvrtc` of CUDA 13 and of CUDA 12 put their libraries.
fn wheel_folders(packages: &Path) -> Vec<PathBuf> {
    ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"].map(|folder| packages.join(folder)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_places() {
        let folder = tempfile::tempdir().unwrap();
        let search = SearchPath { loader: true, folders: vec![folder.path().to_owned()] };
        let Err(text) = search.open(&["libno-such-thing.so.1"]) else { panic!("it was found") };
        assert!(text.contains("libno-such-thing.so.1") && text.contains("loader"), "{text}");
        assert!(text.contains(&folder.path().display().to_string()), "{text}");
    }

    #[test]
    fn a_file_that_is_no_library_is_said_to_be_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libbroken.so"), "text").unwrap();
        let search = SearchPath { loader: false, folders: vec![folder.path().to_owned()] };
        let Err(text) = search.open(&["libbroken.so"]) else { panic!("it was opened") };
        assert!(text.contains("libbroken.so: "), "{text}");
    }

    #[test]
    fn wheels_of_a_virtual_environment_are_found() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("lib/python3.12/site-packages");
        assert_eq!(python_packages(root.path()), Vec::<PathBuf>::new());
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(python_packages(root.path())[0], folder);
        assert!(wheel_folders(&folder)[0].ends_with("site-packages/nvidia/cu13/lib"));
    }
}
