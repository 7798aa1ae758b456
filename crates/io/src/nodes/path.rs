//! Paths of outputs: what stands for the series, the date and the node in them.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A path with `{series}`, `{date}` and `{node}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathTemplate(String);

impl PathTemplate {
    /// Checks a path as it stands in a pipeline file.
    ///
    /// # Errors
    /// A text that names the unknown word in braces.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("expected a path, found nothing".to_owned());
        }
        let mut rest = text;
        while let Some((_, behind)) = rest.split_once('{') {
            let (word, behind) =
                behind.split_once('}').ok_or_else(|| format!("'{text}' has a brace without its end"))?;
            if !matches!(word, "series" | "date" | "node") {
                return Err(format!(
                    "'{{{word}}}' in a path stands for nothing: known are {{series}}, {{date}}, {{node}}"
                ));
            }
            rest = behind;
        }
        Ok(Self(text.to_owned()))
    }

    /// The path for a series.
    pub(super) fn expand(&self, series: u64, date: &str, node: &str) -> PathBuf {
        let text =
            self.0.replace("{series}", &series.to_string()).replace("{date}", date).replace("{node}", node);
        PathBuf::from(text)
    }
}

/// The path itself, or for one that this run has written already the first of `NAME-2`, `NAME-3` … where nothing is.
pub(super) fn unused(path: &Path, written: &HashSet<PathBuf>) -> PathBuf {
    let numbered = |number: u64| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let ending = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
        path.with_file_name(format!("{stem}-{number}{ending}"))
    };
    let paths = std::iter::once(path.to_owned()).chain((2..).map(numbered));
    let is_free = |other: &PathBuf| other == path || other.symlink_metadata().is_err();
    paths.into_iter().find(|path| !written.contains(path) && is_free(path)).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_braces_are_replaced_or_refused() {
        let template = PathTemplate::new("out/{node}/{series}-{date}.h5").unwrap();
        assert_eq!(template.expand(7, "20260101-000000", "keep"), Path::new("out/keep/7-20260101-000000.h5"));
        assert!(PathTemplate::new("{serie}.h5").unwrap_err().contains("{series}"));
        assert!(PathTemplate::new("{series.h5").unwrap_err().contains("brace"));
        assert!(PathTemplate::new(" ").is_err());
    }

    #[test]
    fn paths_written_in_this_run_are_numbered() {
        let mut written = HashSet::new();
        for expected in ["a/v.h5", "a/v-2.h5", "a/v-3.h5"] {
            let path = unused(Path::new("a/v.h5"), &written);
            assert_eq!(path, Path::new(expected));
            written.insert(path);
        }
        let folder = tempfile::tempdir().unwrap();
        let (mine, foreign) = (folder.path().join("v.h5"), folder.path().join("v-2.h5"));
        std::fs::write(&foreign, "somebody else's").unwrap();
        assert_eq!(unused(&mine, &HashSet::from([mine.clone()])), folder.path().join("v-3.h5"));
        written.insert("slices".into());
        assert_eq!(unused(Path::new("slices"), &written), Path::new("slices-2"));
    }
}
