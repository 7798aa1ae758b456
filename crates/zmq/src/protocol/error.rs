//! Why a message was refused.

use beamstream_core::{ElementType, Shape};
use thiserror::Error;

/// A message that is not understood or is damaged.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{error}")]
pub struct Refusal {
    /// The detector's number of the series, where it could be read.
    pub series: Option<u64>,
    /// Number of the frame, where it could be read.
    pub number: Option<u64>,
    /// Whether the message says of itself that it is a frame.
    pub is_frame: bool,
    /// What is wrong with it.
    #[source]
    pub error: DecodeError,
}

impl Refusal {
    /// A message of which not even the kind is known.
    pub(crate) fn message(error: DecodeError) -> Self {
        Self { series: None, number: None, is_frame: false, error }
    }

    /// A header or an end that cannot be used.
    pub(crate) fn control(series: Option<u64>, error: DecodeError) -> Self {
        Self { series, number: None, is_frame: false, error }
    }

    /// A frame that cannot be used.
    pub(crate) fn frame(series: Option<u64>, number: Option<u64>, error: DecodeError) -> Self {
        Self { series, number, is_frame: true, error }
    }
}

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The part that should say what the message is, is no JSON object.
    #[error("part {part} is not a JSON object")]
    NotJson {
        /// Which part, from 0.
        part: usize,
    },
    /// The message is no CBOR map.
    #[error("not a CBOR map: {found}")]
    NotCbor {
        /// What stands there.
        found: String,
    },
    /// The message ends early or is malformed further in.
    #[error("malformed CBOR: {found}")]
    BrokenCbor {
        /// What stands there.
        found: String,
    },
    /// A part that should be there is missing.
    #[error("{found} parts, expected at least {expected}")]
    MissingPart {
        /// Parts that are needed.
        expected: usize,
        /// Parts that came.
        found: usize,
    },
    /// A value that is needed is missing or has another type.
    #[error("`{key}` should be {expected}, found {found}")]
    Value {
        /// Name of the value.
        key: &'static str,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Something that exists, but is not supported.
    #[error("{what} `{found}` is not supported")]
    Unsupported {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        found: String,
    },
    /// A message of another protocol than the one of this stream.
    #[error("a message `{found}` does not belong to {expected}")]
    OtherProtocol {
        /// The protocol of the stream.
        expected: &'static str,
        /// The message's own name.
        found: String,
    },
    /// The payload has another size than shape and type ask for.
    #[error("payload of {found} bytes, expected {expected} for {shape} of {element}")]
    PayloadSize {
        /// Bytes that are needed.
        expected: usize,
        /// Bytes that came.
        found: usize,
        /// Shape of the frame.
        shape: Shape,
        /// Type of its pixels.
        element: ElementType,
    },
    /// A frame larger than its payload can stand for, or than can be addressed.
    #[error("a frame of {shape} of {element} cannot come from {found} bytes")]
    Implausible {
        /// Shape of the frame.
        shape: Shape,
        /// Type of its pixels.
        element: ElementType,
        /// Bytes that came.
        found: usize,
    },
    /// The detector itself says that parts of the frame are missing.
    #[error("the detector marked the frame as incomplete")]
    Incomplete,
}

/// Texts from outside are cut to this many characters before they go into an error.
const MAX_QUOTE: usize = 40;

/// A text from outside, cut to a length that an error can carry.
pub(crate) fn quote(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_QUOTE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
