//! Volumes and frames out: HDF5, Zarr, TIFF, NumPy, raw.
//!
//! What is written appears under its final name only when it is whole: until then it is a hidden file or
//! folder beside it, which a failure removes.

mod error;
mod hdf5;
mod levels;
mod npy;
mod scan;
mod stacked;
mod temporary;
mod tiff;
mod zarr;

use std::path::{Path, PathBuf};

use beamstream_core::{Content, Format, FrameId};
use serde_json::Value;

pub use self::error::OutputError;
pub use self::scan::create_scan;
use self::stacked::{Raw, Stacked};

// Blocks are written as they lie in memory, and all headers say little-endian.
const _: () = assert!(cfg!(target_endian = "little"), "outputs are little-endian");

/// The program, as outputs name it.
pub(crate) const PROGRAM: &str = "beamstream";
/// Its version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Kinds of outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    /// One HDF5 file.
    Hdf5,
    /// A Zarr v3 group in a folder; of a volume, OME-Zarr 0.5.
    Zarr,
    /// One BigTIFF with a page for each block.
    TiffStack,
    /// A folder with a TIFF file for each block.
    TiffFolder,
    /// One NumPy array.
    Npy,
    /// Pixels and nothing else.
    Raw,
}

/// Endings of paths and what they stand for; a path without an ending is a folder of TIFF files.
const ENDINGS: [(&str, OutputKind); 8] = [
    ("h5", OutputKind::Hdf5),
    ("hdf5", OutputKind::Hdf5),
    ("nxs", OutputKind::Hdf5),
    ("zarr", OutputKind::Zarr),
    ("tif", OutputKind::TiffStack),
    ("tiff", OutputKind::TiffStack),
    ("npy", OutputKind::Npy),
    ("raw", OutputKind::Raw),
];

/// What a path stands for, by its ending.
///
/// # Errors
/// [`OutputError::UnknownKind`] names the ending and those that are known.
pub fn output_kind_of(path: &Path) -> Result<OutputKind, OutputError> {
    let Some(extension) = path.extension() else {
        return Ok(OutputKind::TiffFolder);
    };
    let extension = extension.to_string_lossy().to_lowercase();
    let known = ENDINGS.iter().find(|(ending, _)| *ending == extension);
    known.map(|(_, kind)| *kind).ok_or_else(|| {
        let endings: Vec<String> = ENDINGS.iter().map(|(ending, _)| format!(".{ending}")).collect();
        let known = format!("{}, or a folder (no ending)", endings.join(", "));
        OutputError::UnknownKind { path: path.to_owned(), extension, known }
    })
}

/// What is to be written, and where.
#[derive(Debug, Clone)]
pub struct OutputSpec {
    /// The file or folder.
    pub path: PathBuf,
    /// Whether it may replace what is there.
    pub overwrite: bool,
    /// What the blocks are: slices `(z, y, x)` or frames `(frame, row, column)`.
    pub content: Content,
    /// Type and shape of each block.
    pub format: Format,
    /// Number of blocks; `None` for frames of which some may be lost: these are written without gaps, in the
    /// order of their ids.
    pub count: Option<u64>,
    /// Number of the first block, for blocks that are counted: for volumes the detector row of the first slice.
    pub first_number: u64,
}

impl OutputSpec {
    fn is_volume(&self) -> bool {
        self.content == Content::Volume
    }

    /// The names of the axes, slowest first.
    fn axes(&self) -> [&'static str; 3] {
        let [slow, fast] = self.format.axes.names();
        [if self.is_volume() { "z" } else { "frame" }, slow, fast]
    }
}

/// An output under way. Dropping it without [`Output::finish`] removes what was written.
pub trait Output: Send {
    /// Writes a block; any order. Each id comes once.
    ///
    /// # Errors
    /// [`OutputError`] naming the path.
    fn write(&mut self, id: FrameId, bytes: &[u8]) -> Result<(), OutputError>;

    /// Completes the output with an account of how the data were made, and gives it its final name.
    ///
    /// A number `voxel_size_m` in the account is the size of the voxels for readers of OME-Zarr.
    ///
    /// # Errors
    /// [`OutputError`] naming the path; nothing stays then.
    fn finish(self: Box<Self>, provenance: &Value) -> Result<(), OutputError>;
}

/// Begins an output.
///
/// # Errors
/// [`OutputError::Exists`] if there is something at the path, unless it may be overwritten; or what the system
/// says of the place.
pub fn create_output(kind: OutputKind, spec: &OutputSpec) -> Result<Box<dyn Output>, OutputError> {
    let total = spec.count.unwrap_or(1).checked_mul(spec.format.checked_bytes().unwrap_or(usize::MAX) as u64);
    if total.is_none_or(|total| total > i64::MAX as u64) {
        let what = format!("{:?} blocks of {} are more than a file can hold", spec.count, spec.format);
        return Err(OutputError::Unsupported { path: spec.path.clone(), what });
    }
    let format = spec.format;
    Ok(match kind {
        OutputKind::Hdf5 => Box::new(Stacked::create(spec, hdf5::Hdf5::new(spec))?),
        OutputKind::Npy => Box::new(Stacked::create(spec, npy::Npy { format })?),
        OutputKind::Raw => Box::new(Stacked::create(spec, Raw)?),
        OutputKind::TiffStack => Box::new(Stacked::create(spec, tiff::TiffStack { format })?),
        OutputKind::TiffFolder => Box::new(tiff::TiffFolder::create(spec)?),
        OutputKind::Zarr => Box::new(zarr::Zarr::create(spec)?),
    })
}

/// Checks that an output can be begun at a path; see [`create_output`].
///
/// # Errors
/// [`OutputError::Exists`] and [`OutputError::ForeignFolder`].
pub(crate) fn is_free(kind: OutputKind, path: &Path, overwrite: bool) -> Result<(), OutputError> {
    temporary::check_target(path, overwrite, is_part(kind))
}

/// Tells which entries a folder of a kind may hold: others keep it from being replaced.
fn is_part(kind: OutputKind) -> fn(&str) -> bool {
    match kind {
        OutputKind::Zarr => zarr::is_own_name,
        OutputKind::TiffFolder => tiff::is_own_name,
        OutputKind::Hdf5 | OutputKind::TiffStack | OutputKind::Npy | OutputKind::Raw => |_| false,
    }
}

#[cfg(test)]
mod tests;
