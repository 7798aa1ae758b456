//! CBOR maps, read by key and with bounded recursion.

use std::ops::Range;

use minicbor::data::{Tag, Type};
use minicbor::decode::{Decoder, Error};
use serde_json::{Map, Number, Value};

use super::DecodeError;
use super::error::quote;

/// Entries of a map that are looked at; the headers of detectors have about 40.
const MAX_ENTRIES: usize = 256;
/// Nesting beyond this is left out when values become JSON.
const MAX_DEPTH: usize = 12;
/// Arrays longer than this are tables, and left out.
const MAX_LIST: u64 = 256;

/// Where the values of a map with text keys lie in a message.
pub(crate) struct Entries<'a> {
    message: &'a [u8],
    found: Vec<(&'a str, Range<usize>)>,
    /// Why the rest of the map could not be read.
    pub(crate) broken: Option<DecodeError>,
}

impl<'a> Entries<'a> {
    /// Reads the map at `at`; what can be read before it breaks off is kept.
    ///
    /// # Errors
    /// [`DecodeError::NotCbor`] if no map begins there.
    pub(crate) fn read(message: &'a [u8], at: Range<usize>) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(&message[..at.end]);
        decoder.set_position(at.start);
        let mut left =
            decoder.map().map_err(|error| DecodeError::NotCbor { found: quote(&error.to_string()) })?;
        let mut map = Self { message, found: Vec::new(), broken: None };
        while map.found.len() < MAX_ENTRIES {
            match left.as_mut() {
                Some(0) => break,
                Some(left) => *left -= 1,
                None if matches!(decoder.datatype(), Ok(Type::Break)) => break,
                None => {}
            }
            match entry(&mut decoder) {
                Ok((key, value)) => map.found.push((key, value)),
                Err(error) => {
                    map.broken = Some(broken(&error));
                    break;
                }
            }
        }
        Ok(map)
    }

    /// Keys and the ranges of their values, in the order of the message.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a str, Range<usize>)> + '_ {
        self.found.iter().cloned()
    }

    /// The range of a value.
    pub(crate) fn range(&self, key: &str) -> Option<Range<usize>> {
        self.found.iter().find(|(name, _)| *name == key).map(|(_, range)| range.clone())
    }

    /// A decoder that stands at a value.
    pub(crate) fn at(&self, key: &str) -> Option<Decoder<'a>> {
        self.range(key).map(|range| decoder(self.message, &range))
    }

    /// A value as JSON, `Null` if it is missing.
    pub(crate) fn json(&self, key: &str) -> Value {
        self.at(key).and_then(|mut decoder| to_json(&mut decoder, 0).ok()).unwrap_or(Value::Null)
    }

    /// All values as JSON, except those named.
    pub(crate) fn all_json(&self, without: &[&str]) -> Value {
        let kept = self.found.iter().filter(|(key, _)| !without.contains(key));
        Value::Object(kept.map(|(key, _)| ((*key).to_owned(), self.json(key))).collect())
    }
}

/// A decoder over `range` of a message; its positions are those of the message.
pub(crate) fn decoder<'a>(message: &'a [u8], range: &Range<usize>) -> Decoder<'a> {
    let mut decoder = Decoder::new(&message[..range.end]);
    decoder.set_position(range.start);
    decoder
}

/// The error for CBOR that breaks off or is malformed.
pub(crate) fn broken(error: &Error) -> DecodeError {
    DecodeError::BrokenCbor { found: quote(&error.to_string()) }
}

fn entry<'a>(decoder: &mut Decoder<'a>) -> Result<(&'a str, Range<usize>), Error> {
    let key = decoder.str()?;
    let start = decoder.position();
    decoder.skip()?;
    Ok((key, start..decoder.position()))
}

/// The value at the decoder as JSON; tables, byte strings and what is nested too deeply become `Null`.
fn to_json(decoder: &mut Decoder, depth: usize) -> Result<Value, Error> {
    if depth > MAX_DEPTH {
        decoder.skip()?;
        return Ok(Value::Null);
    }
    let value = match decoder.datatype()? {
        Type::Bool => Value::Bool(decoder.bool()?),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => Value::from(decoder.u64()?),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => Value::from(decoder.i64()?),
        Type::F16 | Type::F32 | Type::F64 => {
            Number::from_f64(decoder.f64()?).map_or(Value::Null, Value::Number)
        }
        Type::String => Value::from(decoder.str()?),
        Type::Tag if decoder.probe().tag()? == Tag::new(DATE_TEXT) => {
            decoder.tag()?;
            to_json(decoder, depth + 1)?
        }
        Type::Array => list(decoder, depth)?,
        Type::Map => dictionary(decoder, depth)?,
        _ => {
            decoder.skip()?;
            Value::Null
        }
    };
    Ok(value)
}

/// Tag of a date and time as a text (RFC 8949, section 3.4.1).
const DATE_TEXT: u64 = 0;

fn list(decoder: &mut Decoder, depth: usize) -> Result<Value, Error> {
    let start = decoder.position();
    match decoder.array()? {
        Some(count) if count <= MAX_LIST => {
            (0..count).map(|_| to_json(decoder, depth + 1)).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        _ => {
            decoder.set_position(start);
            decoder.skip()?;
            Ok(Value::Null)
        }
    }
}

fn dictionary(decoder: &mut Decoder, depth: usize) -> Result<Value, Error> {
    let start = decoder.position();
    match decoder.map()? {
        Some(count) if count <= MAX_LIST => {
            let mut map = Map::new();
            for _ in 0..count {
                if decoder.datatype()? == Type::String {
                    let key = decoder.str()?.to_owned();
                    map.insert(key, to_json(decoder, depth + 1)?);
                } else {
                    decoder.skip()?;
                    decoder.skip()?;
                }
            }
            Ok(Value::Object(map))
        }
        _ => {
            decoder.set_position(start);
            decoder.skip()?;
            Ok(Value::Null)
        }
    }
}
