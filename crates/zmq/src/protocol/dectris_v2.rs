//! DECTRIS stream, version 2: one CBOR map a message.
//!
//! # Source
//! DECTRIS "Stream V2" documentation; RFC 8949 (CBOR), RFC 8746 (typed arrays); details checked against a
//! recording of an EIGER detector.

use std::ops::Range;

use beamstream_codec::Compression;
use beamstream_core::{ElementType, Shape};
use minicbor::data::{Tag, Type};
use minicbor::decode::Decoder;
use serde_json::{Value, json};

use super::cbor::{Entries, broken, decoder};
use super::error::quote;
use super::fields::{angle_rad, as_number, as_whole, element, moving_axis, role, wrong};
use super::{DecodeError, Image, Incoming, Payload, Refusal, Start};

/// The tag that says "this is CBOR" (RFC 8949, section 3.4.6), as it stands before a map.
const SELF_DESCRIBED: [u8; 3] = [0xD9, 0xD9, 0xF7];
/// Tag of a row-major array of several dimensions: `[[rows, columns], typed array]`.
const ROW_MAJOR: u64 = 40;
/// Tag of its column-major twin.
const COLUMN_MAJOR: u64 = 1040;
/// DECTRIS' tag of compressed bytes: `[algorithm, element size, bytes]`.
const COMPRESSED: u64 = 56500;

/// Whether a message begins as a CBOR map.
pub(crate) fn is_map(part: &[u8]) -> bool {
    let map = part.strip_prefix(&SELF_DESCRIBED).unwrap_or(part);
    map.first().is_some_and(|first| first >> 5 == 5)
}

/// Reads one message; with a header also the name of its first channel.
///
/// `channel` names the one to take of an image with several; without a name it is the first.
pub(crate) fn decode(parts: &[&[u8]], channel: Option<&str>) -> Result<(Incoming, Option<String>), Refusal> {
    let message = parts.first().copied().unwrap_or_default();
    let start = if message.starts_with(&SELF_DESCRIBED) { SELF_DESCRIBED.len() } else { 0 };
    let fields = Entries::read(message, start..message.len()).map_err(Refusal::message)?;
    let kind = fields.json("type");
    let series = as_whole(&fields.json("series_id"));
    match kind.as_str() {
        Some("image") => {
            image(message, &fields, series, channel).map(|image| (Incoming::Image(Box::new(image)), None))
        }
        Some("start") => {
            let series = need(series, "series_id", &fields).map_err(|error| Refusal::control(None, error))?;
            let first_channel = fields.json("channels").get(0).and_then(Value::as_str).map(str::to_owned);
            Ok((Incoming::Start(Box::new(header(series, &fields))), first_channel))
        }
        Some("end") => {
            let series = need(series, "series_id", &fields).map_err(|error| Refusal::control(None, error))?;
            Ok((Incoming::End { series: Some(series) }, None))
        }
        Some(other) => {
            Err(Refusal::message(DecodeError::OtherProtocol { expected: "dectris-v2", found: quote(other) }))
        }
        None => Err(Refusal::message(fields.broken.unwrap_or_else(|| wrong("type", "a text", &kind)))),
    }
}

fn need(value: Option<u64>, key: &'static str, fields: &Entries) -> Result<u64, DecodeError> {
    value.ok_or_else(|| wrong(key, "a whole number from 0", &fields.json(key)))
}

/// Tables of a header, left out of its metadata.
const TABLES: [&str; 3] = ["flatfield", "pixel_mask", "countrate_correction_lookup_table"];

fn header(series: u64, fields: &Entries) -> Start {
    let extent = |key| as_whole(&fields.json(key)).and_then(|n| usize::try_from(n).ok());
    let shape = extent("image_size_y").zip(extent("image_size_x"));
    let goniometer = fields.json("goniometer");
    Start {
        series: Some(series),
        expected_frames: as_whole(&fields.json("number_of_images")),
        element: fields
            .json("image_dtype")
            .as_str()
            .and_then(|name| element(name).ok())
            .map(|(element, _)| element),
        shape: shape.map(|(rows, columns)| Shape::new(rows, columns)).filter(|shape| !shape.is_empty()),
        angles: moving_axis(|axis| {
            let axis = goniometer.get(axis)?;
            Some((as_number(axis.get("start")?)?, as_number(axis.get("increment")?)?))
        }),
        role: user_data(fields).as_object().and_then(role),
        pixel_size_m: as_number(&fields.json("pixel_size_x")).filter(|size| *size > 0.0),
        metadata: json!({ "protocol": "dectris-v2", "header": fields.all_json(&TABLES) }),
    }
}

/// What the user hung into a message: any value, or a text that holds JSON.
fn user_data(fields: &Entries) -> Value {
    match fields.json("user_data") {
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    }
}

