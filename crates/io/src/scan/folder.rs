//! Folders of images: one frame a file, in the order of the numbers in their names.
//!
//! Which files are darks and flats is told by folders (`darks`, `flats`, `projections`) or by the first letters of
//! their names (`dark_0001.tif`, `refHST0000.edf`).

use std::ops::Range;
use std::path::{Path, PathBuf};

use beamstream_core::{ElementType, Role, Shape};

use super::tiff::TiffFile;
use super::{Extent, Parts, ScanError, ScanKind, Stack, edf};

/// Endings of the files that are frames.
const ENDINGS: [&str; 3] = ["tif", "tiff", "edf"];
/// How names of folders and files of a role begin.
const DARK_NAMES: [&str; 1] = ["dark"];
const FLAT_NAMES: [&str; 5] = ["flat", "ref", "white", "bright", "openbeam"];
const PROJECTION_NAMES: [&str; 5] = ["proj", "radio", "raw", "tomo", "sample"];

/// The scan in a folder.
pub(super) fn open(folder: &Path) -> Result<Parts, ScanError> {
    let mut files = numbered_files(folder)?;
    let mut roles: Vec<Role> = files.iter().map(|path| role_of(path).unwrap_or(Role::Projection)).collect();
    if files.is_empty() {
        (files, roles) = in_subfolders(folder)?;
    }
    if files.is_empty() {
        return Err(ScanError::no_frames(
            folder,
            "expected TIFF or EDF files, or folders of them named projections, flats and darks, found none",
        ));
    }
    // A folder of flats alone, named by an option, is not a scan without projections.
    if !roles.contains(&Role::Projection) {
        roles.fill(Role::Projection);
    }
    let mut parts = Parts::new(ScanKind::Folder);
    for role in [Role::Dark, Role::Flat, Role::Projection] {
        let of_role = files.iter().zip(&roles).filter(|(_, found)| **found == role);
        let of_role: Vec<PathBuf> = of_role.map(|(path, _)| path.clone()).collect();
        if !of_role.is_empty() {
            let name = if roles.contains(&Role::Dark) || roles.contains(&Role::Flat) {
                super::frames_of(role)
            } else {
                ""
            };
            parts.add_listed(name, Box::new(ImageFiles::open(of_role)?), role);
        }
    }
    Ok(parts)
}

/// The role that a name tells, if any.
fn role_of(path: &Path) -> Option<Role> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let begins = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    if begins(&DARK_NAMES) {
        Some(Role::Dark)
    } else if begins(&FLAT_NAMES) {
        Some(Role::Flat)
    } else {
        begins(&PROJECTION_NAMES).then_some(Role::Projection)
    }
}

/// The files of the folders within that are named for a role.
fn in_subfolders(folder: &Path) -> Result<(Vec<PathBuf>, Vec<Role>), ScanError> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(ScanError::io(folder))? {
        let path = entry.map_err(ScanError::io(folder))?.path();
        if path.is_dir() {
            folders.extend(role_of(&path).map(|role| (path, role)));
        }
    }
    folders.sort();
    let (mut files, mut roles) = (Vec::new(), Vec::new());
    for (path, role) in folders {
        files.extend(numbered_files(&path)?);
        roles.resize(files.len(), role);
    }
    Ok((files, roles))
}

/// Files with one frame each, opened as they are read; the first one tells shape and type of all.
struct ImageFiles {
    files: Vec<PathBuf>,
    shape: Shape,
    element: ElementType,
    open: (usize, Box<dyn Stack>),
}

impl ImageFiles {
    fn open(files: Vec<PathBuf>) -> Result<Self, ScanError> {
        let first = one_frame(&files[0])?;
        let (shape, element) = (first.extent().shape, first.element());
        Ok(Self { files, shape, element, open: (0, first) })
    }
}

/// A file with one frame.
fn one_frame(path: &Path) -> Result<Box<dyn Stack>, ScanError> {
    let is_edf = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("edf"));
    let stack: Box<dyn Stack> =
        if is_edf { Box::new(edf::open(path)?) } else { Box::new(TiffFile::open(path)?) };
    match stack.extent().frames {
        1 => Ok(stack),
        found => Err(ScanError::no_frames(
            path,
            format!(
                "expected one frame a file in a folder, found {found}: name the file instead of the folder"
            ),
        )),
    }
}

impl Stack for ImageFiles {
    fn extent(&self) -> Extent {
        Extent { frames: self.files.len(), shape: self.shape }
    }

    fn element(&self) -> ElementType {
        self.element
    }

