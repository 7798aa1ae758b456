//! The file: superblock, positioned reads, other files behind external links.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::bytes::Cursor;
use super::{Error, Result};

const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";
/// Longest user block that is looked behind for the signature.
const MAX_USER_BLOCK: u64 = 1 << 20;
/// No structure of metadata is longer.
const MAX_METADATA_BYTES: usize = 64 << 20;

/// Whether `file` begins with an HDF5 superblock, behind a user block perhaps.
pub(crate) fn has_signature(file: &std::fs::File) -> bool {
    find_signature(file).is_some()
}

/// "Disk Format: Level 0A": the superblock is at 0, 512, 1024, 2048 and so on.
fn find_signature(file: &std::fs::File) -> Option<u64> {
    let mut at = 0;
    while at <= MAX_USER_BLOCK {
        let mut found = [0; 8];
        file.read_exact_at(&mut found, at).ok()?;
        if found == SIGNATURE {
            return Some(at);
        }
        at = if at == 0 { 512 } else { 2 * at };
    }
    None
}

/// An open HDF5 file.
pub(crate) struct File {
    path: PathBuf,
    handle: std::fs::File,
    len: u64,
    base: u64,
    /// Bytes of an address.
    pub(super) offset_size: usize,
    /// Bytes of a length.
    pub(super) length_size: usize,
    /// Address of the root group's header.
    pub(super) root: u64,
    /// Files behind external links, by the name in the link; `None` if there is none.
    linked: Mutex<HashMap<PathBuf, Option<Arc<File>>>>,
}

impl File {
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>> {
        let file = std::fs::File::open(path)?;
        let len = file.metadata()?.len();
        let start = find_signature(&file).ok_or(Error::Malformed("the signature"))?;
        let mut block = vec![0; 128];
        let there = usize::try_from(len - start).unwrap_or(usize::MAX).min(block.len());
        block.truncate(there);
        file.read_exact_at(&mut block, start)?;

        let mut cursor = Cursor::new(&block, "the superblock");
        cursor.skip(SIGNATURE.len())?;
        let version = cursor.u8()?;
        let (offset_size, length_size, to_base) = match version {
            0 | 1 => {
                cursor.skip(4)?;
                let sizes = (usize::from(cursor.u8()?), usize::from(cursor.u8()?));
                (sizes.0, sizes.1, if version == 0 { 9 } else { 13 })
            }
            2 | 3 => (usize::from(cursor.u8()?), usize::from(cursor.u8()?), 1),
            _ => return Err(Error::Unsupported(format!("a superblock of version {version}"))),
        };
        if !matches!(offset_size, 2 | 4 | 8) || !matches!(length_size, 2 | 4 | 8) {
            return Err(Error::Malformed("the superblock"));
        }
        cursor.skip(to_base)?;
        let base = cursor.uint(offset_size)?;
        cursor.skip(offset_size)?;
        let end = cursor.uint(offset_size)?;
        // Versions 0 and 1 go on with the driver block and the name of the root's symbol table entry.
        cursor.skip(if version < 2 { 2 * offset_size } else { 0 })?;
        let root = cursor.uint(offset_size)?;
        if end > len {
            return Err(Error::CutOff { expected: end, found: len });
        }
        let linked = Mutex::default();
        Ok(Arc::new(Self {
            path: path.to_owned(),
            handle: file,
            len,
            base,
            offset_size,
            length_size,
            root,
            linked,
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether an address stands for "nothing there".
    pub(super) fn is_undefined(&self, address: u64) -> bool {
        address == u64::MAX >> (64 - 8 * self.offset_size)
    }

    /// `len` bytes of metadata at `address`.
    pub(super) fn read(&self, address: u64, len: usize, what: &'static str) -> Result<Vec<u8>> {
        if len > MAX_METADATA_BYTES {
            return Err(Error::Malformed(what));
        }
        let at = self.locate(address, len as u64, what)?;
        let mut bytes = vec![0; len];
        self.handle.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Up to `len` bytes of metadata at `address`, fewer at the end of the file.
    pub(super) fn read_up_to(&self, address: u64, len: usize, what: &'static str) -> Result<Vec<u8>> {
        let at = self.locate(address, 0, what)?;
        self.read(address, len.min(usize::try_from(self.len - at).unwrap_or(usize::MAX)), what)
    }

    /// Fills `out` with the bytes at `address`.
    pub(super) fn read_into(&self, address: u64, out: &mut [u8], what: &'static str) -> Result<()> {
        let at = self.locate(address, out.len() as u64, what)?;
        Ok(self.handle.read_exact_at(out, at)?)
    }

    /// The place in the file of `len` bytes at `address`, all of them within the file.
    pub(super) fn locate(&self, address: u64, len: u64, what: &'static str) -> Result<u64> {
        let at = self.base.checked_add(address);
        match at.and_then(|at| at.checked_add(len)) {
            Some(end) if end <= self.len => Ok(end - len),
            _ => Err(Error::Outside { what, address }),
        }
    }

    /// The file that an external link names: as it is, from this file's folder, or by its base name there.
    ///
    /// Beamline files hold absolute paths of the machine that wrote them, so the base name is tried last.
    pub(super) fn linked_file(&self, name: &Path) -> Option<Arc<Self>> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = linked.get(name) {
            return known.clone();
        }
        let folder = self.path.parent().unwrap_or_else(|| Path::new(""));
        let beside = name.file_name().map(|base| folder.join(base));
        let places = [Some(folder.join(name)), beside];
        let found = places.into_iter().flatten().find_map(|place| Self::open(&place).ok());
        linked.insert(name.to_owned(), found.clone());
        found
    }
}
