//! Protocols of a JSON header and the plain pixels: concert and array-1.0.

use beamstream_core::Format;
use bytes::Bytes;
use serde_json::json;

use crate::{Encoder, FrameInfo, Message, SeriesInfo, dectris_v1::part};

/// Encodes concert's streams: frames without numbers, closed by `{"end": true}`.
///
/// Darks, flats and projections are streams of their own; angles are not told.
///
/// # Source
/// The `ZmqSender` of concert (Karlsruhe Institute of Technology).
pub(crate) struct Concert;

/// Encodes array-1.0: numbered frames, with `image_key` and `angle_deg` as extra keys.
///
/// # Source
/// Paul Scherrer Institute, htypes specification, `array-1.0`.
pub(crate) struct Array;

impl Encoder for Concert {
    fn payload(&self, pixels: &[u8], _: Format) -> Bytes {
        Bytes::copy_from_slice(pixels)
    }

    fn header(&self, _: &SeriesInfo) -> Option<Message> {
        None
    }

    fn image(&self, frame: &FrameInfo, payload: Bytes) -> Message {
        let shape = frame.format.shape;
        let header = json!({
            "dtype": frame.format.element.numpy_name(),
            "shape": [shape.rows, shape.columns],
        });
        vec![part(&header), payload]
    }

    fn end(&self, _: u64) -> Option<Message> {
        Some(vec![part(&json!({"end": true}))])
    }
}

impl Encoder for Array {
    fn payload(&self, pixels: &[u8], _: Format) -> Bytes {
        Bytes::copy_from_slice(pixels)
    }

    fn header(&self, _: &SeriesInfo) -> Option<Message> {
        None
    }

    fn image(&self, frame: &FrameInfo, payload: Bytes) -> Message {
        let shape = frame.format.shape;
        let mut header = json!({
            "htype": "array-1.0",
            "type": frame.format.element.numpy_name(),
            "shape": [shape.rows, shape.columns],
            "frame": frame.number,
            "image_key": frame.role.image_key(),
        });
        if let Some(angle) = frame.angle_deg {
            header["angle_deg"] = json!(angle);
        }
        vec![part(&header), payload]
    }

    fn end(&self, _: u64) -> Option<Message> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_core::{ElementType, Role};

    const FRAME: FrameInfo = FrameInfo {
        series: 1,
        number: 12,
        role: Role::Flat,
        angle_deg: Some(0.5),
        format: Format::frame(ElementType::U16, 13, 160),
        frame_time_secs: 0.1,
    };

    #[test]
    fn concert_tells_type_and_shape() {
        let message = Concert.image(&FRAME, Bytes::from_static(b"pixels"));
        assert_eq!(message, [r#"{"dtype":"uint16","shape":[13,160]}"#, "pixels"]);
        assert_eq!(Concert.end(1).unwrap(), [r#"{"end":true}"#]);
    }

    #[test]
    fn array_tells_number_role_and_angle() {
        let message = Array.image(&FRAME, Bytes::new());
        let expected = r#"{"htype":"array-1.0","type":"uint16","shape":[13,160],"frame":12,"image_key":1,"angle_deg":0.5}"#;
        assert_eq!(message[0], expected);
        assert!(Array.end(1).is_none() && Array.header_is_absent());
    }

    impl Array {
        fn header_is_absent(&self) -> bool {
            let series = SeriesInfo {
                number: 1,
                role: Role::Projection,
                format: FRAME.format,
                frames: 1,
                omega_deg: None,
                frame_time_secs: 0.1,
            };
            self.header(&series).is_none()
        }
    }
}
