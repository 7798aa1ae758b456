//! What the JSON texts of an array and its group say.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::hdf5::{Number, NumberClass};
use crate::scan::{ScanError, npy};

/// The texts that make a folder a group or an array.
pub(super) const NAMES: [&str; 3] = ["zarr.json", ".zgroup", ".zarray"];
/// Longest text.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// An array `(frame, row, column)`; leading dimensions of extent 1 are left out.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) extents: [usize; 3],
    /// Edges of a chunk, within its shard if there are shards.
    pub(super) chunk: [usize; 3],
    pub(super) number: Number,
    /// The bytes of a pixel that was never written.
    pub(super) fill: Vec<u8>,
    pub(super) codecs: Vec<Codec>,
    pub(super) shard: Option<Shard>,
    /// Dimensions that are left out.
    leading: usize,
    /// What the names of chunks begin with, and what is between their numbers.
    prefix: &'static str,
    separator: String,
}

/// How bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Zstd,
    Gzip,
    Zlib,
    Blosc,
    /// Four bytes at the end.
    Checksum,
}

/// Files that hold several chunks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shard {
    /// Chunks along each dimension.
    pub(super) chunks: [usize; 3],
    pub(super) index_at_end: bool,
    /// Bytes of the checksum behind the index.
    pub(super) checksum_bytes: usize,
}

impl Array {
    /// The name of a chunk, or of a shard if there are shards, in the folder of the array.
    pub(super) fn key(&self, at: [usize; 3]) -> String {
        let numbers = std::iter::repeat_n(0, self.leading).chain(at).map(|number| number.to_string());
        let numbers: Vec<String> = numbers.collect();
        format!("{}{}", self.prefix, numbers.join(&self.separator))
    }
}

/// The folder of the array and what it is: the folder itself, or the first level of the group.
pub(super) fn find_array(folder: &Path) -> Result<(PathBuf, Array), ScanError> {
    if let Some(array) = read_array(folder)? {
        return Ok((folder.to_owned(), array));
    }
    let level = first_level(folder)?;
    // A path from a file must not lead elsewhere.
    let is_inside = Path::new(&level).components().all(|part| matches!(part, Component::Normal(_)));
    let place = folder.join(&level);
    match if is_inside { read_array(&place)? } else { None } {
        Some(array) => Ok((place, array)),
        None => Err(ScanError::no_frames(folder, format!("expected an array at {level}, found none"))),
    }
}

/// The path of the first level of a group: by OME-NGFF, else `0`.
fn first_level(folder: &Path) -> Result<String, ScanError> {
    let attributes = match read_json(&folder.join("zarr.json"))? {
        Some(group) => group["attributes"]["ome"].clone(),
        None => read_json(&folder.join(".zattrs"))?.unwrap_or_default(),
    };
    let level = attributes["multiscales"][0]["datasets"][0]["path"].as_str();
    Ok(level.unwrap_or("0").to_owned())
}

fn read_array(folder: &Path) -> Result<Option<Array>, ScanError> {
    let path = folder.join("zarr.json");
    if let Some(json) = read_json(&path)? {
        return if json["node_type"] == "array" { version_3(&path, &json).map(Some) } else { Ok(None) };
    }
    let path = folder.join(".zarray");
    read_json(&path)?.map(|json| version_2(&path, &json)).transpose()
}

/// A text of a folder, `None` if it is not there.
fn read_json(path: &Path) -> Result<Option<Value>, ScanError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ScanError::io(path)(error)),
    };
    let json = serde_json::from_reader(file.take(MAX_TEXT_BYTES));
    json.map(Some).map_err(|error| ScanError::no_frames(path, format!("expected JSON: {error}")))
}

fn version_2(path: &Path, json: &Value) -> Result<Array, ScanError> {
    let wrong = |key: &str| refused(path, key, &json[key]);
    let number = json["dtype"].as_str().and_then(npy::number).ok_or_else(|| wrong("dtype"))?;
    if json["order"] != "C" {
        return Err(wrong("order"));
    }
    if json["filters"].as_array().is_some_and(|filters| !filters.is_empty()) {
        return Err(wrong("filters"));
    }
    let codecs = match json["compressor"]["id"].as_str() {
        None if json["compressor"].is_null() => Vec::new(),
        Some("zstd") => vec![Codec::Zstd],
        Some("gzip") => vec![Codec::Gzip],
        Some("zlib") => vec![Codec::Zlib],
        Some("blosc") => vec![Codec::Blosc],
        _ => return Err(wrong("compressor")),
    };
    let (extents, leading) = three(path, "shape", &json["shape"])?;
    let (chunk, _) = three(path, "chunks", &json["chunks"])?;
    let separator = json["dimension_separator"].as_str().unwrap_or(".").to_owned();
    let fill = fill(number, &json["fill_value"]);
    Ok(Array { extents, chunk, number, fill, codecs, shard: None, leading, prefix: "", separator })
}