fn image(
    message: &[u8],
    fields: &Entries,
    series: Option<u64>,
    channel: Option<&str>,
) -> Result<Image, Refusal> {
    let frame = as_whole(&fields.json("image_id"));
    let refuse = |error| Refusal::frame(series, frame, error);
    if let Some(error) = &fields.broken {
        return Err(refuse(error.clone()));
    }
    need(series, "series_id", fields).map_err(refuse)?;
    need(frame, "image_id", fields).map_err(refuse)?;
    let data =
        fields.range("data").ok_or_else(|| refuse(wrong("data", "a map of channels", &Value::Null)))?;
    let channels = Entries::read(message, data).map_err(refuse)?;
    let pixels = match channel {
        Some(name) => channels.range(name),
        None => channels.iter().next().map(|(_, range)| range),
    };
    let pixels = pixels.ok_or_else(|| {
        let found = quote(&channels.iter().map(|(name, _)| name).collect::<Vec<_>>().join(", "));
        refuse(DecodeError::Value { key: "data", expected: "a map with the channel", found })
    })?;
    let (shape, element, payload) = array(message, &pixels).map_err(refuse)?;
    let mut image = Image::new(series, frame, element, shape, payload);
    image.detector_secs = rational(&fields.json("start_time"));
    if let Some(user) = user_data(fields).as_object() {
        image.role = role(user);
        image.angle_rad = angle_rad(user);
    }
    image.checked()
}

/// The value of `[numerator, denominator]`.
fn rational(value: &Value) -> Option<f64> {
    let (over, under) = (as_number(value.get(0)?)?, as_number(value.get(1)?)?);
    (under != 0.0).then(|| over / under)
}

/// Shape, type and place of the pixels of a channel.
fn array(message: &[u8], range: &Range<usize>) -> Result<(Shape, ElementType, Payload), DecodeError> {
    let mut decoder = decoder(message, range);
    match tag(&mut decoder)? {
        ROW_MAJOR => {}
        COLUMN_MAJOR => return Err(unsupported("array order", "column-major (tag 1040)")),
        other => return Err(unsupported("array tag", &other.to_string())),
    }
    length(&mut decoder, 2)?;
    length(&mut decoder, 2)?;
    let mut extent = || {
        let extent = decoder.u64().map_err(|error| broken(&error))?;
        usize::try_from(extent).map_err(|_overflow| unsupported("extent", &extent.to_string()))
    };
    let shape = Shape::new(extent()?, extent()?);
    let (element, big_endian) = typed_array(tag(&mut decoder)?)?;

    let compressed = decoder.datatype().map_err(|error| broken(&error))? == Type::Tag;
    let compression = if compressed { algorithm(&mut decoder, element)? } else { Compression::None };
    let found = decoder.bytes().map_err(|error| broken(&error))?.len();
    let end = decoder.position();
    let payload = Payload { part: 0, bytes: end - found..end, compression, big_endian };
    Ok((shape, element, payload))
}

fn tag(decoder: &mut Decoder) -> Result<u64, DecodeError> {
    decoder.tag().map(Tag::as_u64).map_err(|error| broken(&error))
}

/// Enters an array of `expected` items.
fn length(decoder: &mut Decoder, expected: u64) -> Result<(), DecodeError> {
    match decoder.array().map_err(|error| broken(&error))? {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(DecodeError::BrokenCbor { found: format!("{found} items, expected {expected}") }),
        None => Err(unsupported("array", "of indefinite length")),
    }
}

/// Pixel type and byte order (`true` is big-endian) of a typed array (RFC 8746, section 2).
fn typed_array(tag: u64) -> Result<(ElementType, bool), DecodeError> {
    Ok(match tag {
        64 | 68 => (ElementType::U8, false),
        65 => (ElementType::U16, true),
        66 => (ElementType::U32, true),
        69 => (ElementType::U16, false),
        70 => (ElementType::U32, false),
        73 => (ElementType::I16, true),
        74 => (ElementType::I32, true),
        77 => (ElementType::I16, false),
        78 => (ElementType::I32, false),
        80 => (ElementType::F16, true),
        81 => (ElementType::F32, true),
        84 => (ElementType::F16, false),
        85 => (ElementType::F32, false),
        other => return Err(unsupported("typed array with tag", &other.to_string())),
    })
}

/// Reads DECTRIS' compression tag up to the bytes.
fn algorithm(decoder: &mut Decoder, element: ElementType) -> Result<Compression, DecodeError> {
    match tag(decoder)? {
        COMPRESSED => {}
        other => return Err(unsupported("compression tag", &other.to_string())),
    }
    length(decoder, 3)?;
    let name = decoder.str().map_err(|error| broken(&error))?;
    let modifier = decoder.u64().map_err(|error| broken(&error))?;
    match name {
        "lz4" => Ok(Compression::Lz4Hdf5),
        "bslz4" if modifier == element.size() as u64 => Ok(Compression::Bslz4),
        "bslz4" => Err(unsupported("bslz4 with an element size of", &modifier.to_string())),
        other => Err(unsupported("compression", other)),
    }
}

fn unsupported(what: &'static str, found: &str) -> DecodeError {
    DecodeError::Unsupported { what, found: quote(found) }
}
