//! Scans in HDF5 files: NXtomo, DXchange, layouts of facilities, or frames at any path.
//!
//! # Source
//! NeXus application definition NXtomo; F. De Carlo et al., "Scientific data exchange", J. Synchrotron Rad. 21
//! (2014), doi:10.1107/S160057751401604X.

mod layouts;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use beamstream_core::{ElementType, Role, Shape};
use serde_json::{Map, Value};

use super::angles::AngleTable;
use super::pixels::{convert, element_type, is_native_but_for_order, swap_to_native};
use super::{DatasetInfo, Extent, Frame, MAX_FRAME_BYTES, MAX_FRAMES, Parts, ScanError, ScanKind, Stack};
use crate::hdf5::{Dataset, Datatype, File, Frames, Node, NodeKind, Number, pixel_type, walk};

/// Most scalar values of a file that are kept as metadata.
const MAX_METADATA: usize = 400;
/// Longest text that is kept.
const MAX_TEXT: usize = 2000;

/// A three-dimensional dataset as a stack of frames.
pub(super) struct Hdf5Stack {
    path: std::path::PathBuf,
    frames: Frames,
    number: Number,
    stored: Vec<u8>,
}

impl Hdf5Stack {
    fn open(path: &Path, place: &str, dataset: &Dataset, growing: bool) -> Result<Self, ScanError> {
        let number = pixel_type(dataset).map_err(ScanError::hdf5(path))?;
        let mut frames = Frames::open(dataset).map_err(ScanError::hdf5(path))?;
        if growing {
            frames.count = frames.written();
        }
        let shape = Shape::new(frames.rows, frames.columns);
        let bytes = shape.checked_len().and_then(|len| len.checked_mul(number.size));
        if shape.is_empty()
            || (frames.count == 0 && !growing)
            || frames.count > MAX_FRAMES
            || bytes.is_none_or(|b| b > MAX_FRAME_BYTES)
        {
            let what = format!("{} frames of {shape} at {place} cannot be read", frames.count);
            return Err(ScanError::no_frames(path, what));
        }
        Ok(Self { path: path.to_owned(), frames, number, stored: Vec::new() })
    }
}

impl Stack for Hdf5Stack {
    fn extent(&self) -> Extent {
        Extent { frames: self.frames.count, shape: Shape::new(self.frames.rows, self.frames.columns) }
    }

    fn element(&self) -> ElementType {
        element_type(self.number)
    }

    fn memory_bytes(&self) -> usize {
        self.frames.cache_bytes()
    }

    fn read(
        &mut self,
        frame: usize,
        rows: Range<usize>,
        element: ElementType,
        out: &mut [u8],
    ) -> Result<(), ScanError> {
        if is_native_but_for_order(self.number, element) {
            self.frames.read(frame, rows, out).map_err(ScanError::hdf5(&self.path))?;
            swap_to_native(self.number, out);
        } else {
            self.stored.resize(out.len() / element.size() * self.number.size, 0);
            self.frames.read(frame, rows, &mut self.stored).map_err(ScanError::hdf5(&self.path))?;
            convert(self.number, &self.stored, element, out);
        }
        Ok(())
    }
}

/// All objects of a file by their paths.
pub(super) struct Tree {
    file: Arc<File>,
    nodes: Vec<Node>,
    by_path: HashMap<String, usize>,
    /// Whether the file is being written: what is not there yet is left out.
    growing: bool,
}

impl Tree {
    pub(super) fn open(path: &Path, growing: bool) -> Result<Self, ScanError> {
        let file = File::open(path).map_err(ScanError::hdf5(path))?;
        let nodes = walk(&file).map_err(ScanError::hdf5(path))?;
        let by_path = nodes.iter().enumerate().map(|(at, node)| (node.path.clone(), at)).collect();
        Ok(Self { file, nodes, by_path, growing })
    }