    fn memory_bytes(&self) -> usize {
        self.open.1.memory_bytes()
    }

    fn read(
        &mut self,
        frame: usize,
        rows: Range<usize>,
        element: ElementType,
        out: &mut [u8],
    ) -> Result<(), ScanError> {
        if self.open.0 != frame {
            let path = &self.files[frame];
            let file = one_frame(path)?;
            let found = file.extent().shape;
            if found != self.shape || file.element() != self.element {
                let what = format!("a frame of {}, after frames of {},", file.element(), self.element);
                return Err(ScanError::Shape { path: path.clone(), what, expected: self.shape, found });
            }
            self.open = (frame, file);
        }
        self.open.1.read(0, rows, element, out)
    }
}

/// The images of a folder, sorted by the last number in their names, padded or not.
fn numbered_files(folder: &Path) -> Result<Vec<PathBuf>, ScanError> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(ScanError::io(folder))? {
        let path = entry.map_err(ScanError::io(folder))?.path();
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        // Files that begin with a dot are being copied, or left by some file systems beside each file.
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !is_hidden && ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str())) {
            files.push((sort_key(&path), path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// The name in front of the last number, and the number.
fn sort_key(path: &Path) -> (String, u64) {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let end = stem.rfind(|c: char| c.is_ascii_digit()).map_or(0, |at| at + 1);
    let start = stem[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + stem[at..].chars().next().map_or(1, char::len_utf8));
    let number = stem[start.min(end)..end].parse().unwrap_or(0);
    (stem[..start.min(end)].to_owned(), number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{Scan, ScanOptions};

    #[test]
    fn names_are_sorted_by_number() {
        let mut names = ["a_10.tif", "a_9.tif", "a_100.tif", "a_1.tif"].map(PathBuf::from);
        names.sort_by_key(|path| sort_key(path));
        assert_eq!(names.map(|n| n.display().to_string()), ["a_1.tif", "a_9.tif", "a_10.tif", "a_100.tif"]);
        assert_eq!(sort_key(Path::new("dläne.tif")), (String::new(), 0));
        assert_eq!(sort_key(Path::new("ü7ü.tif")), ("ü".to_owned(), 7));
    }

    fn write_edf(path: &Path, value: u8) {
        let mut bytes = b"{\nDataType = UnsignedByte ;\nDim_1 = 2 ;\nDim_2 = 1 ;\n".to_vec();
        bytes.resize(510, b' ');
        bytes.extend([b'}', b'\n', value, value]);
        std::fs::write(path, bytes).unwrap();
    }

    fn roles_and_values(folder: &Path) -> Vec<(Role, u8)> {
        let mut scan = Scan::open(folder, &ScanOptions::default()).unwrap();
        let roles: Vec<Role> = scan.info().frames.iter().map(|frame| frame.role).collect();
        let mut out = [0; 2];
        let mut value = |frame| {
            scan.read(frame, 0..1, &mut out).unwrap();
            out[0]
        };
        roles.into_iter().enumerate().map(|(frame, role)| (role, value(frame))).collect()
    }

    #[test]
    fn roles_come_from_names_or_folders() {
        let by_name = tempfile::tempdir().unwrap();
        for (name, value) in [("scan0010", 4), ("scan0002", 3), ("darkend0000", 1), ("refHST0000", 2)] {
            write_edf(&by_name.path().join(format!("{name}.edf")), value);
        }
        let expected = [(Role::Dark, 1), (Role::Flat, 2), (Role::Projection, 3), (Role::Projection, 4)];
        assert_eq!(roles_and_values(by_name.path()), expected);

        let by_folder = tempfile::tempdir().unwrap();
        for (name, value) in [("radios/1", 3), ("radios/2", 4), ("darks/1", 1), ("flats/1", 2)] {
            let path = by_folder.path().join(format!("{name}.edf"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            write_edf(&path, value);
        }
        assert_eq!(roles_and_values(by_folder.path()), expected);
        assert_eq!(roles_and_values(&by_folder.path().join("darks")), [(Role::Projection, 1)]);
    }

    #[test]
    fn a_cut_off_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        write_edf(&folder.path().join("a_1.edf"), 1);
        std::fs::write(folder.path().join("a_2.edf"), b"{\nDim_1 = 2 ;").unwrap();
        let mut scan = Scan::open(folder.path(), &ScanOptions::default()).unwrap();
        let text = scan.read(1, 0..1, &mut [0; 2]).unwrap_err().to_string();
        assert!(text.contains("a_2.edf"), "{text}");
    }
}
