//! The rotation axis: given, tilted, or found from opposite projections.

use std::f64::consts::{PI, TAU};

use beamstream_node::prelude::*;
use schemars::Schema;
use serde::Deserializer;

/// Where the rotation axis is, as a pipeline file says it.
#[derive(Debug, Clone, PartialEq)]
pub enum AxisSetting {
    /// Found from two projections half a turn apart.
    Auto,
    /// The same for all rows. Unit: detector columns, from the centre of the first.
    Px(f64),
    /// At the first and at the last detector row of the series, straight between. Unit: detector columns.
    Tilted([f64; 2]),
}

impl<'de> Deserialize<'de> for AxisSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Px(f64),
            Tilted([f64; 2]),
            Word(String),
        }
        let wrong = |found: &str| {
            serde::de::Error::custom(format!(
                "expected auto, a position in detector columns, or the positions at the first and last row, found {found}"
            ))
        };
        match Raw::deserialize(deserializer) {
            Ok(Raw::Px(px)) if px.is_finite() => Ok(Self::Px(px)),
            Ok(Raw::Tilted(px)) if px.iter().all(|px| px.is_finite()) => Ok(Self::Tilted(px)),
            Ok(Raw::Word(word)) if word == "auto" => Ok(Self::Auto),
            Ok(Raw::Word(word)) => Err(wrong(&format!("'{word}'"))),
            Ok(Raw::Px(_) | Raw::Tilted(_)) => Err(wrong("a number that is not finite")),
            Err(_untagged) => Err(wrong("something else")),
        }
    }
}

impl JsonSchema for AxisSetting {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AxisSetting".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "anyOf": [
                { "type": "string", "const": "auto" },
                { "type": "number" },
                { "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 }
            ]
        })
    }
}

impl AxisSetting {
    /// The axis of each of `rows` rows of the whole series from `first_row` on, in columns of the frames; `None` for
    /// `auto`.
    ///
    /// # Errors
    /// If it lies outside the detector.
    pub(crate) fn columns(
        &self,
        header: &SeriesHeader,
        first_row: usize,
        rows: usize,
    ) -> Result<Option<Vec<f64>>, String> {
        let [top, bottom] = match self {
            Self::Auto => return Ok(None),
            Self::Px(px) => [*px, *px],
            Self::Tilted(px) => *px,
        };
        let last = (header.pass.total_rows.max(2) - 1) as f64;
        let at = |row: usize| {
            let part = (header.pass.first_row + first_row + row) as f64 / last;
            header.window.column_from_detector(top + (bottom - top) * part)
        };
        let axes: Vec<f64> = (0..rows).map(at).collect();
        let columns = header.format.shape.columns as f64;
        match axes.iter().find(|axis| !(-0.5..=columns - 0.5).contains(*axis)) {
            None => Ok(Some(axes)),
            Some(&axis) => {
                let first = header.window.column_to_detector(-0.5);
                let end = header.window.column_to_detector(columns - 0.5);
                let found = header.window.column_to_detector(axis);
                Err(format!(
                    "rotation_axis: expected a position within the detector columns in use, {first} to {end}, found {found}"
                ))
            }
        }
    }
}

/// Farthest from half a turn that two projections may be to serve for finding the axis while a scan goes on.
const OPPOSITE_RAD: f64 = 0.3 * PI / 180.0;
/// The same once no better pair will come.
const NEARLY_OPPOSITE_RAD: f64 = 5.0 * PI / 180.0;

/// Looks for two projections half a turn apart among those that have come.
#[derive(Default)]
pub(crate) struct OppositeSearch {
    angles: Vec<f64>,
    best: Option<Pair>,
}

/// Two projections, by their place in the order of arrival.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pair {
    pub(crate) at_0: usize,
    pub(crate) at_180: usize,
    off_rad: f64,
}

impl OppositeSearch {
    /// Notes the angle of the next projection; gives a pair as soon as one is good enough.
    pub(crate) fn add(&mut self, angle_rad: f64) -> Option<Pair> {
        let new = self.angles.len();
        for (at, earlier) in self.angles.iter().enumerate() {
            let off_rad = ((angle_rad - earlier).rem_euclid(TAU) - PI).abs();
            if self.best.is_none_or(|best| off_rad < best.off_rad) {
                self.best = Some(Pair { at_0: at, at_180: new, off_rad });
            }
        }
        self.angles.push(angle_rad);
        self.best.filter(|best| best.off_rad <= OPPOSITE_RAD)
    }

    /// The best pair, now that no more projections come.
    pub(crate) fn last_resort(&self) -> Option<Pair> {
        self.best.filter(|best| best.off_rad <= NEARLY_OPPOSITE_RAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn positions_and_words_are_read() {
        assert_eq!(from_value::<AxisSetting>(json!("auto")).unwrap(), AxisSetting::Auto);
        assert_eq!(from_value::<AxisSetting>(json!(12)).unwrap(), AxisSetting::Px(12.0));
        assert_eq!(from_value::<AxisSetting>(json!([1.5, 2.5])).unwrap(), AxisSetting::Tilted([1.5, 2.5]));
        assert!(from_value::<AxisSetting>(json!("left")).unwrap_err().to_string().contains("'left'"));
    }

    #[test]
    fn a_tilted_axis_runs_straight_over_the_rows() {
        let header =
            SeriesHeader::frames(SeriesId { number: 1, ordinal: 0 }, Format::frame(ElementType::F32, 3, 9));
        let axes = AxisSetting::Tilted([4.0, 5.0]).columns(&header, 0, 3).unwrap().unwrap();
        assert_eq!(axes, [4.0, 4.5, 5.0]);
        let error = AxisSetting::Px(5000.0).columns(&header, 0, 3).unwrap_err();
        assert!(error.contains("5000"), "{error}");
    }

    #[test]
    fn opposite_projections_are_found_in_any_order_and_turn() {
        let mut search = OppositeSearch::default();
        let degrees = [0.0, 90.0, 45.0, 540.1];
        let pairs: Vec<_> = degrees.iter().map(|angle: &f64| search.add(angle.to_radians())).collect();
        assert_eq!(pairs[..3], [None, None, None]);
        assert_eq!(pairs[3].map(|pair| (pair.at_0, pair.at_180)), Some((0, 3)));
    }

    #[test]
    fn a_scan_that_stops_short_of_half_a_turn_gives_its_ends() {
        let mut search = OppositeSearch::default();
        for angle in 0..179 {
            assert_eq!(search.add(f64::from(angle).to_radians()), None);
        }
        assert_eq!(search.last_resort().map(|pair| (pair.at_0, pair.at_180)), Some((0, 178)));
    }
}
