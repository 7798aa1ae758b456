//! The protocols by name, and what their encoders are told.

use beamstream_core::{Format, Role};
use bytes::Bytes;

use crate::{dectris_v1::DectrisV1, dectris_v2::DectrisV2, json_array};

/// The parts of one ZeroMQ message.
pub type Message = Vec<Bytes>;

/// What a detector announces of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesInfo {
    /// The detector's number of the series.
    pub number: u64,
    /// What all frames of the series are for.
    pub role: Role,
    /// Type and shape of a frame.
    pub format: Format,
    /// How many frames are announced.
    pub frames: u64,
    /// Rotation angle of frame 0 and the difference between neighbours, in degrees, where angles are even.
    pub omega_deg: Option<(f64, f64)>,
    /// Time from one frame to the next, in seconds.
    pub frame_time_secs: f64,
}

/// What the message of one frame tells beside the pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrameInfo {
    /// The detector's number of the series.
    pub series: u64,
    /// Number of the frame in its series.
    pub number: u64,
    /// What the frame is for.
    pub role: Role,
    /// Rotation angle in degrees; `None` where the header tells it or nobody knows it.
    pub angle_deg: Option<f64>,
    /// Type and shape.
    pub format: Format,
    /// Time from one frame to the next, in seconds.
    pub frame_time_secs: f64,
}

impl FrameInfo {
    /// Start of the exposure on the simulated clock, in seconds from the start of the series.
    pub(crate) fn start_secs(&self) -> f64 {
        self.number as f64 * self.frame_time_secs
    }
}

/// Makes the messages of one protocol.
pub trait Encoder: Send {
    /// Encodes the pixels of a frame: little-endian, row-major, without gaps.
    ///
    /// Apart from [`Self::image`], so that a payload can be made ahead, sent again, or damaged.
    fn payload(&self, pixels: &[u8], format: Format) -> Bytes;

    /// The message that opens a series; `None` where the protocol has none.
    fn header(&self, series: &SeriesInfo) -> Option<Message>;

    /// The message of one frame.
    fn image(&self, frame: &FrameInfo, payload: Bytes) -> Message;

    /// The message that closes a series; `None` where the protocol has none.
    fn end(&self, series: u64) -> Option<Message>;
}

/// How pixels are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are, little-endian.
    None,
    /// LZ4: a bare block in DECTRIS V1, with HDF5's framing in DECTRIS V2.
    Lz4,
    /// Bitshuffle and LZ4 with the 12-byte header.
    Bslz4,
}

/// A protocol that detectors speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// DECTRIS SIMPLON Stream V1: multipart JSON and binary.
    DectrisV1,
    /// DECTRIS Stream V2: CBOR.
    DectrisV2,
    /// concert: JSON header and pixels, closed by `{"end": true}`.
    Concert,
    /// array-1.0: numbered JSON headers and pixels, without an end.
    Array,
}

/// A name that stands for no protocol, encoding or socket.
#[derive(Debug, thiserror::Error)]
#[error("unknown {what} '{found}', expected one of {known}")]
pub struct UnknownName {
    /// What the name should have stood for.
    pub what: &'static str,
    /// The name that was given.
    pub found: String,
    /// The names that there are.
    pub known: String,
}

/// A protocol cannot carry an encoding.
#[derive(Debug, thiserror::Error)]
#[error("{protocol} has no encoding '{encoding}', expected none", encoding = encoding.name(), protocol = protocol.name())]
pub struct UnsupportedEncoding {
    /// The protocol.
    pub protocol: Protocol,
    /// The encoding.
    pub encoding: Encoding,
}

pub(crate) fn by_name<T: Copy>(
    what: &'static str,
    all: &[T],
    name_of: fn(T) -> &'static str,
    found: &str,
) -> Result<T, UnknownName> {
    all.iter().copied().find(|&one| name_of(one) == found).ok_or_else(|| UnknownName {
        what,
        found: found.to_owned(),
        known: all.iter().map(|&one| name_of(one)).collect::<Vec<_>>().join(", "),
    })
}

impl Encoding {
    /// All encodings.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Bslz4];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Bslz4 => "bslz4",
        }
    }
}

impl std::str::FromStr for Encoding {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("encoding", &Self::ALL, Self::name, name)
    }
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::DectrisV1, Self::DectrisV2, Self::Concert, Self::Array];

    /// The name used on the command line and in pipeline files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DectrisV1 => "dectris-v1",
            Self::DectrisV2 => "dectris-v2",
            Self::Concert => "concert",
            Self::Array => "array-1.0",
        }
    }

    /// What the detectors that speak it use unless told otherwise.
    pub const fn usual_encoding(self) -> Encoding {
        match self {
            Self::DectrisV1 | Self::DectrisV2 => Encoding::Bslz4,
            Self::Concert | Self::Array => Encoding::None,
        }
    }

    /// Whether darks, flats and projections come as series of their own; else they follow one another in one.
    pub const fn has_series(self) -> bool {
        !matches!(self, Self::Array)
    }

    /// Whether messages name their series.
    pub const fn numbers_series(self) -> bool {
        matches!(self, Self::DectrisV1 | Self::DectrisV2)
    }

    /// Makes the encoder.
    ///
    /// # Errors
    /// If the protocol cannot carry the encoding.
    pub fn encoder(self, encoding: Encoding) -> Result<Box<dyn Encoder>, UnsupportedEncoding> {
        match self {
            Self::DectrisV1 => Ok(Box::new(DectrisV1::new(encoding))),
            Self::DectrisV2 => Ok(Box::new(DectrisV2::new(encoding))),
            _ if encoding != Encoding::None => Err(UnsupportedEncoding { protocol: self, encoding }),
            Self::Concert => Ok(Box::new(json_array::Concert)),
            Self::Array => Ok(Box::new(json_array::Array)),
        }
    }
}

impl std::str::FromStr for Protocol {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        by_name("protocol", &Self::ALL, Self::name, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.name().parse::<Protocol>().unwrap(), protocol);
        }
        let error = "bslz5".parse::<Encoding>().unwrap_err();
        assert_eq!(error.to_string(), "unknown encoding 'bslz5', expected one of none, lz4, bslz4");
    }

    #[test]
    fn json_protocols_carry_plain_pixels_only() {
        assert!(Protocol::Array.encoder(Encoding::None).is_ok());
        let error = Protocol::Concert.encoder(Encoding::Bslz4).err().unwrap();
        assert_eq!(error.to_string(), "concert has no encoding 'bslz4', expected none");
    }
}
