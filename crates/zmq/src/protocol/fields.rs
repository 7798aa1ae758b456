//! Values of JSON headers, read by name and leniently: detectors differ in how they write numbers.

use beamstream_core::{AngleRule, ElementType, Role, Shape};
use serde_json::{Map, Value};

use super::DecodeError;
use super::error::quote;

/// A JSON object from a part, if it is one.
pub(crate) fn object(part: &[u8]) -> Option<Map<String, Value>> {
    match serde_json::from_slice(part) {
        Ok(Value::Object(map)) => Some(map),
        _ => None,
    }
}

/// The whole number behind `key`: an integer, a float without fraction, or decimal digits as a text.
pub(crate) fn whole(map: &Map<String, Value>, key: &'static str) -> Result<u64, DecodeError> {
    let value = map.get(key).unwrap_or(&Value::Null);
    as_whole(value).ok_or_else(|| wrong(key, "a whole number from 0", value))
}

/// The whole number of a value.
pub(crate) fn as_whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            // 2^53: up to there a float stands for one whole number.
            number.as_f64().filter(|v| v.fract() == 0.0 && (0.0..=9.007e15).contains(v)).map(|v| v as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The finite number of a value, also where it is written as a text.
pub(crate) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|v: &f64| v.is_finite())
}

/// The finite number behind `key`.
pub(crate) fn number(map: &Map<String, Value>, key: &str) -> Option<f64> {
    map.get(key).and_then(as_number)
}

/// The text behind `key`.
pub(crate) fn text<'a>(map: &'a Map<String, Value>, key: &'static str) -> Result<&'a str, DecodeError> {
    let value = map.get(key).unwrap_or(&Value::Null);
    value.as_str().ok_or_else(|| wrong(key, "a text", value))
}

/// The error for a value that is not what it should be.
pub(crate) fn wrong(key: &'static str, expected: &'static str, value: &Value) -> DecodeError {
    let found = if value.is_null() { "nothing".to_owned() } else { quote(&value.to_string()) };
    DecodeError::Value { key, expected, found }
}

/// Extents behind `shape`, two of them after leading ones are dropped.
pub(crate) fn extents(map: &Map<String, Value>) -> Result<[usize; 2], DecodeError> {
    let value = map.get("shape").unwrap_or(&Value::Null);
    let error = || wrong("shape", "two extents", value);
    let list = value.as_array().filter(|list| list.len() <= 4).ok_or_else(error)?;
    let all: Option<Vec<usize>> =
        list.iter().map(|v| as_whole(v).and_then(|n| usize::try_from(n).ok())).collect();
    match all.ok_or_else(error)?.as_slice() {
        [slow, fast] | [1, slow, fast] | [1, 1, slow, fast] => Ok([*slow, *fast]),
        _ => Err(error()),
    }
}

/// Rows and columns of a `shape` that is written slow axis first.
pub(crate) fn rows_columns(map: &Map<String, Value>) -> Result<Shape, DecodeError> {
    extents(map).map(|[rows, columns]| Shape::new(rows, columns))
}

/// Pixel type and byte order by name: `NumPy`'s names, its type strings such as `<u2`, and C's.
///
/// The byte order is `None` where the name has none; `true` is big-endian.
pub(crate) fn element(name: &str) -> Result<(ElementType, Option<bool>), DecodeError> {
    let (bare, big_endian) = match name.as_bytes().first() {
        Some(b'>') => (&name[1..], Some(true)),
        Some(b'<') => (&name[1..], Some(false)),
        Some(b'|' | b'=') => (&name[1..], None),
        _ => (name, None),
    };
    let element = match bare {
        "uint8" | "u1" | "ubyte" | "uchar" => ElementType::U8,
        "uint16" | "u2" | "ushort" => ElementType::U16,
        "uint32" | "u4" | "uint" => ElementType::U32,
        "int16" | "i2" | "short" => ElementType::I16,
        "int32" | "i4" | "int" => ElementType::I32,
        "float16" | "f2" | "half" => ElementType::F16,
        "float32" | "f4" | "float" | "single" => ElementType::F32,
        _ => {
            return Err(DecodeError::Unsupported { what: "pixel type", found: quote(name) });
        }
    };
    Ok((element, big_endian))
}

/// What a frame or series is for: `image_key` as in NXtomo, or `role` by name.
pub(crate) fn role(map: &Map<String, Value>) -> Option<Role> {
    if let Some(key) = number(map, "image_key") {
        return Role::from_image_key(key);
    }
    let name = map.get("role")?.as_str()?;
    [Role::Projection, Role::Flat, Role::Dark, Role::Invalid].into_iter().find(|role| role.name() == name)
}

/// Names under which senders put the rotation angle of a frame, in degrees; compared without case.
const ANGLE_KEYS: [&str; 5] = ["angle", "angle_deg", "rotation_angle", "theta", "omega"];

/// The rotation angle of a frame in radians.
pub(crate) fn angle_rad(map: &Map<String, Value>) -> Option<f64> {
    map.iter()
        .find(|(key, _)| ANGLE_KEYS.iter().any(|name| key.eq_ignore_ascii_case(name)))
        .and_then(|(_, value)| as_number(value))
        .map(f64::to_radians)
}

/// Rotation axes that carry the sample, the usual one first.
pub(crate) const AXES: [&str; 4] = ["omega", "phi", "chi", "kappa"];

/// The rule of the first axis that moves; `axis` gives start and increment in degrees.
pub(crate) fn moving_axis(axis: impl Fn(&str) -> Option<(f64, f64)>) -> Option<AngleRule> {
    AXES.iter()
        .filter_map(|name| axis(name))
        .find(|(_, increment)| *increment != 0.0)
        .map(|(start, increment)| AngleRule::from_degrees(start, increment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_read_as_senders_write_them() {
        assert_eq!(as_whole(&json!(7)), Some(7));
        assert_eq!(as_whole(&json!(7.0)), Some(7));
        assert_eq!(as_whole(&json!(" 7")), Some(7));
        for bad in [json!(-1), json!(1.5), json!("one"), json!(99_999_999_999_999_999_999.0), json!([1])] {
            assert_eq!(as_whole(&bad), None, "{bad}");
        }
        assert_eq!(as_number(&json!("Undefined")), None);
        assert_eq!(as_number(&json!("nan")), None);
    }

    #[test]
    fn pixel_types_have_many_names() {
        assert_eq!(element("<u2"), Ok((ElementType::U16, Some(false))));
        assert_eq!(element(">f4"), Ok((ElementType::F32, Some(true))));
        assert_eq!(element("float"), Ok((ElementType::F32, None)));
        assert!(element("float64").is_err() && element("").is_err() && element("é").is_err());
    }

    #[test]
    fn an_axis_that_stands_still_gives_no_rule() {
        assert_eq!(moving_axis(|_| Some((10.0, 0.0))), None);
        let rule = moving_axis(|axis| (axis == "phi").then_some((90.0, -0.5)));
        assert_eq!(rule, Some(AngleRule::from_degrees(90.0, -0.5)));
    }
}
