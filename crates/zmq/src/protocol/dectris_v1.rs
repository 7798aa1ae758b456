//! DECTRIS SIMPLON stream, version 1: multipart messages of JSON and binary parts.
//!
//! # Source
//! SIMPLON API documentation, chapter "Stream"; details checked against recordings of EIGER and EIGER2
//! detectors with firmware of 2017 and 2022 to 2024.

use beamstream_codec::Compression;
use beamstream_core::{ElementType, Shape};
use serde_json::{Map, Value, json};

use super::error::quote;
use super::fields::{angle_rad, element, extents, moving_axis, number, object, role, text, whole};
use super::{DecodeError, Image, Incoming, Payload, Refusal, Start};

/// Appendices longer than this are left out of the metadata.
const MAX_APPENDIX_BYTES: usize = 64 * 1024;

/// Whether the first part of a message names one of this protocol's messages.
pub(crate) fn is_message(part: &[u8]) -> bool {
    let known = ["dheader-", "dimage-", "dseries_end-"];
    object(part).is_some_and(|map| {
        map.get("htype")
            .and_then(Value::as_str)
            .is_some_and(|htype| known.iter().any(|k| htype.starts_with(k)))
    })
}

/// Reads one message.
pub(crate) fn decode(parts: &[&[u8]]) -> Result<Incoming, Refusal> {
    let first = parts.first().and_then(|part| object(part));
    let first = first.ok_or_else(|| Refusal::message(DecodeError::NotJson { part: 0 }))?;
    let htype = text(&first, "htype").map_err(Refusal::message)?;
    if htype.starts_with("dimage-") {
        return image(&first, parts).map(|image| Incoming::Image(Box::new(image)));
    }
    let series = || whole(&first, "series").map_err(|error| Refusal::control(None, error));
    if htype.starts_with("dheader-") {
        Ok(Incoming::Start(Box::new(header(series()?, &first, parts))))
    } else if htype.starts_with("dseries_end-") {
        Ok(Incoming::End { series: Some(series()?) })
    } else {
        Err(Refusal::message(DecodeError::OtherProtocol { expected: "dectris-v1", found: quote(htype) }))
    }
}

fn header(series: u64, first: &Map<String, Value>, parts: &[&[u8]]) -> Start {
    let detail = first.get("header_detail").and_then(Value::as_str).unwrap_or("basic");
    // Parts between the first and the appendix: configuration, then three tables of two parts each.
    let detail_parts = match detail {
        "none" => 0,
        "all" => 7,
        _ => 1,
    };
    let config = if detail == "none" { None } else { parts.get(1).and_then(|part| object(part)) };
    let config = config.unwrap_or_default();
    let appendix = parts.get(1 + detail_parts).filter(|part| part.len() <= MAX_APPENDIX_BYTES);
    let appendix = appendix.map_or(Value::Null, |part| {
        serde_json::from_slice(part)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(part).into_owned()))
    });
    let extent = |key| whole(&config, key).ok().and_then(|n| usize::try_from(n).ok());
    let shape = extent("y_pixels_in_detector").zip(extent("x_pixels_in_detector"));
    Start {
        series: Some(series),
        expected_frames: expected_frames(&config),
        element: match whole(&config, "bit_depth_image") {
            Ok(8) => Some(ElementType::U8),
            Ok(16) => Some(ElementType::U16),
            Ok(32) => Some(ElementType::U32),
            _ => None,
        },
        shape: shape.map(|(rows, columns)| Shape::new(rows, columns)).filter(|shape| !shape.is_empty()),
        angles: moving_axis(|axis| {
            let start = number(&config, &format!("{axis}_start"))?;
            Some((start, number(&config, &format!("{axis}_increment"))?))
        }),
        role: appendix.as_object().and_then(role),
        pixel_size_m: number(&config, "x_pixel_size").filter(|size| *size > 0.0),
        metadata: json!({ "protocol": "dectris-v1", "header": config, "appendix": appendix }),
    }
}

/// Frames of a series: one per trigger in the exposure-by-trigger modes, else images times triggers.
fn expected_frames(config: &Map<String, Value>) -> Option<u64> {
    let triggers = whole(config, "ntrigger");
    match config.get("trigger_mode").and_then(Value::as_str) {
        Some("inte" | "exte") => triggers.ok(),
        _ => whole(config, "nimages").ok()?.checked_mul(triggers.unwrap_or(1)),
    }
}

