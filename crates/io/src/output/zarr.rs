//! OME-Zarr 0.5 in Zarr v3: a group of arrays `0`, `1`, …, each half the size of the one before; a chunk for each
//! slice, without compression. Frames are the array `0` alone, which is no image of OME's.
//!
//! A slice of a smaller level is made as soon as the two that it is the mean of are there. These are read back from
//! their chunks, so memory does not depend on the size of the volume or on the order of its slices.
//!
//! # Source
//! Zarr core specification, version 3; OME-NGFF specification, version 0.5.

use std::fs;
use std::io;
use std::path::PathBuf;

use beamstream_core::{ElementType, Format, FrameId};
use serde_json::{Value, json};

use super::levels;
use super::stacked::Places;
use super::temporary::Temporary;
use super::{Output, OutputError, OutputSpec, PROGRAM};

/// A folder of chunks.
pub(super) struct Zarr {
    temporary: Temporary,
    places: Places,
    axes: [&'static str; 3],
    /// One of a volume or more, the whole one first; one for frames.
    levels: Vec<Level>,
    is_volume: bool,
}

/// One array of the group.
struct Level {
    format: Format,
    /// Which slices are written; empty for frames.
    written: Vec<bool>,
}

impl Zarr {
    pub(super) fn create(spec: &OutputSpec) -> Result<Self, OutputError> {
        let is_volume = spec.is_volume() && spec.count.is_some();
        let extents = match spec.count.filter(|_| is_volume) {
            Some(count) => levels::extents(count, spec.format.shape),
            None => vec![(0, spec.format.shape)],
        };
        let levels = extents.into_iter().map(|(count, shape)| Level {
            format: Format { shape, ..spec.format },
            written: vec![false; count as usize],
        });
        let temporary = Temporary::new(&spec.path, spec.overwrite, is_own_name)?;
        let zarr = Self {
            temporary,
            places: Places::new(spec),
            axes: spec.axes(),
            levels: levels.collect(),
            is_volume,
        };
        for level in 0..zarr.levels.len() {
            fs::create_dir_all(zarr.chunks(level)).map_err(OutputError::io(&spec.path))?;
        }
        Ok(zarr)
    }

    /// The folder of the chunks of a level; below it is one folder a slice.
    fn chunks(&self, level: usize) -> PathBuf {
        self.temporary.path().join(level.to_string()).join("c")
    }

    fn chunk(&self, level: usize, place: u64) -> PathBuf {
        self.chunks(level).join(place.to_string()).join("0").join("0")
    }

    fn write_chunk(&self, level: usize, place: u64, bytes: &[u8]) -> io::Result<()> {
        let path = self.chunk(level, place);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, bytes)
    }

    /// Writes a slice of a volume, and those of smaller levels that it completes.
    fn write_slice(&mut self, place: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_chunk(0, place, bytes)?;
        self.levels[0].written[place as usize] = true;
        let mut place = place;
        let mut smaller: Option<Vec<u8>> = None;
        for level in 1..self.levels.len() {
            let above = &self.levels[level - 1];
            let other = place ^ 1;
            let slice = smaller.as_deref().unwrap_or(bytes);
            let mean = match above.written.get(other as usize) {
                Some(false) => return Ok(()),
                Some(true) => {
                    let other = fs::read(self.chunk(level - 1, other))?;
                    if other.len() != above.format.bytes() {
                        return Err(io::Error::other("a chunk was changed by somebody else"));
                    }
                    levels::mean_of(above.format, &[slice, &other])
                }
                None => levels::mean_of(above.format, &[slice]),
            };
            place /= 2;
            self.write_chunk(level, place, &mean)?;
            self.levels[level].written[place as usize] = true;
            smaller = Some(mean);
        }
        Ok(())
    }

    fn array_metadata(&self, level: &Level) -> Value {
        let Format { element, shape, .. } = level.format;
        let count = if self.is_volume { level.written.len() as u64 } else { self.places.count() };
        let fill = match element {
            ElementType::F16 | ElementType::F32 => json!(0.0),
            _ => json!(0),
        };
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": [count, shape.rows, shape.columns],
            "data_type": element.numpy_name(),
            "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [1, shape.rows, shape.columns] } },
            "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
            "fill_value": fill,
            "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
            "attributes": {},
            "dimension_names": self.axes,
        })
    }

    /// What OME's readers want to know: the axes, and place and size of the voxels of each level.
    ///
    /// Without a voxel size, voxels of the whole volume are of size 1.
    fn ome(&self, voxel_size_m: Option<f64>) -> Value {
        let voxel_um = voxel_size_m.map_or(1.0, |metres| metres * 1e6);
        let axes = self.axes.map(|name| match voxel_size_m {
            Some(_) => json!({ "name": name, "type": "space", "unit": "micrometer" }),
            None => json!({ "name": name, "type": "space" }),
        });
        let datasets = (0..self.levels.len()).map(|level| {
            let factor = 2_f64.powi(level as i32);
            // A mean lies in the middle of the voxels that it is made of.
            let shift = [(factor - 1.0) / 2.0 * voxel_um; 3];
            let scale = [factor * voxel_um; 3];
            json!({
                "path": level.to_string(),
                "coordinateTransformations": [
                    { "type": "scale", "scale": scale },
                    { "type": "translation", "translation": shift },
                ],
            })
        });
        json!({
            "version": "0.5",
            "multiscales": [{
                "name": "volume",
                "axes": axes,
                "datasets": datasets.collect::<Vec<_>>(),
                "type": "mean",
            }],
        })
    }

    /// Renames chunks that came out of order.
    fn sort(&self, from: &[usize]) -> io::Result<()> {
        let chunks = self.chunks(0);
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
        let expected = self.levels[0].format.bytes();
        let target = self.temporary.target().to_owned();
        if bytes.len() != expected {
            return Err(OutputError::BlockSize { path: target, expected, found: bytes.len() });
        }
        let place = self.places.take(id).ok_or_else(|| self.places.out_of_range(&target, id))?;
        let written =
            if self.is_volume { self.write_slice(place, bytes) } else { self.write_chunk(0, place, bytes) };
        written.map_err(OutputError::io(&target))
    }

    fn finish(self: Box<Self>, provenance: &Value) -> Result<(), OutputError> {
        let write = || {
            if let Some(from) = self.places.moves() {
                self.sort(&from)?;
            }
            let root = self.temporary.path();
            for (number, level) in self.levels.iter().enumerate() {
                let path = root.join(number.to_string()).join("zarr.json");
                fs::write(path, format!("{:#}\n", self.array_metadata(level)))?;
            }
            let mut attributes = json!({ PROGRAM: provenance });
            if self.is_volume {
                attributes["ome"] = self.ome(provenance["voxel_size_m"].as_f64());
            }
            let group = json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes });
            fs::write(root.join("zarr.json"), format!("{group:#}\n"))
        };
        write().map_err(OutputError::io(self.temporary.target()))?;
        self.temporary.commit()
    }
}

/// Whether an entry of the folder could be of an earlier output.
pub(super) fn is_own_name(name: &str) -> bool {
    name == "zarr.json" || name.bytes().all(|digit| digit.is_ascii_digit())
}
