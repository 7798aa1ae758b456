//! What a path leads to: which kind of file it is, and what is taken from where in it.

use std::io::Read;
use std::path::{Path, PathBuf};

use beamstream_core::Role;

use super::angles::AngleTable;
use super::error::frames_of;
use super::hdf5::Tree;
use super::raw::RawLayout;
use super::tiff::TiffFile;
use super::{Parts, ScanError, ScanKind, edf, folder, his, mrc, npy, raw, tiff, txrm, zarr};
use crate::hdf5::has_signature;

/// Bytes by which the kind of a file is told.
const START_BYTES: u64 = 2048;

/// A file or folder, by what it holds.
pub(super) enum Opened {
    Hdf5(Tree),
    /// Frames without datasets that could be named.
    Images(ScanKind, PathBuf),
    /// A file of no known kind: frames only where a layout is given.
    Unknown(PathBuf, String),
}

impl Opened {
    /// Opens a path; `growing` if it is still being written, so that what is not there yet is left out.
    pub(super) fn open(path: &Path, growing: bool) -> Result<Self, ScanError> {
        let images = |kind| Ok(Self::Images(kind, path.to_owned()));
        let metadata = std::fs::metadata(path).map_err(ScanError::io(path))?;
        if metadata.is_dir() {
            return images(if zarr::is_zarr(path) { ScanKind::Zarr } else { ScanKind::Folder });
        }
        let mut file = std::fs::File::open(path).map_err(ScanError::io(path))?;
        if has_signature(&file) {
            return Tree::open(path, growing).map(Self::Hdf5);
        }
        let mut start = Vec::new();
        file.by_ref().take(START_BYTES).read_to_end(&mut start).map_err(ScanError::io(path))?;
        if let Some(kind) = kind_of(path, &start) {
            return images(kind);
        }
        start.truncate(4);
        let found = if start.is_empty() {
            "an empty file".to_owned()
        } else {
            format!("{:?}", start.escape_ascii().to_string())
        };
        Ok(Self::Unknown(path.to_owned(), found))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Hdf5(tree) => tree.path(),
            Self::Images(_, path) | Self::Unknown(path, _) => path,
        }
    }

    /// The scan in the file; `data` names where its frames are instead, or how they lie in it.
    pub(super) fn parts(&self, data: Option<&str>) -> Result<Parts, ScanError> {
        if let Some(layout) = data.and_then(|place| place.strip_prefix(raw::PREFIX)) {
            return raw::open(self.path(), &RawLayout::parse(self.path(), layout)?);
        }
        match (self, data) {
            (Self::Hdf5(tree), None) => tree.parts(None),
            (Self::Hdf5(tree), Some(place)) if tree.has(place) => tree.parts(Some(place)),
            (Self::Images(kind, path), None) => images(*kind, path),
            (Self::Unknown(path, found), None) => {
                Err(ScanError::UnknownKind { path: path.clone(), found: found.clone() })
            }
            (_, Some(place)) => self.other(place, "frames")?.parts_at_dataset(),
        }
    }

    /// The frames of a role at a place: all that is there, or of a whole scan those that have the role.
    pub(super) fn frames_at(&self, place: &str, role: Role) -> Result<Parts, ScanError> {
        let mut parts = match self {
            Self::Hdf5(tree) if tree.has(place) => {
                Parts::of_stack(ScanKind::Hdf5, Box::new(tree.stack(place)?), role)
            }
            _ => self.other(place, frames_of(role))?.parts_at_dataset()?,
        };
        if parts.frames.iter().any(|frame| frame.role == role) {
            parts.frames.retain(|frame| frame.role == role);
        }
        for frame in &mut parts.frames {
            frame.role = role;
        }
        Ok(parts)
    }

    /// The table of angles at a place.
    pub(super) fn angles(&self, place: &str) -> Result<AngleTable, ScanError> {
        if let Self::Hdf5(tree) = self
            && tree.has(place)
        {
            return tree.angles(place);
        }
        match Other::find(place) {
            Some(Other { path, inside: Some(dataset) }) => Tree::open(&path, false)?.angles(&dataset),
            Some(Other { path, inside: None }) => AngleTable::from_text(&path),
            None => Err(self.no_place("angles", place)),
        }
    }

    fn other(&self, place: &str, role: &'static str) -> Result<Other, ScanError> {
        Other::find(place).ok_or_else(|| self.no_place(role, place))
    }

    fn no_place(&self, role: &'static str, place: &str) -> ScanError {
        ScanError::NoPlace { path: self.path().to_owned(), role, place: place.to_owned() }
    }
}

/// The kind of a file that is not HDF5, by its first bytes.
fn kind_of(path: &Path, start: &[u8]) -> Option<ScanKind> {
    let kinds = [
        (tiff::SIGNATURES.iter().any(|signature| start.starts_with(signature)), ScanKind::Tiff),
        (start.starts_with(npy::SIGNATURE), ScanKind::Npy),
        (edf::is_edf(start), ScanKind::Edf),
        (start.starts_with(&txrm::SIGNATURE), ScanKind::Txrm),
        (his::is_his(start), ScanKind::His),
        (mrc::is_mrc(path, start), ScanKind::Mrc),
    ];
    kinds.into_iter().find(|(is_kind, _)| *is_kind).map(|(_, kind)| kind)
}

/// The scan in a file or folder of one of the kinds without datasets.
fn images(kind: ScanKind, path: &Path) -> Result<Parts, ScanError> {
    let plain = |stack| Ok(Parts::of_stack(kind, stack, Role::Projection));
    match kind {
        ScanKind::Folder => folder::open(path),
        ScanKind::Zarr => zarr::open(path),
        ScanKind::Txrm => txrm::open(path),
        ScanKind::Mrc => mrc::open(path),
        ScanKind::His => plain(Box::new(his::open(path)?)),
        ScanKind::Edf => plain(Box::new(edf::open(path)?)),
        ScanKind::Npy => plain(Box::new(npy::open(path)?)),
        _ => plain(Box::new(TiffFile::open(path)?)),
    }
}

/// Another file, and perhaps what to take from it: a dataset, or the layout of its frames.
struct Other {
    path: PathBuf,
    inside: Option<String>,
}

impl Other {
    /// `FILE`, `FILE:/dataset` or `FILE:raw:…`, if there is such a file.
    fn find(place: &str) -> Option<Self> {
        if Path::new(place).exists() {
            return Some(Self { path: place.into(), inside: None });
        }
        let layout = place.split_once(&format!(":{}", raw::PREFIX));
        let layout = layout.map(|(file, layout)| (file, format!("{}{layout}", raw::PREFIX)));
        let dataset = || place.rsplit_once(":/").map(|(file, dataset)| (file, format!("/{dataset}")));
        let (file, inside) = layout.or_else(dataset)?;
        Path::new(file).exists().then(|| Self { path: file.into(), inside: Some(inside) })
    }

    fn parts_at_dataset(&self) -> Result<Parts, ScanError> {
        Opened::open(&self.path, false)?.parts(self.inside.as_deref())
    }
}
