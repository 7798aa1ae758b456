//! One frame: its number, its role, its angle, when it came.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a frame is for (NXtomo `image_key`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The sample in the beam (image key 0).
    Projection,
    /// The open beam without the sample (image key 1).
    Flat,
    /// No beam (image key 2).
    Dark,
    /// Not to be used (image key 3).
    Invalid,
}

impl Role {
    /// The role of an NXtomo image key; keys are stored as integers or floats, so they are rounded.
    pub fn from_image_key(key: f64) -> Option<Self> {
        match key.round() as i64 {
            0 => Some(Self::Projection),
            1 => Some(Self::Flat),
            2 => Some(Self::Dark),
            3 => Some(Self::Invalid),
            _ => None,
        }
    }

    /// The NXtomo image key of the role.
    pub const fn image_key(self) -> u8 {
        match self {
            Self::Projection => 0,
            Self::Flat => 1,
            Self::Dark => 2,
            Self::Invalid => 3,
        }
    }

    /// The name used in pipeline files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Projection => "projection",
            Self::Flat => "flat",
            Self::Dark => "dark",
            Self::Invalid => "invalid",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The identity of a frame within its series, ordered as the frames were taken.
///
/// Most detectors count all frames of a series with one counter. Some count darks, flats and
/// projections from zero each; `counter` tells these counters apart and is 0 where there is only one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FrameId {
    /// Which counter numbers the frame.
    pub counter: u8,
    /// The number by that counter.
    pub number: u64,
}

impl FrameId {
    /// A frame of a series that has one counter for all.
    pub const fn new(number: u64) -> Self {
        Self { counter: 0, number }
    }

    /// A frame of a series that counts each role from zero: darks, flats, projections in this order.
    pub const fn by_role(role: Role, number: u64) -> Self {
        let counter = match role {
            Role::Dark => 1,
            Role::Flat => 2,
            Role::Projection => 3,
            Role::Invalid => 4,
        };
        Self { counter, number }
    }
}

impl std::fmt::Display for FrameId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// When a frame was exposed and when it arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Timestamps {
    /// Start of the exposure by the detector's clock, in seconds; its zero is the detector's affair.
    pub detector_secs: Option<f64>,
    /// Arrival, in nanoseconds since the start of the run.
    pub received_ns: u64,
}

/// What travels with every block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockMeta {
    /// The frame; for slices the number is z, the index in the whole volume.
    pub frame: FrameId,
    /// What the frame is for. Slices have the role of what they were made from: `Projection`.
    pub role: Role,
    /// Number of the projection among the projections of its series, counted from 0; 0 for other roles.
    pub projection: u64,
    /// Rotation angle in radians, where it is known.
    pub angle_rad: Option<f64>,
    /// When it was exposed and received.
    pub time: Timestamps,
    /// The parameter epoch under which the block was made.
    pub epoch: u32,
    /// Whether this is a look at unfinished work, sent only to those who asked for it.
    pub preview: bool,
}

impl BlockMeta {
    /// Metadata of a frame with a role and nothing else known.
    pub fn new(frame: FrameId, role: Role) -> Self {
        Self {
            frame,
            role,
            projection: 0,
            angle_rad: None,
            time: Timestamps::default(),
            epoch: 0,
            preview: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_keys_may_be_floats() {
        assert_eq!(Role::from_image_key(0.9999), Some(Role::Flat));
        assert_eq!(Role::from_image_key(-1.0), None);
        for role in [Role::Projection, Role::Flat, Role::Dark, Role::Invalid] {
            assert_eq!(Role::from_image_key(f64::from(role.image_key())), Some(role));
        }
    }

    #[test]
    fn frames_counted_by_role_are_ordered_darks_flats_projections() {
        let dark = FrameId::by_role(Role::Dark, 7);
        let flat = FrameId::by_role(Role::Flat, 0);
        assert!(dark < flat && flat < FrameId::by_role(Role::Projection, 0));
    }
}