    fn stack_of(&self, place: &str, dataset: &Dataset) -> Result<Hdf5Stack, ScanError> {
        Hdf5Stack::open(self.path(), place, dataset, self.growing)
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    fn node(&self, path: &str) -> Option<&Node> {
        self.by_path.get(path).map(|&at| &self.nodes[at])
    }

    fn dataset(&self, path: &str) -> Option<&Dataset> {
        self.node(path).and_then(Node::dataset)
    }

    /// All datasets with shape and type.
    pub(super) fn datasets(&self) -> Vec<DatasetInfo> {
        let listed = self.nodes.iter().filter_map(|node| {
            let dataset = node.dataset()?;
            let filters = dataset.filters.iter().map(crate::hdf5::Filter::label).collect();
            Some(DatasetInfo {
                path: node.path.clone(),
                shape: dataset.shape().to_vec(),
                element: dataset.datatype.name(),
                filters,
            })
        });
        listed.collect()
    }

    /// Scalar numbers and texts, for provenance.
    fn metadata(&self) -> Value {
        let mut found = Map::new();
        for node in &self.nodes {
            let Some(dataset) = node.dataset().filter(|d| d.checked_len() == Some(1)) else {
                continue;
            };
            let value = match dataset.datatype {
                Datatype::Number(_) => {
                    dataset.numbers().ok().and_then(|values| values.first().map(|v| Value::from(*v)))
                }
                _ => {
                    dataset.first_text().ok().flatten().filter(|text| text.len() <= MAX_TEXT).map(Value::from)
                }
            };
            if let Some(value) = value {
                found.insert(node.path.trim_start_matches('/').to_owned(), value);
            }
            if found.len() >= MAX_METADATA {
                break;
            }
        }
        Value::Object(found)
    }

    /// The dataset that an option names: among the known ones, or anywhere that its path leads.
    pub(super) fn stack(&self, place: &str) -> Result<Hdf5Stack, ScanError> {
        let path = self.path();
        let place = if place.starts_with('/') { place.to_owned() } else { format!("/{place}") };
        match self.dataset(&place) {
            Some(dataset) => self.stack_of(&place, dataset),
            None => self.stack_of(&place, &Dataset::at(&self.file, &place).map_err(ScanError::hdf5(path))?),
        }
    }

    /// Whether an option can mean something inside of this file.
    pub(super) fn has(&self, place: &str) -> bool {
        let place = if place.starts_with('/') { place.to_owned() } else { format!("/{place}") };
        self.dataset(&place).is_some() || Dataset::at(&self.file, &place).is_ok()
    }

    /// The table of angles at a path.
    pub(super) fn angles(&self, place: &str) -> Result<AngleTable, ScanError> {
        let path = self.path();
        let place = if place.starts_with('/') { place.to_owned() } else { format!("/{place}") };
        let found;
        let dataset = if let Some(dataset) = self.dataset(&place) {
            dataset
        } else {
            found = Dataset::at(&self.file, &place).map_err(ScanError::hdf5(path))?;
            &found
        };
        let values = dataset.numbers().map_err(ScanError::hdf5(path))?;
        Ok(AngleTable::new(path, place, values, dataset.units.clone()))
    }

    /// The scan in this file; `data` names the dataset of its frames if it is not where it should be.
    ///
    /// # Errors
    /// [`ScanError::NoLayout`] if it is of no known layout and `data` is `None`.
    pub(super) fn parts(&self, data: Option<&str>) -> Result<Parts, ScanError> {
        let mut parts = match data {
            Some(place) => self.by_path(place)?,
            None => match self
                .nxtomo()
                .or_else(|| self.dxchange())
                .or_else(|| self.dectris())
                .or_else(|| self.bliss())
            {
                Some(found) => found?,
                None => self.by_path(&self.only_stack()?)?,
            },
        };
        parts.datasets = self.datasets();
        parts.metadata = self.metadata();
        Ok(parts)
    }

    /// Frames without any mark of what they are.
    fn by_path(&self, place: &str) -> Result<Parts, ScanError> {
        let stack = self.stack(place)?;
        // The keys and angles of the file go with other frames of the same number too, such as a copy.
        if let Some(Ok(mut parts)) = self.nxtomo()
            && parts.frames.len() == stack.extent().frames
        {
            parts.stacks = vec![Box::new(stack)];
            return Ok(parts);
        }
        Ok(Parts::of_stack(ScanKind::Hdf5, Box::new(stack), Role::Projection))
    }

    /// The path of the only dataset that can hold frames.
    fn only_stack(&self) -> Result<String, ScanError> {
        let is_stack = |d: &Dataset| {
            d.shape().len() == 3 && pixel_type(d).is_ok() && d.checked_len().is_some_and(|len| len > 0)
        };
        let stacks: Vec<&str> = self
            .nodes
            .iter()
            .filter(|n| n.dataset().is_some_and(is_stack))
            .map(|n| n.path.as_str())
            .collect();
        match stacks[..] {
            [only] => Ok(only.to_owned()),
            [] => Err(ScanError::no_frames(
                self.path(),
                "expected a three-dimensional dataset of frames, found none",
            )),
            _ => Err(ScanError::NoLayout { path: self.path().to_owned(), candidates: stacks.join(", ") }),
        }
    }

    /// DXchange: one dataset for each role.
    fn dxchange(&self) -> Option<Result<Parts, ScanError>> {
        self.node("/exchange/data").map(|_| self.read_dxchange())
    }

    fn read_dxchange(&self) -> Result<Parts, ScanError> {
        let mut parts = Parts::new(ScanKind::DxChange);
        for (place, role) in [
            ("/exchange/data_dark", Role::Dark),
            ("/exchange/data_white", Role::Flat),
            ("/exchange/data", Role::Projection),
        ] {
            if self.node(place).is_some() {
                parts.add(Box::new(self.stack(place)?), role);
            }
        }
        if self.node("/exchange/theta").is_some() {
            parts.angles = Some(self.angles("/exchange/theta")?);
        }
        Ok(parts)
    }

    /// NXtomo: one dataset for all frames, and a key that tells what each of them is.
    ///
    /// The entry is known by its definition, and if that is missing by a key that lies beside frames.
    fn nxtomo(&self) -> Option<Result<Parts, ScanError>> {
        let is_definition = |node: &&Node| {
            let text = node.dataset().filter(|_| node.name() == "definition").map(Dataset::first_text);
            matches!(text, Some(Ok(Some(text))) if text == "NXtomo")
        };
        let entry = self.nodes.iter().find(is_definition).map(|node| format!("{}/", node.parent()));
        let within = entry.clone().unwrap_or_else(|| "/".to_owned());
        let detectors =
            self.nodes.iter().filter(|n| n.path.starts_with(&within) && n.name().starts_with("image_key"));
        let mut detectors: Vec<String> = detectors.map(|node| node.parent().to_owned()).collect();
        detectors.dedup();
        if entry.is_some() {
            // Frames without a key are all projections.
            detectors.push(format!("{within}instrument/detector"));
        }
        let mut broken = None;
        for detector in detectors {
            match self.node(&format!("{detector}/data")).map(|node| &node.kind) {
                Some(NodeKind::Dataset(data)) if data.shape().len() == 3 => {
                    return Some(self.read_nxtomo(&within, &detector, data));
                }
                Some(NodeKind::Broken) => broken = broken.or(Some(format!("{detector}/data"))),
                _ => {}
            }
        }
        Some(Err(self.broken(&broken?)))
    }

    fn read_nxtomo(&self, entry: &str, detector: &str, data: &Dataset) -> Result<Parts, ScanError> {
        let place = format!("{detector}/data");
        let stack = self.stack_of(&place, data)?;
        let roles = self.roles(detector, stack.extent().frames)?;
        let count = roles.len();
        let mut parts = Parts::new(ScanKind::NxTomo);
        parts.stacks.push(Box::new(stack));
        parts.frames =
            roles.into_iter().enumerate().map(|(index, role)| Frame { stack: 0, index, role }).collect();
        parts.pixel_size_m = self.length_m(&format!("{detector}/x_pixel_size"));
        let projections = parts.count(Role::Projection);
        if let Some(place) = self.angle_place(entry, count, projections) {
            if !place.ends_with("rotation_angle") {
                parts.warnings.push(format!("the angles are taken from {place}"));
            }
            let mut angles = self.angles(&place)?;
            angles.of_all_frames = angles.values.len() >= count;
            parts.angles = Some(angles);
        }
        Ok(parts)
    }

    /// The role of each frame by its key; ESRF files mark alignment frames with -1 in a key of their own.
    fn roles(&self, detector: &str, count: usize) -> Result<Vec<Role>, ScanError> {
        let key = |name: &str| {
            let values = self.dataset(&format!("{detector}/{name}")).map(Dataset::numbers);
            values.transpose().map_err(ScanError::hdf5(self.path()))
        };
        let (keys, control) = (key("image_key")?, key("image_key_control")?);
        let mut count = count;
        if self.growing {
            // Keys may be ahead of the frames, or come after them.
            count = [&keys, &control].into_iter().flatten().fold(count, |count, keys| count.min(keys.len()));
        }
        for found in [&keys, &control].into_iter().flatten() {
            if found.len() != count && !self.growing {
                let what = format!("{detector} holds {} image keys for {count} frames", found.len());
                return Err(ScanError::no_frames(self.path(), what));
            }
        }
        let main = keys.as_ref().or(control.as_ref());
        let role = |at: usize| {
            let is_alignment = control.as_ref().is_some_and(|control| control[at].round() < 0.0);
            let role = main.map_or(Some(Role::Projection), |keys| Role::from_image_key(keys[at]));
            role.filter(|_| !is_alignment).unwrap_or(Role::Invalid)
        };
        Ok((0..count).map(role).collect())
    }

    /// Where the angles are: where NXtomo has them, else a table of fitting length with a fitting name.
    fn angle_place(&self, entry: &str, frames: usize, projections: usize) -> Option<String> {
        let usual = ["sample/rotation_angle", "data/rotation_angle"].map(|place| format!("{entry}{place}"));
        if let Some(place) = usual.into_iter().find(|place| self.dataset(place).is_some()) {
            return Some(place);
        }
        let fits = |node: &&Node| {
            let Some(dataset) = node.dataset() else {
                return false;
            };
            let is_number = matches!(dataset.datatype, Datatype::Number(_));
            is_number && matches!(dataset.shape(), [n] if *n == frames as u64 || *n == projections as u64)
        };
        ["rotation_angle", "theta", "angle", "rot"].into_iter().find_map(|word| {
            let named = |node: &&Node| node.name().to_lowercase().contains(word);
            self.nodes.iter().filter(fits).find(named).map(|node| node.path.clone())
        })
    }

    /// A length in metres. Some files hold texts where lengths belong; these give none.
    fn length_m(&self, place: &str) -> Option<f64> {
        let dataset = self.dataset(place)?;
        let value = dataset.numbers().ok()?.first().copied().filter(|v| v.is_finite() && *v > 0.0)?;
        let factor = match dataset.units.as_deref().unwrap_or("m").trim().to_lowercase().as_str() {
            "m" | "meter" | "metre" | "" => 1.0,
            "cm" => 1e-2,
            "mm" | "millimeter" | "millimetre" => 1e-3,
            "um" | "µm" | "μm" | "micron" | "microns" | "micrometer" | "micrometre" => 1e-6,
            "nm" => 1e-9,
            _ => return None,
        };
        Some(value * factor)
    }
}
