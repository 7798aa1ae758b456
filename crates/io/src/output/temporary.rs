//! A file or folder that appears under its final name only when it is whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::OutputError;

/// A path beside the target, moved there by [`Temporary::commit`] and removed by a drop without it.
pub(super) struct Temporary {
    target: PathBuf,
    path: PathBuf,
    replace: bool,
    committed: bool,
}

impl Temporary {
    /// Reserves the target: creates its parent folders and fails if it exists and may not be replaced.
    ///
    /// `is_part` tells which entries a folder of this kind may hold: others keep it from being replaced.
    pub(super) fn new(target: &Path, replace: bool, is_part: fn(&str) -> bool) -> Result<Self, OutputError> {
        check_target(target, replace, is_part)?;
        let name =
            target.file_name().ok_or_else(|| OutputError::io(target)(io::ErrorKind::InvalidInput.into()))?;
        let parent =
            target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(OutputError::io(target))?;
        let path = beside(parent, name, "partial");
        // What a killed process of the same number has left.
        remove(&path).map_err(OutputError::io(&path))?;
        Ok(Self { target: target.to_owned(), path, replace, committed: false })
    }

    /// Where to write.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where it will be, for errors.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Gives what was written its final name.
    pub(super) fn commit(mut self) -> Result<(), OutputError> {
        let failed = |error| OutputError::io(&self.target)(error);
        if self.replace {
            // A folder cannot be replaced by a rename, so the old one steps aside first.
            let parent = self.path.parent().unwrap_or(Path::new("."));
            let aside = beside(parent, self.target.file_name().unwrap_or_default(), "replaced");
            match fs::rename(&self.target, &aside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
            fs::rename(&self.path, &self.target).map_err(failed)?;
            remove(&aside).map_err(OutputError::io(&aside))?;
        } else {
            check_target(&self.target, false, |_| true)?;
            fs::rename(&self.path, &self.target).map_err(failed)?;
        }
        self.committed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.committed
            && let Err(error) = remove(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "a partial output could not be removed");
        }
    }
}

/// `.NAME.WORD-PID`: hidden, and told apart from those of other processes.
fn beside(parent: &Path, name: &std::ffi::OsStr, word: &str) -> PathBuf {
    parent.join(format!(".{}.{word}-{}", name.to_string_lossy(), std::process::id()))
}

/// Whether something may be written at `target`. An empty folder counts as nothing.
pub(super) fn check_target(
    target: &Path,
    replace: bool,
    is_part: fn(&str) -> bool,
) -> Result<(), OutputError> {
    let entries = match fs::read_dir(target) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // It is a file, or lies below one: the latter shows when parents are created.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let is_file = fs::symlink_metadata(target).is_ok();
            return if is_file && !replace {
                Err(OutputError::Exists { path: target.to_owned() })
            } else {
                Ok(())
            };
        }
        Err(error) => return Err(OutputError::io(target)(error)),
    };
    for entry in entries {
        if !replace {
            return Err(OutputError::Exists { path: target.to_owned() });
        }
        let other = entry.map_err(OutputError::io(target))?.file_name().to_string_lossy().into_owned();
        if !is_part(&other) {
            return Err(OutputError::ForeignFolder { path: target.to_owned(), other });
        }
    }
    Ok(())
}

/// Removes a file or folder; nothing there is fine.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_stays_of_what_was_not_committed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("deep/er/v.h5");
        let temporary = Temporary::new(&target, false, |_| true).unwrap();
        fs::write(temporary.path(), b"half").unwrap();
        drop(temporary);
        assert!(entries(target.parent().unwrap()).is_empty());
    }

    #[test]
    fn files_and_folders_are_replaced_only_if_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("v.h5");
        fs::write(&file, b"precious").unwrap();
        let error = Temporary::new(&file, false, |_| true).err().unwrap().to_string();
        assert!(error.contains("v.h5") && error.contains("--overwrite"), "{error}");
        let temporary = Temporary::new(&file, true, |_| true).unwrap();
        fs::write(temporary.path(), b"new").unwrap();
        temporary.commit().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");

        let slices = folder.path().join("slices");
        fs::create_dir(&slices).unwrap();
        fs::write(slices.join("thesis.doc"), b"").unwrap();
        assert!(matches!(Temporary::new(&slices, false, |_| true), Err(OutputError::Exists { .. })));
        let foreign = Temporary::new(&slices, true, |name| name.starts_with("slice_"));
        assert!(matches!(foreign, Err(OutputError::ForeignFolder { other, .. }) if other == "thesis.doc"));
        assert_eq!(entries(folder.path()), ["slices", "v.h5"]);
    }

    #[test]
    fn an_empty_folder_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        fs::create_dir(&target).unwrap();
        let temporary = Temporary::new(&target, false, |_| true).unwrap();
        fs::create_dir(temporary.path()).unwrap();
        fs::write(temporary.path().join("slice"), b"").unwrap();
        temporary.commit().unwrap();
        assert_eq!(entries(&target), ["slice"]);
    }

    #[test]
    fn a_file_where_a_folder_should_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file.txt"), b"").unwrap();
        let error = Temporary::new(&folder.path().join("file.txt/v.h5"), false, |_| true).err().unwrap();
        assert!(error.to_string().contains("file.txt"), "{error}");
    }
}
