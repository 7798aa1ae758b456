//! Why a scan cannot be opened or read.

use std::path::{Path, PathBuf};

use beamstream_core::{Role, Shape};

use crate::hdf5;

/// Why a scan cannot be opened or read. Every text names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The operating system refused.
    #[error("cannot read {path}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// An HDF5 file is damaged, incomplete, or holds what cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: hdf5::Error,
    },
    /// A TIFF file is damaged or holds what cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Tiff {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: tiff::TiffError,
    },
    /// The file is of no kind that is known.
    #[error("{path} is no scan: expected HDF5 (NXtomo, DXchange, or with the path of a dataset), TIFF, EDF, NumPy, TXRM, HIS, MRC or Zarr, found {found}; bare pixels need their layout, as `raw:ROWSxCOLUMNS:u16`", path = path.display())]
    UnknownKind {
        /// The file.
        path: PathBuf,
        /// How it begins.
        found: String,
    },
    /// An HDF5 file is neither NXtomo nor DXchange, and no dataset was named.
    #[error("{path} is neither NXtomo nor DXchange: name the dataset of its frames, one of {candidates}", path = path.display())]
    NoLayout {
        /// The file.
        path: PathBuf,
        /// Datasets that could hold frames.
        candidates: String,
    },
    /// What should hold frames holds none, or of a kind that has no use here.
    #[error("{path}: {what}", path = path.display())]
    NoFrames {
        /// The file or folder.
        path: PathBuf,
        /// What was expected and what was found.
        what: String,
    },
    /// Frames of one scan differ in shape.
    #[error("{path} holds {what} of {found}, but the projections are {expected}", path = path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// Which frames.
        what: String,
        /// Shape of the projections.
        expected: Shape,
        /// Shape found.
        found: Shape,
    },
    /// There are not as many angles as projections.
    #[error("{path} holds {found} angles for {expected} projections", path = path.display())]
    AngleCount {
        /// The file with the angles.
        path: PathBuf,
        /// Number of projections.
        expected: usize,
        /// Number of angles.
        found: usize,
    },
    /// An angle is no number.
    #[error("{path}: the angle of projection {projection} is {value}", path = path.display())]
    AngleValue {
        /// The file with the angles.
        path: PathBuf,
        /// Number of the projection, from 0.
        projection: usize,
        /// What is there.
        value: f64,
    },
    /// A line of a text file of angles is no number.
    #[error("{path}, line {line}: expected an angle in degrees, found {found:?}", path = path.display())]
    AngleText {
        /// The text file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is there.
        found: String,
    },
    /// A dataset or file that an option names is not there.
    #[error("nothing to take the {role} from at {place}: neither a file nor a dataset of {path}", path = path.display())]
    NoPlace {
        /// The scan.
        path: PathBuf,
        /// What the option is for.
        role: &'static str,
        /// What the option says.
        place: String,
    },
    /// A frame or row that the scan does not have was asked for.
    #[error("{path} has {frames} frames of {rows} rows: rows {first} to {end} of frame {frame} are not there", path = path.display())]
    OutOfRange {
        /// The scan.
        path: PathBuf,
        /// Frames in the scan.
        frames: usize,
        /// Rows of a frame.
        rows: usize,
        /// The frame that was asked for.
        frame: usize,
        /// First row that was asked for.
        first: usize,
        /// End of the rows that were asked for.
        end: usize,
    },
}

impl ScanError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn hdf5(path: &Path) -> impl FnOnce(hdf5::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Hdf5 { path, source }
    }

    pub(crate) fn tiff(path: &Path) -> impl FnOnce(tiff::TiffError) -> Self {
        let path = path.to_owned();
        move |source| Self::Tiff { path, source }
    }

    pub(crate) fn no_frames(path: &Path, what: impl Into<String>) -> Self {
        Self::NoFrames { path: path.to_owned(), what: what.into() }
    }
}

/// The plural of a role, for texts.
pub(crate) const fn frames_of(role: Role) -> &'static str {
    match role {
        Role::Projection => "projections",
        Role::Flat => "flats",
        Role::Dark => "darks",
        Role::Invalid => "invalid frames",
    }
}
