//! The files that tell of a run, report and trace: they must not take the place of anybody's data.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::args::ResultArgs;
use crate::failure::Failure;

/// Refuses a report or a trace that would replace one of `others`, each other, or a file that is neither.
///
/// # Errors
/// [`Failure`] that names the option and the file.
pub(crate) fn check(results: &ResultArgs, others: &[(&str, &Path)]) -> Result<(), Failure> {
    let ours = [("--report", results.report.as_deref()), ("--trace", results.trace.as_deref())];
    let ours: Vec<(&str, &Path)> =
        ours.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    if let [(_, report), (_, trace)] = ours[..]
        && place(report) == place(trace)
    {
        let file = report.display();
        return Err(Failure::usage(format!("--report and --trace are the same file, {file}: give them two")));
    }
    for (option, path) in ours {
        let file = path.display();
        if let Some((what, _)) = others.iter().find(|(_, other)| place(path).starts_with(place(other))) {
            return Err(Failure::usage(format!(
                "{option} {file} would replace {what}: give it another file"
            )));
        }
        if path.is_dir() {
            return Err(Failure::usage(format!("{option} {file} is a folder: give it a file")));
        }
        if !results.overwrite && is_something_else(path) {
            let text = format!(
                "{option} {file} exists and is no report or trace: give another file, or --overwrite"
            );
            return Err(Failure::usage(text));
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)
                .map_err(|error| Failure::usage(format!("{option} {file} cannot be written: {error}")))?;
        }
    }
    Ok(())
}

/// Where a path leads, links followed as far as there is something.
fn place(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_no_folder| path.to_owned());
    if let Ok(place) = absolute.canonicalize() {
        return place;
    }
    let (folder, name) = (absolute.parent(), absolute.file_name());
    match (folder.and_then(|folder| folder.canonicalize().ok()), name) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => absolute,
    }
}

/// Whether a file holds anything but an object or a list of JSON, which reports and traces are.
fn is_something_else(path: &Path) -> bool {
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    let mut first = [0];
    is_file
        && !fs::File::open(path)
            .and_then(|mut file| file.read_exact(&mut first))
            .is_ok_and(|()| matches!(first, [b'{' | b'[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(report: Option<&Path>, trace: Option<&Path>, overwrite: bool) -> ResultArgs {
        ResultArgs { report: report.map(Path::to_owned), trace: trace.map(Path::to_owned), overwrite }
    }

    fn refusal(results: &ResultArgs, others: &[(&str, &Path)]) -> String {
        check(results, others).unwrap_err().lines().join("\n")
    }

    #[test]
    fn data_are_never_replaced_by_what_tells_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (scan, out, earlier) = (at("scan.nxs"), at("volume"), at("report.json"));
        fs::write(&scan, b"\x89HDF").unwrap();
        fs::write(&earlier, "{}").unwrap();
        let others = [("the scan", scan.as_path()), ("the volume", out.as_path())];
        let inside = out.join("slice_00000.tif");
        for path in [&scan, &out, &inside] {
            for overwrite in [false, true] {
                assert!(refusal(&results(Some(path), None, overwrite), &others).contains("--report"));
                assert!(refusal(&results(None, Some(path), overwrite), &others).contains("would replace"));
            }
        }
        assert!(refusal(&results(Some(&scan), None, false), &[]).contains("--overwrite"));
        assert!(refusal(&results(Some(&earlier), Some(&earlier), false), &others).contains("same file"));
        assert!(refusal(&results(Some(folder.path()), None, false), &[]).contains("folder"));
        assert!(check(&results(Some(&earlier), Some(&at("new/trace.json")), false), &others).is_ok());
        assert!(check(&results(Some(&scan), None, true), &[]).is_ok());
    }
}
