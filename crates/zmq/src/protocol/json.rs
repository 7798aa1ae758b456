//! A JSON header and a raw payload: `array-1.0`, concert and uca-net, RECASTX, the SLS receiver, MAX IV's
//! pipeline, and the recipe of the pyzmq manual.
//!
//! One reader for all: keys are tried by their usual names. What is known and not supported is refused by name.

use beamstream_codec::{Compression, has_bslz4_header};
use beamstream_core::{ElementType, Format, Role, Shape};
use serde_json::{Map, Value, json};

use super::error::quote;
use super::fields::{
    angle_rad, as_whole, element, extents, number, object, role, rows_columns, text, whole, wrong,
};
use super::{DecodeError, Image, Incoming, Payload, Protocol, Refusal, Start};

type Header = Map<String, Value>;

/// Reads one message; `protocol` is one of the JSON dialects.
pub(crate) fn decode(parts: &[&[u8]], protocol: Protocol) -> Result<Incoming, Refusal> {
    let header = parts.first().and_then(|part| object(part));
    let header = header.ok_or_else(|| Refusal::message(DecodeError::NotJson { part: 0 }))?;
    let other = |found: &str| {
        Err(Refusal::message(DecodeError::OtherProtocol { expected: protocol.name(), found: quote(found) }))
    };
    match (protocol, header.get("htype").and_then(Value::as_str)) {
        (Protocol::Concert, Some(htype)) => other(htype),
        (Protocol::Concert, None) => concert(&header, parts),
        (_, Some("array-1.0")) => array(&header, parts),
        (Protocol::Array, htype) => other(htype.unwrap_or("without htype")),
        (_, Some("header")) => Ok(Incoming::Start(Box::new(stins_start(&header)))),
        (_, Some("image")) => stins_image(&header, parts),
        (_, Some("series_end")) => Ok(Incoming::End { series: None }),
        (_, Some(htype)) => {
            Err(Refusal::message(DecodeError::Unsupported { what: "message", found: quote(htype) }))
        }
        (_, None) if header.contains_key("bitmode") => sls_receiver(&header, parts),
        (_, None) if header.contains_key("image_attributes") => recastx(&header, parts),
        (_, None) => concert(&header, parts),
    }
}

fn finish(image: Image) -> Result<Incoming, Refusal> {
    image.checked().map(|image| Incoming::Image(Box::new(image)))
}

/// `array-1.0`: the htype of PSI's std-daq and of areaDetector's plugin.
fn array(header: &Header, parts: &[&[u8]]) -> Result<Incoming, Refusal> {
    let frame = whole(header, "frame").map_err(|error| Refusal::frame(None, None, error))?;
    finish(plain_image(header, parts, Some(frame), None)?)
}

/// Concert, uca-net and the pyzmq recipe: `dtype` and `shape`, closed by a header with the key `end`.
fn concert(header: &Header, parts: &[&[u8]]) -> Result<Incoming, Refusal> {
    if header.contains_key("end") && !header.contains_key("shape") {
        return Ok(Incoming::End { series: None });
    }
    if !header.contains_key("shape") {
        return Err(Refusal::message(wrong("shape", "two extents", &Value::Null)));
    }
    let frame = ["frame-number", "frame"].into_iter().find(|key| header.contains_key(*key));
    let frame = frame.map(|key| whole(header, key)).transpose();
    let frame = frame.map_err(|error| Refusal::frame(None, None, error))?;
    let mut image = plain_image(header, parts, frame, None)?;
    image.mirror = match header.get("mirror") {
        Some(Value::Bool(mirror)) => *mirror,
        Some(value) => as_whole(value).unwrap_or(0) != 0,
        None => false,
    };
    let turns = header.get("rotate").map_or(Some(0), as_whole);
    image.upside_down = match turns.map(|turns| turns % 4) {
        Some(0) => false,
        Some(2) => true,
        _ => {
            // A quarter turn swaps rows and columns: the camera should be told to do it.
            let found = header.get("rotate").map_or_else(String::new, |v| quote(&v.to_string()));
            return Err(Refusal::frame(
                None,
                frame,
                DecodeError::Unsupported { what: "quarter turns: rotate", found },
            ));
        }
    };
    finish(image)
}

/// RECASTX: each role is counted from zero, `scan_index` says which; the type is `uint16` where none is told.
fn recastx(header: &Header, parts: &[&[u8]]) -> Result<Incoming, Refusal> {
    let frame = whole(header, "frame").map_err(|error| Refusal::frame(None, None, error))?;
    let mut image = plain_image(header, parts, Some(frame), Some(ElementType::U16))?;
    let attributes = header.get("image_attributes").and_then(Value::as_object);
    image.role = match attributes.and_then(|map| map.get("scan_index")).map(as_whole) {
        Some(Some(0)) => Some(Role::Dark),
        Some(Some(1)) => Some(Role::Flat),
        Some(Some(2)) => Some(Role::Projection),
        None => image.role,
        Some(_) => {
            let found = attributes.and_then(|map| map.get("scan_index")).unwrap_or(&Value::Null);
            return Err(Refusal::frame(None, Some(frame), wrong("scan_index", "0, 1 or 2", found)));
        }
    };
    image.counted_by_role = true;
    finish(image)
}

