//! A frame as a message announces it.

use std::ops::Range;

use beamstream_codec::Compression;
use beamstream_core::{ElementType, Format, Role, Shape};

use super::{DecodeError, Refusal};

/// A frame whose header was read; its pixels are still packed in the message.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// The detector's number of the series, where the protocol has one.
    pub series: Option<u64>,
    /// Number of the frame, where the protocol has one.
    pub number: Option<u64>,
    /// What the frame is for, where the message says so.
    pub role: Option<Role>,
    /// Whether the detector counts each role from zero.
    pub counted_by_role: bool,
    /// Rotation angle in radians, where the message says so.
    pub angle_rad: Option<f64>,
    /// Start of the exposure by the detector's clock, in seconds.
    pub detector_secs: Option<f64>,
    /// Type of the pixels.
    pub element: ElementType,
    /// Rows and columns as sent.
    pub shape: Shape,
    /// Whether the rows are sent left to right reversed; to be undone first.
    pub mirror: bool,
    /// Whether the frame is sent upside down, turned by 180 degrees.
    pub upside_down: bool,
    /// Where the pixels are.
    pub payload: Payload,
}

/// Where the pixels of a frame are, and how they are packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The part of the message.
    pub part: usize,
    /// The bytes of that part.
    pub bytes: Range<usize>,
    /// How they are packed.
    pub compression: Compression,
    /// Whether the decoded pixels are big-endian.
    pub big_endian: bool,
}

impl Image {
    /// A frame with nothing known but its number and pixels.
    pub(crate) fn new(
        series: Option<u64>,
        number: Option<u64>,
        element: ElementType,
        shape: Shape,
        payload: Payload,
    ) -> Self {
        Self {
            series,
            number,
            role: None,
            counted_by_role: false,
            angle_rad: None,
            detector_secs: None,
            element,
            shape,
            mirror: false,
            upside_down: false,
            payload,
        }
    }

    /// Format of the frame.
    pub fn format(&self) -> Format {
        Format::frame(self.element, self.shape.rows, self.shape.columns)
    }

    /// The frame, if its payload can stand for it: so that no buffer is taken by a number from outside.
    pub(crate) fn checked(self) -> Result<Self, Refusal> {
        let found = self.payload.bytes.len();
        let (shape, element) = (self.shape, self.element);
        let fits = |bytes: &usize| {
            self.payload.compression == Compression::None
                || self.payload.compression.max_decoded_bytes(found) >= *bytes
        };
        let error = match self.format().checked_bytes().filter(|bytes| *bytes > 0).filter(fits) {
            None => DecodeError::Implausible { shape, element, found },
            Some(expected) if self.payload.compression == Compression::None && expected != found => {
                DecodeError::PayloadSize { expected, found, shape, element }
            }
            Some(_) => return Ok(self),
        };
        Err(Refusal::frame(self.series, self.number, error))
    }
}
