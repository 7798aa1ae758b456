//! Where the real data are, and how recorded streams are read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The path of shared test data, for example `data("tomo/aps_tooth/tooth.h5")`.
///
/// Data are looked for in the folder that the environment variable `BEAMSTREAM_TEST_DATA` names, else in
/// `../shared/data` beside the workspace. `None`, and a line on standard error, if they are not there: a test then
/// returns, and whoever reads its output sees that it did not run.
#[allow(clippy::print_stderr, reason = "a test that is skipped must be seen")]
pub fn data(name: &str) -> Option<PathBuf> {
    let beside_workspace = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let root = std::env::var_os("BEAMSTREAM_TEST_DATA").map_or_else(beside_workspace, PathBuf::from);
    let path = root.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: no test data at {}", path.display());
    None
}

/// The messages of a recorded stream, each as its parts.
///
/// `folder` holds one file a part and a `manifest.json` that lists them, or one `.cbor` file a message.
///
/// # Errors
/// If a file cannot be read, or the manifest has another form.
pub fn recording(folder: &Path) -> io::Result<Vec<Vec<Vec<u8>>>> {
    let manifest = folder.join("manifest.json");
    if !manifest.exists() {
        let mut files = fs::read_dir(folder)?.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>()?;
        files.retain(|path| path.extension().is_some_and(|e| e == "cbor"));
        files.sort();
        return files.iter().map(|path| Ok(vec![fs::read(path)?])).collect();
    }
    let manifest: Value = serde_json::from_slice(&fs::read(manifest)?)?;
    let list = |value: &Value| {
        value.as_array().cloned().ok_or_else(|| io::Error::other("expected a list in the manifest"))
    };
    let part = |part: &Value| {
        let name = part["file"].as_str().ok_or_else(|| io::Error::other("expected the name of a file"))?;
        fs::read(folder.join(name))
    };
    list(&manifest["messages"])?.iter().map(|message| list(message)?.iter().map(part).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_messages_keep_their_parts() {
        let Some(folder) = data("stream_generated/v1/a_basic_u16_bslz4") else {
            return;
        };
        let messages = recording(&folder).unwrap();
        assert!(messages[0][0].starts_with(b"{"), "the first part of a header is JSON");
        assert_eq!(messages[1].len(), 4, "an image has four parts");
    }

    #[test]
    fn messages_of_one_part_need_no_manifest() {
        let Some(folder) = data("stream_generated/v2/d_u16_uncompressed") else {
            return;
        };
        let messages = recording(&folder).unwrap();
        assert!(messages.iter().all(|m| m.len() == 1 && m[0].starts_with(b"\xd9\xd9\xf7")));
    }
}
