//! Compiled kernels on disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::{FNV_BASIS, fnv};

/// First line of a file of ours; the number is that of the layout.
const MAGIC: &[u8] = b"beamstream kernel 1\n";

/// A folder with one file per compiled kernel: the first line, a checksum, the code.
///
/// A file that is damaged or not ours is a miss and is written anew; a folder that cannot be written is no
/// error, only slower.
#[derive(Debug, Clone, Default)]
pub(crate) struct DiskCache {
    folder: Option<PathBuf>,
}

impl DiskCache {
    /// `beamstream/kernels` in `$XDG_CACHE_HOME`, or in `~/.cache`.
    pub(crate) fn of_user() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        Self { folder: root.map(|root| root.join("beamstream/kernels")) }
    }

    /// Where the files lie.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The code that is stored under this number.
    pub(crate) fn load(&self, number: u128) -> Option<Vec<u8>> {
        let mut bytes = std::fs::read(self.folder.as_deref()?.join(file_name(number))).ok()?;
        let checksum = bytes.strip_prefix(MAGIC)?.first_chunk::<16>().copied()?;
        let code = bytes.split_off(MAGIC.len() + checksum.len());
        (fnv(FNV_BASIS, &code).to_le_bytes() == checksum).then_some(code)
    }

    /// Stores code under this number, if that is possible.
    pub(crate) fn store(&self, number: u128, code: &[u8]) {
        if let Some(folder) = &self.folder {
            let checksum = fnv(FNV_BASIS, code).to_le_bytes();
            let bytes = [MAGIC, &checksum, code].concat();
            // Without a cache the kernel is compiled again next time: slower, and right.
            let _stored = replace(folder, &file_name(number), &bytes).is_ok();
        }
    }
}

fn file_name(number: u128) -> String {
    format!("{number:032x}.cubin")
}

/// Writes a file whole: another process sees the old one or the new one, never a part.
fn replace(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(folder)?;
    let unique = format!("{name}.{}.{}", std::process::id(), WRITES.fetch_add(1, Ordering::Relaxed));
    let temporary = folder.join(unique);
    let result =
        std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, folder.join(name)));
    if result.is_err() {
        let _removed = std::fs::remove_file(&temporary).is_ok();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_in(folder: &Path) -> DiskCache {
        DiskCache { folder: Some(folder.join("kernels")) }
    }

    #[test]
    fn what_was_stored_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache_in(folder.path());
        assert_eq!(cache.load(7), None);
        cache.store(7, b"code");
        cache.store(8, b"");
        assert_eq!(cache.load(7).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.load(8).as_deref(), Some(&b""[..]));
        assert_eq!(std::fs::read_dir(folder.path().join("kernels")).unwrap().count(), 2);
    }

    #[test]
    fn damaged_and_foreign_files_are_misses_and_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache_in(folder.path());
        cache.store(7, b"some code");
        let path = folder.path().join("kernels").join(file_name(7));
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for bytes in [&flipped[..], &whole[..whole.len() - 1], &whole[..20], b"a foreign file", b""] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(cache.load(7), None);
        }
        cache.store(7, b"some code");
        assert_eq!(cache.load(7).as_deref(), Some(&b"some code"[..]));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        // A file stands where the folder should be: not even root can write into it.
        std::fs::write(folder.path().join("kernels"), "").unwrap();
        let cache = cache_in(folder.path());
        cache.store(7, b"code");
        assert_eq!(cache.load(7), None);
        DiskCache::default().store(7, b"code");
    }
}