fn image(first: &Map<String, Value>, parts: &[&[u8]]) -> Result<Image, Refusal> {
    let series = whole(first, "series").map_err(|error| Refusal::frame(None, None, error))?;
    let number = whole(first, "frame").map_err(|error| Refusal::frame(Some(series), None, error))?;
    let refuse = |error| Refusal::frame(Some(series), Some(number), error);
    let &[_, about, pixels, ..] = parts else {
        return Err(refuse(DecodeError::MissingPart { expected: 3, found: parts.len() }));
    };
    let about = object(about).ok_or_else(|| refuse(DecodeError::NotJson { part: 1 }))?;
    let (element, _) = text(&about, "type").and_then(element).map_err(refuse)?;
    let [columns, rows] = extents(&about).map_err(refuse)?;
    let encoding = text(&about, "encoding").map_err(refuse)?;
    let (compression, big_endian) = packing(encoding, element).map_err(refuse)?;
    let payload = Payload { part: 2, bytes: 0..pixels.len(), compression, big_endian };
    let mut image = Image::new(Some(series), Some(number), element, Shape::new(rows, columns), payload);

    let times = parts.get(3).and_then(|part| object(part)).unwrap_or_default();
    image.detector_secs = self::number(&times, "start_time").map(|ns| ns * 1e-9);
    if let Some(appendix) = parts.get(4).and_then(|part| object(part)) {
        image.role = role(&appendix);
        image.angle_rad = angle_rad(&appendix);
    }
    image.checked()
}

/// Compression and byte order by the grammar `[bs<bits>-]lz4<` or `<`; `>` is big-endian.
fn packing(encoding: &str, element: ElementType) -> Result<(Compression, bool), DecodeError> {
    let unsupported = || DecodeError::Unsupported { what: "encoding", found: quote(encoding) };
    let (packing, big_endian) = match (encoding.strip_suffix('<'), encoding.strip_suffix('>')) {
        (Some(packing), _) => (packing, false),
        (_, Some(packing)) => (packing, true),
        _ => return Err(unsupported()),
    };
    let compression = match packing {
        "" => Compression::None,
        "lz4" => Compression::Lz4Block,
        _ => {
            let bits = packing.strip_prefix("bs").and_then(|rest| rest.strip_suffix("-lz4"));
            let bits: Option<usize> = bits.and_then(|bits| bits.parse().ok());
            bits.filter(|bits| *bits == 8 * element.size()).ok_or_else(unsupported)?;
            Compression::Bslz4
        }
    };
    Ok((compression, big_endian))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_by_their_grammar() {
        let u16 = ElementType::U16;
        assert_eq!(packing("<", u16), Ok((Compression::None, false)));
        assert_eq!(packing("lz4>", u16), Ok((Compression::Lz4Block, true)));
        assert_eq!(packing("bs16-lz4<", u16), Ok((Compression::Bslz4, false)));
        for bad in ["", "jpeg", "bs32-lz4<", "bs16<", "bs-lz4<", "lz4", "bs16-lz4"] {
            assert!(packing(bad, u16).is_err(), "{bad}");
        }
    }

    #[test]
    fn frames_are_counted_by_trigger_mode() {
        let count = |mode: &str| {
            let config = json!({ "nimages": 10, "ntrigger": 3, "trigger_mode": mode });
            expected_frames(config.as_object().unwrap())
        };
        assert_eq!(
            (count("ints"), count("exts"), count("exte"), count("inte")),
            (Some(30), Some(30), Some(3), Some(3))
        );
        let monster = json!({ "nimages": u64::MAX, "ntrigger": 2 });
        assert_eq!(expected_frames(monster.as_object().unwrap()), None);
    }

    #[test]
    fn a_refused_frame_keeps_its_number() {
        let first = br#"{"htype":"dimage-1.0","series":7,"frame":20}"#;
        let refusal = decode(&[first]).unwrap_err();
        assert_eq!((refusal.series, refusal.number, refusal.is_frame), (Some(7), Some(20), true));
        let huge = br#"{"shape":[2147483648,2147483648],"type":"uint16","encoding":"<","size":3}"#;
        let refusal = decode(&[first, huge, b"abc", b"{}"]).unwrap_err();
        assert_eq!(refusal.number, Some(20));
        assert!(matches!(refusal.error, DecodeError::PayloadSize { .. } | DecodeError::Implausible { .. }));
    }
}
