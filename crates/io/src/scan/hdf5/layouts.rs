//! Layouts of facilities: master files of DECTRIS, and the scans that BLISS writes at the ESRF.
//!
//! # Source
//! DECTRIS, "File Format of EIGER and PILATUS4 detectors"; ESRF, BLISS and the rules of nxtomomill.

use beamstream_core::Role;

use super::{
    AngleTable, Dataset, Frame, Node, NodeKind, Parts, ScanError, ScanKind, Stack, Tree, pixel_type,
};
use crate::hdf5::Error;

/// Where a master file links its data files.
const DATA_GROUP: &str = "/entry/data";
/// Where a master file has the angle of each frame.
const OMEGA: &str = "/entry/sample/goniometer/omega";
/// Rotation motors of tomography at the ESRF.
const MOTORS: [&str; 9] = ["hrsrot", "srot", "mhsrot", "hsrot", "rotm", "diffrz", "rot", "hrrz", "somega"];

impl Tree {
    /// The data files that a DECTRIS master file links, one after the other.
    pub(super) fn dectris(&self) -> Option<Result<Parts, ScanError>> {
        let is_data = |node: &&Node| {
            let number = node.name().strip_prefix("data_");
            node.parent() == DATA_GROUP
                && number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let mut files: Vec<&Node> = self.nodes.iter().filter(is_data).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        (!files.is_empty()).then(|| self.read_dectris(&files))
    }

    fn read_dectris(&self, files: &[&Node]) -> Result<Parts, ScanError> {
        let mut parts = Parts::new(ScanKind::Dectris);
        let there = files.iter().take_while(|node| node.dataset().is_some()).count();
        // A scan that was stopped lacks the last files; one in the middle is a loss.
        if there == 0 || files[there..].iter().any(|node| node.dataset().is_some()) {
            return Err(self.broken(&files[there].path));
        }
        for node in &files[..there] {
            parts.add(Box::new(self.stack(&node.path)?), Role::Projection);
        }
        if let [first, ..] = files[there..] {
            parts.warnings.push(format!(
                "{} of {} data files are missing, from {} on",
                files.len() - there,
                files.len(),
                first.path
            ));
        }
        if self.dataset(OMEGA).is_some() {
            let mut angles = self.angles(OMEGA)?;
            angles.units.get_or_insert_with(|| "deg".to_owned());
            // Angles are there for all frames that were planned.
            angles.values.truncate(parts.frames.len());
            parts.angles = Some(angles);
        }
        parts.pixel_size_m = self.length_m("/entry/instrument/detector/x_pixel_size");
        Ok(parts)
    }

    /// Scans `/1.1`, `/2.1` and so on of one file, each of frames of one kind that its title tells.
    pub(super) fn bliss(&self) -> Option<Result<Parts, ScanError>> {
        let number = |node: &Node| node.path.strip_prefix('/')?.strip_suffix(".1")?.parse::<u64>().ok();
        let is_group = |node: &&Node| matches!(node.kind, NodeKind::Group);
        let mut scans: Vec<(u64, &str)> = self
            .nodes
            .iter()
            .filter(is_group)
            .filter_map(|node| Some((number(node)?, node.path.as_str())))
            .filter(|(_, path)| self.node(&format!("{path}/measurement")).is_some())
            .collect();
        scans.sort_unstable();
        let is_tomography = scans.iter().any(|(_, path)| self.bliss_role(path) == Some(Role::Projection));
        is_tomography.then(|| self.read_bliss(&scans))
    }

    fn read_bliss(&self, scans: &[(u64, &str)]) -> Result<Parts, ScanError> {
        let mut parts = Parts::new(ScanKind::Bliss);
        let mut angles: Option<AngleTable> = None;
        let mut has_angles = true;
        for (_, scan) in scans {
            let (cameras, broken) = self.cameras(scan);
            let Some((camera, dataset)) = cameras.first() else {
                if let Some(broken) = broken {
                    return Err(self.broken(broken));
                }
                continue;
            };
            if cameras.len() > 1 {
                parts.warnings.push(format!("{scan} has several cameras: {camera} is taken"));
            }
            let Some(role) = self.bliss_role(scan) else {
                let title = self.text(&format!("{scan}/title")).unwrap_or_default();
                parts.warnings.push(format!("{scan} is left out: its title {title:?} tells no role"));
                continue;
            };
            let stack = self.stack_of(camera, dataset)?;
            let (number, frames) = (parts.stacks.len(), stack.extent().frames);
            parts.frames.extend((0..frames).map(|index| Frame { stack: number, index, role }));
            parts.stacks.push(Box::new(stack));
            if role != Role::Projection {
                continue;
            }
            let pixel_size = self.length_m(&format!("{scan}/technique/optic/sample_pixel_size"));
            parts.pixel_size_m = parts.pixel_size_m.or(pixel_size);
            let motor = MOTORS.iter().map(|motor| format!("{scan}/measurement/{motor}"));
            match motor.into_iter().find(|place| self.dataset(place).is_some()) {
                Some(place) => {
                    let mut table = self.angles(&place)?;
                    table.values.truncate(frames);
                    match &mut angles {
                        Some(all) => all.values.extend(table.values),
                        None => angles = Some(table),
                    }
                }
                None => has_angles = false,
            }
        }
        parts.angles = angles.filter(|_| has_angles);
        Ok(parts)
    }

    /// The stacks of frames of a scan with their paths, and a link that leads nowhere.
    fn cameras(&self, scan: &str) -> (Vec<(&str, &Dataset)>, Option<&str>) {
        let measured = format!("{scan}/measurement");
        let nodes = || self.nodes.iter().filter(|node| node.parent() == measured);
        let stacks = nodes().filter_map(|node| Some((node.path.as_str(), node.dataset()?)));
        let stacks = stacks.filter(|(_, data)| data.shape().len() == 3 && pixel_type(data).is_ok());
        let broken = nodes().find(|node| matches!(node.kind, NodeKind::Broken));
        (stacks.collect(), broken.map(|node| node.path.as_str()))
    }

    /// What the frames of a scan are for, by its category or its title.
    fn bliss_role(&self, scan: &str) -> Option<Role> {
        let category = self.text(&format!("{scan}/technique/scan_category"));
        let told = category.or_else(|| self.text(&format!("{scan}/title")))?.to_lowercase();
        let words = [
            ("dark", Role::Dark),
            ("flat", Role::Flat),
            ("reference", Role::Flat),
            ("static", Role::Invalid),
            ("alignment", Role::Invalid),
            ("projection", Role::Projection),
        ];
        words.into_iter().find(|(word, _)| told.contains(word)).map(|(_, role)| role)
    }

    fn text(&self, place: &str) -> Option<String> {
        self.dataset(place)?.first_text().ok().flatten()
    }

    /// Why an object that a walk found broken cannot be read.
    pub(super) fn broken(&self, place: &str) -> ScanError {
        let error = Dataset::at(&self.file, place).err().unwrap_or_else(|| Error::NotFound(place.to_owned()));
        ScanError::hdf5(self.path())(error)
    }
}
