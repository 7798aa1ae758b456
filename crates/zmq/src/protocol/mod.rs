//! Detector protocols: pure functions from the parts of a ZeroMQ message to what they say.
//!
//! Nothing here does I/O or copies pixels, and whatever the parts hold, the answer is an [`Incoming`] or a
//! [`Refusal`]. A refusal keeps series and frame number where they could be read, so that a damaged frame
//! is counted under its number.

mod cbor;
mod dectris_v1;
mod dectris_v2;
mod error;
mod fields;
mod image;
mod json;

use beamstream_core::{AngleRule, ElementType, Role, Shape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use error::{DecodeError, Refusal};
pub use image::{Image, Payload};

/// How a detector speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Told from the first message that is understood.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// DECTRIS SIMPLON stream, version 1: multipart JSON and binary.
    #[serde(rename = "dectris-v1")]
    DectrisV1,
    /// DECTRIS stream, version 2: CBOR.
    #[serde(rename = "dectris-v2")]
    DectrisV2,
    /// Concert and uca-net: a JSON header with `dtype` and `shape`, then pixels; closed by `{"end": true}`.
    #[serde(rename = "concert")]
    Concert,
    /// `array-1.0` of PSI's std-daq and areaDetector's `ZeroMQ` plugin: numbered frames without header or end.
    #[serde(rename = "array-1.0")]
    Array,
    /// Any JSON header with a raw payload: pyzmq, RECASTX, SLS receiver, MAX IV, and the two above.
    #[serde(rename = "json-array")]
    JsonArray,
}

impl Protocol {
    /// The name used in pipeline files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::DectrisV1 => "dectris-v1",
            Self::DectrisV2 => "dectris-v2",
            Self::Concert => "concert",
            Self::Array => "array-1.0",
            Self::JsonArray => "json-array",
        }
    }
}

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// A series begins.
    Start(Box<Start>),
    /// A frame.
    Image(Box<Image>),
    /// A series ends; frames of it may still come.
    End {
        /// The detector's number of the series, where the protocol has one.
        series: Option<u64>,
    },
    /// Nothing that matters here; says what it was.
    Ignored(&'static str),
}

/// The header of a series.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Start {
    /// The detector's number of the series, where the protocol has one.
    pub series: Option<u64>,
    /// Frames that will come, where the header says so.
    pub expected_frames: Option<u64>,
    /// Type of the pixels, where the header says so.
    pub element: Option<ElementType>,
    /// Shape of the frames, where the header says so.
    pub shape: Option<Shape>,
    /// Rotation angles by start and increment, where the header has an axis that moves.
    pub angles: Option<AngleRule>,
    /// What the frames of the series are for, where the header says so.
    pub role: Option<Role>,
    /// Edge length of a detector pixel in metres.
    pub pixel_size_m: Option<f64>,
    /// Everything scalar that the header holds, for provenance; tables are left out.
    pub metadata: serde_json::Value,
}

/// Decodes the messages of one stream.
#[derive(Debug, Clone)]
pub struct Decoder {
    protocol: Protocol,
    /// The channel to take of messages that hold several.
    channel: Option<String>,
    /// The first channel that the header named.
    announced_channel: Option<String>,
}

impl Decoder {
    /// A decoder for `protocol`; `channel` names the one to take where a message holds several.
    pub fn new(protocol: Protocol, channel: Option<String>) -> Self {
        Self { protocol, channel, announced_channel: None }
    }

    /// The protocol in force: [`Protocol::Auto`] until a message was understood.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Reads one message.
    ///
    /// # Errors
    /// [`Refusal`] if the message is not understood, is damaged, or speaks another protocol.
    pub fn decode(&mut self, parts: &[&[u8]]) -> Result<Incoming, Refusal> {
        let protocol = match self.protocol {
            Protocol::Auto => detect(parts),
            settled => settled,
        };
        let incoming = match protocol {
            Protocol::DectrisV1 => dectris_v1::decode(parts)?,
            Protocol::DectrisV2 => {
                let channel = self.channel.as_ref().or(self.announced_channel.as_ref());
                let (incoming, announced) = dectris_v2::decode(parts, channel.map(String::as_str))?;
                if announced.is_some() {
                    self.announced_channel = announced;
                }
                incoming
            }
            other => json::decode(parts, other)?,
        };
        if !matches!(incoming, Incoming::Ignored(_)) {
            self.protocol = protocol;
        }
        Ok(incoming)
    }
}

/// Which protocol a message speaks, by its first bytes.
fn detect(parts: &[&[u8]]) -> Protocol {
    let first = parts.first().copied().unwrap_or_default();
    if dectris_v2::is_map(first) {
        Protocol::DectrisV2
    } else if dectris_v1::is_message(first) {
        Protocol::DectrisV1
    } else {
        Protocol::JsonArray
    }
}
