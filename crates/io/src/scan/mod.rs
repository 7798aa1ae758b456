//! Recorded scans: a numbered list of frames with their roles and angles, whatever the file.

mod angles;
mod edf;
mod error;
mod folder;
mod hdf5;
mod his;
mod mrc;
mod npy;
mod opened;
pub(crate) mod pixels;
mod plain;
mod raw;
mod tiff;
mod txrm;
mod zarr;

use std::ops::Range;
use std::path::{Path, PathBuf};

use beamstream_core::{ElementType, Format, Role, Shape};
use serde::Serialize;

use self::angles::{AngleTable, even_degrees};
pub use self::error::ScanError;
use self::error::frames_of;
use self::opened::Opened;

/// Most frames of a scan.
const MAX_FRAMES: usize = 4 << 20;
/// Largest frame.
const MAX_FRAME_BYTES: usize = 4 << 30;

/// Where the parts of a scan are, if not where the file itself says.
///
/// Each is the path of a dataset inside the file, another file or folder, or `FILE:/dataset`. Files of bare pixels
/// need their layout, `raw:ROWSxCOLUMNS:TYPE` or `FILE:raw:ROWSxCOLUMNS:TYPE`, with `:offset=BYTES` where the first
/// frame begins and `:gap=BYTES` between frames, for example `raw:2048x2560:u16:offset=1024`. A type that ends with
/// `be` is big-endian.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Projections, or all frames of a file with keys.
    pub data: Option<String>,
    /// Flats.
    pub flats: Option<String>,
    /// Darks.
    pub darks: Option<String>,
    /// Angles: a dataset, or a text with one angle in degrees a line.
    pub angles: Option<String>,
}

/// What kind of scan a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ScanKind {
    /// NeXus with the definition NXtomo, or of its structure.
    #[serde(rename = "NXtomo")]
    NxTomo,
    /// The exchange format of the APS.
    #[serde(rename = "DXchange")]
    DxChange,
    /// A master file of a DECTRIS detector with its data files.
    #[serde(rename = "DECTRIS master")]
    Dectris,
    /// A file of the ESRF's acquisition.
    #[serde(rename = "BLISS")]
    Bliss,
    /// Another HDF5 file.
    #[serde(rename = "HDF5")]
    Hdf5,
    /// One TIFF file of one or more pages.
    #[serde(rename = "TIFF")]
    Tiff,
    /// A folder of images, one frame a file.
    #[serde(rename = "image folder")]
    Folder,
    /// One file of frames with a text in front of each.
    #[serde(rename = "EDF")]
    Edf,
    /// A NumPy array.
    #[serde(rename = "NumPy")]
    Npy,
    /// Frames of a Zeiss/Xradia microscope.
    #[serde(rename = "TXRM")]
    Txrm,
    /// Frames of a Hamamatsu camera, a header in front of each.
    #[serde(rename = "HIS")]
    His,
    /// Frames of an electron microscope.
    #[serde(rename = "MRC")]
    Mrc,
    /// An array of a Zarr group, as of OME-Zarr.
    #[serde(rename = "Zarr")]
    Zarr,
    /// Bare pixels whose layout the user has told.
    #[serde(rename = "raw")]
    Raw,
}

impl std::fmt::Display for ScanKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NxTomo => "NXtomo",
            Self::DxChange => "DXchange",
            Self::Dectris => "DECTRIS master",
            Self::Bliss => "BLISS",
            Self::Hdf5 => "HDF5",
            Self::Tiff => "TIFF",
            Self::Folder => "image folder",
            Self::Edf => "EDF",
            Self::Npy => "NumPy",
            Self::Txrm => "TXRM",
            Self::His => "HIS",
            Self::Mrc => "MRC",
            Self::Zarr => "Zarr",
            Self::Raw => "raw",
        })
    }
}

/// One frame of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FrameEntry {
    /// What it is for.
    pub role: Role,
    /// Its rotation angle in degrees; projections always have one.
    pub angle_deg: Option<f64>,
}

/// A dataset of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DatasetInfo {
    /// Its path in the file.
    pub path: String,
    /// Its extents, slowest dimension first.
    pub shape: Vec<u64>,
    /// The type of its elements.
    pub element: String,
    /// The filters that compress it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<String>,
}

/// What is known of a scan before a frame is read.
#[derive(Debug, Clone)]
pub struct ScanInfo {
    /// The file or folder.
    pub path: PathBuf,
    /// What it is.
    pub kind: ScanKind,
    /// Type and shape of every frame as [`Scan::read`] gives it.
    ///
    /// If flats or darks are stored in another type than the projections, all are given as `f32`.
    pub format: Format,
    /// The frames in the order of the file; DXchange and separate files: darks, flats, projections.
    pub frames: Vec<FrameEntry>,
    /// Edge length of a detector pixel in metres.
    pub pixel_size_m: Option<f64>,
    /// Datasets of an HDF5 file; for other files the stack of their frames.
    pub datasets: Vec<DatasetInfo>,
    /// Scalar numbers and texts of the file, by their paths.
    pub metadata: serde_json::Value,
    /// What had to be assumed.
    pub warnings: Vec<String>,
}

