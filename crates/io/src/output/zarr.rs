//! Zarr v3: a group that holds one array `0`, a chunk for each block, without compression.
//!
//! # Source
//! Zarr core specification, version 3.

use std::fs;
use std::path::PathBuf;

use beamstream_core::{ElementType, Format, FrameId};
use serde_json::{Value, json};

use super::stacked::Places;
use super::temporary::Temporary;
use super::{Output, OutputError, OutputSpec, PROGRAM};

/// The array within the group.
const ARRAY: &str = "0";

/// A folder of chunks.
pub(super) struct Zarr {
    temporary: Temporary,
    places: Places,
    format: Format,
    axes: [&'static str; 3],
}

impl Zarr {
    pub(super) fn create(spec: &OutputSpec) -> Result<Self, OutputError> {
        let temporary = Temporary::new(&spec.path, spec.overwrite, is_own_name)?;
        let zarr = Self { temporary, places: Places::new(spec), format: spec.format, axes: spec.axes() };
        fs::create_dir_all(zarr.chunks()).map_err(OutputError::io(&spec.path))?;
        Ok(zarr)
    }

    /// The folder of the chunks; below it is one folder a block.
    fn chunks(&self) -> PathBuf {
        self.temporary.path().join(ARRAY).join("c")
    }

    fn array_metadata(&self) -> Value {
        let Format { element, shape, .. } = self.format;
        let fill = match element {
            ElementType::F16 | ElementType::F32 => json!(0.0),
            _ => json!(0),
        };
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": [self.places.count(), shape.rows, shape.columns],
            "data_type": element.numpy_name(),
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [1, shape.rows, shape.columns] } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": fill,
            "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
            "attributes": {},
            "dimension_names": self.axes,
        })
    }

    /// Renames chunks that came out of order.
    fn sort(&self, from: &[usize]) -> std::io::Result<()> {
        let chunks = self.chunks();
        let aside = |place: usize| chunks.join(format!("moving-{place}"));
        let moving = || from.iter().enumerate().filter(|(to, from)| to != *from);
        for (_, &from) in moving() {
            fs::rename(chunks.join(from.to_string()), aside(from))?;
        }
        for (to, &from) in moving() {
            fs::rename(aside(from), chunks.join(to.to_string()))?;
        }
        Ok(())
    }
}

impl Output for Zarr {
    fn write(&mut self, id: FrameId, bytes: &[u8]) -> Result<(), OutputError> {
        let expected = self.format.bytes();
        let target = self.temporary.target();
        if bytes.len() != expected {
            return Err(OutputError::BlockSize { path: target.to_owned(), expected, found: bytes.len() });
        }
        let place = self.places.take(id).ok_or_else(|| self.places.out_of_range(target, id))?;
        let folder = self.chunks().join(place.to_string()).join("0");
        let write = || {
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("0"), bytes)
        };
        write().map_err(OutputError::io(target))
    }

    fn finish(self: Box<Self>, provenance: &Value) -> Result<(), OutputError> {
        let write = || {
            if let Some(from) = self.places.moves() {
                self.sort(&from)?;
            }
            let root = self.temporary.path();
            let group =
                json!({ "zarr_format": 3, "node_type": "group", "attributes": { PROGRAM: provenance } });
            fs::write(root.join(ARRAY).join("zarr.json"), format!("{:#}\n", self.array_metadata()))?;
            fs::write(root.join("zarr.json"), format!("{group:#}\n"))
        };
        write().map_err(OutputError::io(self.temporary.target()))?;
        self.temporary.commit()
    }
}

/// Whether an entry of the folder could be of an earlier output.
pub(super) fn is_own_name(name: &str) -> bool {
    name == "zarr.json" || name == ARRAY
}