fn version_3(path: &Path, json: &Value) -> Result<Array, ScanError> {
    let wrong = |key: &str| refused(path, key, &json[key]);
    let mut number = json["data_type"].as_str().and_then(number).ok_or_else(|| wrong("data_type"))?;
    let (extents, leading) = three(path, "shape", &json["shape"])?;
    let (outer, _) = three(path, "chunk_shape", &json["chunk_grid"]["configuration"]["chunk_shape"])?;
    let encoding = &json["chunk_key_encoding"];
    let separator = encoding["configuration"]["separator"].as_str();
    let (prefix, separator) = match encoding["name"].as_str() {
        Some("v2") => ("", separator.unwrap_or(".")),
        _ if separator == Some(".") => ("c.", "."),
        _ => ("c/", "/"),
    };
    let (mut codecs, mut chunk, mut shard) = (&json["codecs"], outer, None);
    if codecs[0]["name"] == "sharding_indexed" {
        let settings = &codecs[0]["configuration"];
        (chunk, _) = three(path, "chunk_shape", &settings["chunk_shape"])?;
        if (0..3).any(|dim| chunk[dim] == 0 || outer[dim] % chunk[dim] != 0) {
            return Err(refused(path, "chunk_shape", &settings["chunk_shape"]));
        }
        let chunks = [0, 1, 2].map(|dim| outer[dim] / chunk[dim]);
        // The index is found by this number.
        if chunks
            .iter()
            .try_fold(1_usize, |product, &count| product.checked_mul(count))
            .is_none_or(|n| n > 1 << 24)
        {
            return Err(refused(path, "chunk_shape", &settings["chunk_shape"]));
        }
        let has_checksum = settings["index_codecs"][1]["name"] == "crc32c";
        let index_at_end = settings["index_location"] != "start";
        shard = Some(Shard { chunks, index_at_end, checksum_bytes: if has_checksum { 4 } else { 0 } });
        codecs = &settings["codecs"];
    }
    let mut compressors = Vec::new();
    for codec in codecs.as_array().ok_or_else(|| wrong("codecs"))? {
        match codec["name"].as_str() {
            Some("bytes") => number.big_endian = codec["configuration"]["endian"] == "big",
            Some("zstd") => compressors.push(Codec::Zstd),
            Some("gzip") => compressors.push(Codec::Gzip),
            Some("blosc") => compressors.push(Codec::Blosc),
            Some("crc32c") => compressors.push(Codec::Checksum),
            _ => return Err(refused(path, "codec", &codec["name"])),
        }
    }
    let (fill, separator) = (fill(number, &json["fill_value"]), separator.to_owned());
    Ok(Array { extents, chunk, number, fill, codecs: compressors, shard, leading, prefix, separator })
}

fn refused(path: &Path, key: &str, found: &Value) -> ScanError {
    ScanError::no_frames(path, format!("the {key} {found} cannot be read"))
}

/// The last three of a list of extents, those before being 1, and how many these are.
fn three(path: &Path, key: &str, list: &Value) -> Result<([usize; 3], usize), ScanError> {
    let extents = list.as_array().and_then(|list| {
        let extents = list.iter().map(|extent| usize::try_from(extent.as_u64()?).ok());
        extents.collect::<Option<Vec<_>>>()
    });
    let extents = extents.filter(|extents| extents.len() >= 2).ok_or_else(|| refused(path, key, list))?;
    let leading = extents.len().saturating_sub(3);
    if extents[..leading].iter().any(|&extent| extent != 1) {
        return Err(refused(path, key, list));
    }
    let last = &extents[leading..];
    Ok(match *last {
        [frames, rows, columns] => ([frames, rows, columns], leading),
        _ => return Err(refused(path, key, list)),
    })
}

/// A number by its name in version 3.
fn number(name: &str) -> Option<Number> {
    let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let bits: usize = digits.parse().ok()?;
    let class = match &name[..name.len() - digits.len()] {
        "uint" => NumberClass::Unsigned,
        "int" => NumberClass::Signed,
        "float" => NumberClass::Float,
        _ => return None,
    };
    let is_known =
        matches!((class, bits), (_, 16 | 32 | 64) | (NumberClass::Unsigned | NumberClass::Signed, 8));
    is_known.then_some(Number { size: bits / 8, class, big_endian: false })
}

/// The stored bytes of the fill value; texts as `NaN` and missing values give zeros or NaN.
fn fill(number: Number, value: &Value) -> Vec<u8> {
    let float = value.as_f64().unwrap_or(if value == "NaN" { f64::NAN } else { 0.0 });
    let mut bytes = match (number.class, number.size) {
        (NumberClass::Float, 2) => half::f16::from_f64(float).to_le_bytes().to_vec(),
        (NumberClass::Float, 4) => (float as f32).to_le_bytes().to_vec(),
        (NumberClass::Float, _) => float.to_le_bytes().to_vec(),
        (_, size) => {
            let whole = value.as_i64().unwrap_or_else(|| value.as_u64().unwrap_or(0) as i64);
            whole.to_le_bytes()[..size].to_vec()
        }
    };
    if number.big_endian {
        bytes.reverse();
    }
    bytes
}