impl ScanInfo {
    /// Number of frames of a role.
    pub fn count(&self, role: Role) -> usize {
        self.frames.iter().filter(|frame| frame.role == role).count()
    }

    /// The angles of the projections in degrees, in order.
    pub fn projection_angles_deg(&self) -> Vec<f64> {
        let projections = self.frames.iter().filter(|frame| frame.role == Role::Projection);
        projections.map(|frame| frame.angle_deg.unwrap_or(f64::NAN)).collect()
    }
}

/// An open scan.
pub struct Scan {
    info: ScanInfo,
    stacks: Vec<Box<dyn Stack>>,
    frames: Vec<Frame>,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Scan {
    /// Opens a scan, found by looking inside the file.
    ///
    /// # Errors
    /// [`ScanError`] if the file is no scan, is damaged, or its angles do not fit its projections.
    pub fn open(path: &Path, options: &ScanOptions) -> Result<Self, ScanError> {
        Self::open_as(path, options, false)
    }

    /// Opens a scan that is being written, as far as it is there: frames without a key or an angle of their own are
    /// left out, and there need not be a projection yet.
    ///
    /// # Errors
    /// As [`Self::open`]; also where a writer has half-written what is read, so that it is worth another try.
    pub fn open_growing(path: &Path, options: &ScanOptions) -> Result<Self, ScanError> {
        Self::open_as(path, options, true)
    }

    fn open_as(path: &Path, options: &ScanOptions, growing: bool) -> Result<Self, ScanError> {
        let source = Opened::open(path, growing)?;
        let mut parts = source.parts(options.data.as_deref())?;
        let mut projections = parts.positions(Role::Projection);
        if projections.is_empty() && !growing {
            return Err(ScanError::no_frames(path, "expected projections, found none"));
        }
        if parts.frames.is_empty() {
            return Err(ScanError::no_frames(path, "expected frames, found none yet"));
        }
        let mut table = match &options.angles {
            Some(place) => Some(source.angles(place)?),
            None => parts.angles.take(),
        };
        if growing && let Some(table) = &mut table {
            let known = table.cut_to(parts.frames.len(), &projections);
            parts.frames.truncate(known);
            projections.retain(|&at| at < known);
            table.cut_to(known, &projections);
        }
        let mut angles = vec![None; parts.frames.len()];
        let of_projections = match table {
            Some(table) => table.degrees_of(&projections, parts.frames.len(), &mut parts.warnings)?,
            None if growing => {
                parts.warnings.push("no angles are stored".to_owned());
                Vec::new()
            }
            None => {
                let count = projections.len();
                parts.warnings.push(format!(
                    "no angles are stored: {count} projections are taken as even over 180 degrees"
                ));
                even_degrees(count)
            }
        };
        for (&at, angle) in projections.iter().zip(of_projections) {
            angles[at] = Some(angle);
        }
        let angles = angles;
        let mut entries: Vec<(Frame, Option<f64>)> = parts.frames.drain(..).zip(angles).collect();
        for (role, place) in [(Role::Flat, &options.flats), (Role::Dark, &options.darks)] {
            let Some(place) = place else { continue };
            let replacement = source.frames_at(place, role)?;
            let offset = parts.stacks.len();
            parts.stacks.extend(replacement.stacks);
            entries.retain(|(frame, _)| frame.role != role);
            let moved =
                replacement.frames.into_iter().map(|f| (Frame { stack: f.stack + offset, ..f }, None));
            entries.splice(0..0, moved);
        }
        Self::assemble(path, parts, entries)
    }

    fn assemble(path: &Path, parts: Parts, entries: Vec<(Frame, Option<f64>)>) -> Result<Self, ScanError> {
        let projection = entries.iter().find(|(frame, _)| frame.role == Role::Projection);
        let main = projection.map_or(0, |(frame, _)| frame.stack);
        let shape = parts.stacks[main].extent().shape;
        let mut element = parts.stacks[main].element();
        for (frame, _) in &entries {
            let stack = &parts.stacks[frame.stack];
            let found = stack.extent().shape;
            if found != shape {
                let what = frames_of(frame.role).to_owned();
                return Err(ScanError::Shape { path: path.to_owned(), what, expected: shape, found });
            }
            if stack.element() != element {
                element = ElementType::F32;
            }
        }
        let (frames, angles): (Vec<Frame>, Vec<Option<f64>>) = entries.into_iter().unzip();
        let listed =
            frames.iter().zip(angles).map(|(frame, angle_deg)| FrameEntry { role: frame.role, angle_deg });
        let info = ScanInfo {
            path: path.to_owned(),
            kind: parts.kind,
            format: Format::frame(element, shape.rows, shape.columns),
            frames: listed.collect(),
            pixel_size_m: parts.pixel_size_m,
            datasets: parts.datasets,
            metadata: parts.metadata,
            warnings: parts.warnings,
        };
        Ok(Self { info, stacks: parts.stacks, frames })
    }

    /// What is known of the scan.
    pub fn info(&self) -> &ScanInfo {
        &self.info
    }

    /// Memory that reading takes at most besides the buffers of its callers: compressed data are decoded in pieces
    /// that may hold parts of several frames.
    pub fn memory_bytes(&self) -> usize {
        self.stacks.iter().map(|stack| stack.memory_bytes()).sum()
    }

    /// Reads rows of a frame into `out`: row-major, in the machine's byte order, of the format's element type.
    ///
    /// # Errors
    /// [`ScanError::OutOfRange`] if the frame, the rows or the length of `out` do not fit the scan; else
    /// whatever is wrong with the file.
    pub fn read(&mut self, frame: usize, rows: Range<usize>, out: &mut [u8]) -> Result<(), ScanError> {
        let Format { element, shape, .. } = self.info.format;
        let fits = rows.start <= rows.end && rows.end <= shape.rows;
        match self.frames.get(frame) {
            Some(place) if fits && out.len() == rows.len() * shape.columns * element.size() => {
                self.stacks[place.stack].read(place.index, rows, element, out)
            }
            _ => Err(ScanError::OutOfRange {
                path: self.info.path.clone(),
                frames: self.frames.len(),
                rows: shape.rows,
                frame,
                first: rows.start,
                end: rows.end,
            }),
        }
    }
}

/// The datasets of an HDF5 file, whether or not it is a scan; none for other files.
///
/// # Errors
/// [`ScanError`] if the file cannot be read.
pub fn list_datasets(path: &Path) -> Result<Vec<DatasetInfo>, ScanError> {
    match Opened::open(path, false)? {
        Opened::Hdf5(tree) => Ok(tree.datasets()),
        Opened::Images(..) | Opened::Unknown(..) => Ok(Vec::new()),
    }
}

/// Extent of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    frames: usize,
    shape: Shape,
}