/// MAX IV: `header`, `image` and `series_end`.
fn stins_start(header: &Header) -> Start {
    Start {
        role: role(header),
        metadata: json!({ "protocol": "json-array", "header": header }),
        ..Start::default()
    }
}

fn stins_image(header: &Header, parts: &[&[u8]]) -> Result<Incoming, Refusal> {
    let frame = whole(header, "frame").map_err(|error| Refusal::frame(None, None, error))?;
    finish(plain_image(header, parts, Some(frame), None)?)
}

/// The receiver of slsDetectorPackage: `shape` is (x, y), `data: 0` ends an acquisition.
fn sls_receiver(header: &Header, parts: &[&[u8]]) -> Result<Incoming, Refusal> {
    if header.get("data").and_then(as_whole) == Some(0) {
        return Ok(Incoming::End { series: None });
    }
    let frame = whole(header, "frameIndex").map_err(|error| Refusal::frame(None, None, error))?;
    let refuse = |error| Refusal::frame(None, Some(frame), error);
    if header.get("completeImage").and_then(as_whole) == Some(0) {
        return Err(refuse(DecodeError::Incomplete));
    }
    let element = match whole(header, "bitmode").map_err(refuse)? {
        8 => ElementType::U8,
        16 => ElementType::U16,
        32 => ElementType::U32,
        bits => {
            return Err(refuse(DecodeError::Unsupported { what: "bitmode", found: bits.to_string() }));
        }
    };
    let [columns, rows] = extents(header).map_err(refuse)?;
    let pixels = payload_part(parts).map_err(refuse)?;
    let payload =
        Payload { part: 1, bytes: 0..pixels.len(), compression: Compression::None, big_endian: false };
    let mut image = Image::new(None, Some(frame), element, Shape::new(rows, columns), payload);
    // The detector's clock runs at 10 MHz.
    image.detector_secs = number(header, "timestamp").map(|ticks| ticks * 1e-7);
    annotate(&mut image, header);
    finish(image)
}

/// A frame with `type` or `dtype`, `shape` slow axis first, and the usual names for all else.
fn plain_image(
    header: &Header,
    parts: &[&[u8]],
    frame: Option<u64>,
    default_type: Option<ElementType>,
) -> Result<Image, Refusal> {
    let refuse = |error| Refusal::frame(None, frame, error);
    let key = if header.contains_key("type") { "type" } else { "dtype" };
    let (element, order) = match (header.contains_key(key), default_type) {
        (false, Some(element)) => (element, None),
        _ => text(header, key).and_then(element).map_err(refuse)?,
    };
    let shape = rows_columns(header).map_err(refuse)?;
    let pixels = payload_part(parts).map_err(refuse)?;
    let bytes = Format::frame(element, shape.rows, shape.columns).checked_bytes().unwrap_or(0);
    let payload = Payload {
        part: 1,
        bytes: 0..pixels.len(),
        compression: compression(header, pixels, bytes).map_err(refuse)?,
        big_endian: order.unwrap_or_else(|| is_big_endian(header)),
    };
    let mut image = Image::new(None, frame, element, shape, payload);
    image.detector_secs = number(header, "timeStamp").or_else(|| number(header, "timestamp"));
    annotate(&mut image, header);
    Ok(image)
}

fn payload_part<'a>(parts: &[&'a [u8]]) -> Result<&'a [u8], DecodeError> {
    parts.get(1).copied().ok_or(DecodeError::MissingPart { expected: 2, found: parts.len() })
}

/// Role and angle, from the header itself or from the dictionaries that senders hang into it.
fn annotate(image: &mut Image, header: &Header) {
    let nested = ["ndattr", "addJsonHeader"].into_iter().filter_map(|key| header.get(key)?.as_object());
    for map in std::iter::once(header).chain(nested) {
        image.role = image.role.or_else(|| role(map));
        image.angle_rad = image.angle_rad.or_else(|| angle_rad(map));
    }
}

/// The specification's own example misspells the key; both spellings are in the field.
fn is_big_endian(header: &Header) -> bool {
    ["endianness", "endianess"].into_iter().any(|key| header.get(key).and_then(Value::as_str) == Some("big"))
}

fn compression(header: &Header, pixels: &[u8], bytes: usize) -> Result<Compression, DecodeError> {
    let key = ["encoding", "compression"].into_iter().find(|key| header.contains_key(*key));
    match key.and_then(|key| header[key].as_str()).unwrap_or_default() {
        "" | "none" | "raw" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4Block),
        "lz4hdf5" => Ok(Compression::Lz4Hdf5),
        "bslz4" | "bitshuffle_lz4" if has_bslz4_header(pixels, bytes) => Ok(Compression::Bslz4),
        "bslz4" | "bitshuffle_lz4" => Ok(Compression::Bslz4Headerless),
        other => Err(DecodeError::Unsupported { what: "compression", found: quote(other) }),
    }
}
