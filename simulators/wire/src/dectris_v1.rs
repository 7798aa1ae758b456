//! DECTRIS SIMPLON Stream V1: multipart messages of JSON and binary parts.

use beamstream_core::{ElementType, Format};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::{Encoder, Encoding, FrameInfo, Message, SeriesInfo, bitshuffle};

/// Encodes DECTRIS Stream V1 with header detail `basic`.
///
/// The header appendix tells the role as `{"image_key": 0|1|2}` (NXtomo); angles that are not even come as
/// `{"angle_deg": …}` in the image appendix.
///
/// # Source
/// DECTRIS, SIMPLON API reference 1.8, chapter "Stream"; field names as EIGER detectors send them.
pub(crate) struct DectrisV1 {
    encoding: Encoding,
}

impl DectrisV1 {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self { encoding }
    }

    /// The name of the encoding in an image message: `bs16-lz4<` is bitshuffle of 16 bits, LZ4, little-endian.
    fn encoding_name(&self, element: ElementType) -> String {
        match self.encoding {
            Encoding::None => "<".to_owned(),
            Encoding::Lz4 => "lz4<".to_owned(),
            Encoding::Bslz4 => format!("bs{}-lz4<", element.size() * 8),
        }
    }

    fn configuration(&self, series: &SeriesInfo) -> Value {
        let bits = series.format.element.size() * 8;
        let mut configuration = json!({
            "auto_summation": true,
            "beam_center_x": 0.0,
            "beam_center_y": 0.0,
            "bit_depth_image": bits,
            "bit_depth_readout": bits,
            "compression": self.encoding.name(),
            "count_time": series.frame_time_secs,
            "countrate_correction_applied": false,
            "data_collection_date": crate::dectris_v2::SIMULATED_DATE,
            "description": "beamstream-sim",
            "detector_number": "SIM-00-0000",
            "frame_time": series.frame_time_secs,
            "nimages": series.frames,
            "ntrigger": 1,
            "photon_energy": 12400.0,
            "pixel_mask_applied": false,
            "sensor_material": "Si",
            "trigger_mode": "ints",
            "x_pixels_in_detector": series.format.shape.columns,
            "y_pixels_in_detector": series.format.shape.rows,
        });
        if let Some((start, increment)) = series.omega_deg {
            configuration["omega_start"] = json!(start);
            configuration["omega_increment"] = json!(increment);
        }
        configuration
    }
}

impl Encoder for DectrisV1 {
    fn payload(&self, pixels: &[u8], format: Format) -> Bytes {
        match self.encoding {
            Encoding::None => Bytes::copy_from_slice(pixels),
            Encoding::Lz4 => bitshuffle::lz4_block(pixels),
            Encoding::Bslz4 => bitshuffle::bslz4(pixels, format.element.size()),
        }
    }

    fn header(&self, series: &SeriesInfo) -> Option<Message> {
        Some(vec![
            part(&json!({"htype": "dheader-1.0", "series": series.number, "header_detail": "basic"})),
            part(&self.configuration(series)),
            part(&json!({"image_key": series.role.image_key()})),
        ])
    }

    fn image(&self, frame: &FrameInfo, payload: Bytes) -> Message {
        let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
        let start = nanoseconds(frame.start_secs());
        let exposure = nanoseconds(frame.frame_time_secs);
        // Receivers must not take the hash for a checksum of the pixels: real detectors send something else.
        let hash = format!("{:016x}{:016x}", frame.series, frame.number);
        let mut message = vec![
            part(
                &json!({"htype": "dimage-1.0", "series": frame.series, "frame": frame.number, "hash": hash}),
            ),
            part(&json!({
                "htype": "dimage_d-1.0",
                // Fast axis first, against the order of the pixels.
                "shape": [frame.format.shape.columns, frame.format.shape.rows],
                "type": frame.format.element.numpy_name(),
                "encoding": self.encoding_name(frame.format.element),
                "size": payload.len(),
            })),
            payload,
            part(&json!({
                "htype": "dconfig-1.0",
                "start_time": start,
                "stop_time": start + exposure,
                "real_time": exposure,
            })),
        ];
        message.extend(frame.angle_deg.map(|angle| part(&json!({"angle_deg": angle}))));
        message
    }

    fn end(&self, series: u64) -> Option<Message> {
        Some(vec![part(&json!({"htype": "dseries_end-1.0", "series": series}))])
    }
}

/// A JSON part.
pub(crate) fn part(value: &Value) -> Bytes {
    value.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_core::Role;

    fn frame(angle_deg: Option<f64>) -> FrameInfo {
        FrameInfo {
            series: 7,
            number: 3,
            role: Role::Projection,
            angle_deg,
            format: Format::frame(ElementType::U16, 2, 4),
            frame_time_secs: 0.01,
        }
    }

    fn texts(message: &Message) -> Vec<String> {
        message.iter().map(|p| String::from_utf8_lossy(p).into_owned()).collect()
    }

    #[test]
    fn an_image_has_its_shape_fast_axis_first() {
        let encoder = DectrisV1::new(Encoding::None);
        let message = encoder.image(&frame(None), encoder.payload(&[1; 16], frame(None).format));
        let texts = texts(&message);
        assert_eq!(texts.len(), 4);
        assert_eq!(
            texts[0],
            r#"{"htype":"dimage-1.0","series":7,"frame":3,"hash":"00000000000000070000000000000003"}"#
        );
        assert_eq!(
            texts[1],
            r#"{"htype":"dimage_d-1.0","shape":[4,2],"type":"uint16","encoding":"<","size":16}"#
        );
        assert_eq!(
            texts[3],
            r#"{"htype":"dconfig-1.0","start_time":30000000,"stop_time":40000000,"real_time":10000000}"#
        );
    }

    #[test]
    fn uneven_angles_come_in_the_appendix() {
        let message = DectrisV1::new(Encoding::Bslz4).image(&frame(Some(12.5)), Bytes::new());
        assert_eq!(texts(&message)[4], r#"{"angle_deg":12.5}"#);
    }

    #[test]
    fn encodings_have_the_names_of_the_vendor() {
        let name = |encoding, element| DectrisV1::new(encoding).encoding_name(element);
        assert_eq!(name(Encoding::Bslz4, ElementType::U32), "bs32-lz4<");
        assert_eq!(name(Encoding::Bslz4, ElementType::U8), "bs8-lz4<");
        assert_eq!(name(Encoding::Lz4, ElementType::U16), "lz4<");
    }

    #[test]
    fn the_header_tells_frames_role_and_angles() {
        let series = SeriesInfo {
            number: 2,
            role: Role::Flat,
            format: Format::frame(ElementType::U16, 33, 160),
            frames: 91,
            omega_deg: Some((-88.2, 2.0)),
            frame_time_secs: 0.1,
        };
        let message = DectrisV1::new(Encoding::Bslz4).header(&series).unwrap();
        let configuration: Value = serde_json::from_slice(&message[1]).unwrap();
        assert_eq!(configuration["nimages"], 91);
        assert_eq!(configuration["x_pixels_in_detector"], 160);
        assert_eq!(configuration["omega_start"], -88.2);
        assert_eq!(&message[2][..], br#"{"image_key":1}"#);
    }
}