/// Frames of one shape and type, somewhere in a file or in many.
trait Stack: Send {
    fn extent(&self) -> Extent;

    /// The type in which the frames are given, unless `f32` is asked for.
    fn element(&self) -> ElementType;

    /// Memory that reading takes at most.
    fn memory_bytes(&self) -> usize;

    /// Reads rows of a frame, both within the extent, as `element`: the stack's own or `f32`.
    fn read(
        &mut self,
        frame: usize,
        rows: Range<usize>,
        element: ElementType,
        out: &mut [u8],
    ) -> Result<(), ScanError>;
}

/// Where a frame of a scan is, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    stack: usize,
    index: usize,
    role: Role,
}

/// A scan as its file describes it, before options are applied.
struct Parts {
    kind: ScanKind,
    stacks: Vec<Box<dyn Stack>>,
    frames: Vec<Frame>,
    angles: Option<AngleTable>,
    pixel_size_m: Option<f64>,
    datasets: Vec<DatasetInfo>,
    metadata: serde_json::Value,
    warnings: Vec<String>,
}

impl Parts {
    fn new(kind: ScanKind) -> Self {
        Self {
            kind,
            stacks: Vec::new(),
            frames: Vec::new(),
            angles: None,
            pixel_size_m: None,
            datasets: Vec::new(),
            metadata: serde_json::Value::Null,
            warnings: Vec::new(),
        }
    }

    fn of_stack(kind: ScanKind, stack: Box<dyn Stack>, role: Role) -> Self {
        let mut parts = Self::new(kind);
        parts.add_listed("", stack, role);
        parts
    }

    /// As [`Self::add`], and lists the stack among the datasets.
    fn add_listed(&mut self, name: &str, stack: Box<dyn Stack>, role: Role) {
        let Extent { frames, shape } = stack.extent();
        let extents = [frames, shape.rows, shape.columns];
        self.datasets.push(DatasetInfo {
            path: name.to_owned(),
            shape: extents.map(|extent| extent as u64).to_vec(),
            element: stack.element().name().to_owned(),
            filters: Vec::new(),
        });
        self.add(stack, role);
    }

    /// Appends the frames of a stack, all of one role.
    fn add(&mut self, stack: Box<dyn Stack>, role: Role) {
        let number = self.stacks.len();
        self.frames.extend((0..stack.extent().frames).map(|index| Frame { stack: number, index, role }));
        self.stacks.push(stack);
    }

    fn count(&self, role: Role) -> usize {
        self.frames.iter().filter(|frame| frame.role == role).count()
    }

    /// The positions of the frames of a role.
    fn positions(&self, role: Role) -> Vec<usize> {
        (0..self.frames.len()).filter(|&at| self.frames[at].role == role).collect()
    }
}
