//! DECTRIS Stream V2: one CBOR map a message.

use beamstream_core::{ElementType, Format, Role};
use bytes::Bytes;

use crate::{Encoder, Encoding, FrameInfo, Message, SeriesInfo, bitshuffle, cbor::Cbor};

/// Marks a text as CBOR; every message begins with it.
const SELF_DESCRIBED: u64 = 55799;
/// A multi-dimensional array, row-major (RFC 8746, section 3.1.1).
const MULTI_DIM_ARRAY: u64 = 40;
/// DECTRIS' own: an algorithm, its modifier and the bytes that it packed.
const COMPRESSED: u64 = 56500;
/// Ticks of the simulated clock in a second, as in EIGER detectors.
const TICKS_PER_SEC: u64 = 50_000_000;
/// The simulated clock starts here.
pub(crate) const SIMULATED_DATE: &str = "2026-01-01T00:00:00.000+00:00";

/// Encodes DECTRIS Stream V2, one channel `threshold_1`.
///
/// `user_data` of the start message tells the role as `{"image_key": 0|1|2}` (NXtomo); angles that are not even come
/// as `{"angle_deg": …}` in that of the images.
///
/// # Source
/// DECTRIS, "Stream V2" documentation and its CBOR schema; RFC 8746 for typed arrays.
pub(crate) struct DectrisV2 {
    encoding: Encoding,
}

impl DectrisV2 {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Self { encoding }
    }

    /// The payload as the byte string of a typed array, packed or not.
    fn write_pixels(&self, cbor: &mut Cbor, payload: &[u8], element: ElementType) {
        cbor.tag(typed_array_tag(element));
        let modifier = match self.encoding {
            Encoding::None => {
                cbor.bytes(payload);
                return;
            }
            Encoding::Lz4 => 0,
            Encoding::Bslz4 => element.size() as u64,
        };
        cbor.tag(COMPRESSED).array(3).text(self.encoding.name()).unsigned(modifier).bytes(payload);
    }
}

impl Encoder for DectrisV2 {
    fn payload(&self, pixels: &[u8], format: Format) -> Bytes {
        match self.encoding {
            Encoding::None => Bytes::copy_from_slice(pixels),
            Encoding::Lz4 => bitshuffle::lz4_hdf5(pixels),
            Encoding::Bslz4 => bitshuffle::bslz4(pixels, format.element.size()),
        }
    }

    fn header(&self, series: &SeriesInfo) -> Option<Message> {
        let mut cbor = Cbor::default();
        let entries = 12 + u64::from(series.omega_deg.is_some());
        cbor.tag(SELF_DESCRIBED).map(entries);
        write_identity(&mut cbor, "start", series.number);
        cbor.text("arm_date").tag(0).text(SIMULATED_DATE);
        cbor.text("channels").array(1).text("threshold_1");
        cbor.text("frame_time").float(series.frame_time_secs);
        if let Some((start, increment)) = series.omega_deg {
            cbor.text("goniometer").map(1).text("omega").map(2);
            cbor.text("start").float(start).text("increment").float(increment);
        }
        cbor.text("image_dtype").text(series.format.element.numpy_name());
        cbor.text("image_size_x").unsigned(series.format.shape.columns as u64);
        cbor.text("image_size_y").unsigned(series.format.shape.rows as u64);
        cbor.text("incident_energy").float(12400.0);
        cbor.text("number_of_images").unsigned(series.frames);
        cbor.text("user_data");
        write_image_key(&mut cbor, series.role);
        Some(vec![cbor.finish().into()])
    }

    fn image(&self, frame: &FrameInfo, payload: Bytes) -> Message {
        let ticks = |seconds: f64| (seconds * TICKS_PER_SEC as f64).round() as u64;
        let (start, exposure) = (ticks(frame.start_secs()), ticks(frame.frame_time_secs));
        // All but the pixels takes less than 512 bytes.
        let mut cbor = Cbor::with_capacity(payload.len() + 512);
        let entries = 9 + u64::from(frame.angle_deg.is_some());
        cbor.tag(SELF_DESCRIBED).map(entries);
        write_identity(&mut cbor, "image", frame.series);
        cbor.text("image_id").unsigned(frame.number);
        cbor.text("series_date").tag(0).text(SIMULATED_DATE);
        for (key, value) in [("real_time", exposure), ("start_time", start), ("stop_time", start + exposure)]
        {
            cbor.text(key).array(2).unsigned(value).unsigned(TICKS_PER_SEC);
        }
        if let Some(angle) = frame.angle_deg {
            cbor.text("user_data").map(1).text("angle_deg").float(angle);
        }
        cbor.text("data").map(1).text("threshold_1").tag(MULTI_DIM_ARRAY).array(2);
        // Rows first, against the order of Stream V1.
        cbor.array(2).unsigned(frame.format.shape.rows as u64).unsigned(frame.format.shape.columns as u64);
        self.write_pixels(&mut cbor, &payload, frame.format.element);
        vec![cbor.finish().into()]
    }

    fn end(&self, series: u64) -> Option<Message> {
        let mut cbor = Cbor::default();
        cbor.tag(SELF_DESCRIBED).map(3);
        write_identity(&mut cbor, "end", series);
        Some(vec![cbor.finish().into()])
    }
}

/// The three entries that every message begins with.
fn write_identity(cbor: &mut Cbor, kind: &str, series: u64) {
    cbor.text("type").text(kind);
    cbor.text("series_id").unsigned(series);
    cbor.text("series_unique_id").text(&format!("01SM{series:022}"));
}

fn write_image_key(cbor: &mut Cbor, role: Role) {
    cbor.map(1).text("image_key").unsigned(u64::from(role.image_key()));
}

/// The tag of a little-endian typed array (RFC 8746, section 2.1).
const fn typed_array_tag(element: ElementType) -> u64 {
    match element {
        ElementType::U8 => 64,
        ElementType::U16 => 69,
        ElementType::U32 => 70,
        ElementType::I16 => 77,
        ElementType::I32 => 78,
        ElementType::F16 => 84,
        ElementType::F32 => 85,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_message_is_small_and_self_described() {
        let message = DectrisV2::new(Encoding::Bslz4).end(41).unwrap();
        let mut expected =
            b"\xd9\xd9\xf7\xa3\x64type\x63end\x69series_id\x18\x29\x70series_unique_id\x78\x1a".to_vec();
        expected.extend(b"01SM0000000000000000000041");
        assert_eq!(message[0], expected);
    }

    #[test]
    fn pixels_are_the_last_entry_rows_first() {
        let encoder = DectrisV2::new(Encoding::None);
        let frame = FrameInfo {
            series: 1,
            number: 0,
            role: Role::Projection,
            angle_deg: None,
            format: Format::frame(ElementType::U16, 2, 3),
            frame_time_secs: 0.01,
        };
        let pixels: Vec<u8> = (0..12).collect();
        let message = encoder.image(&frame, encoder.payload(&pixels, frame.format));
        let mut tail = b"\x6bthreshold_1\xd8\x28\x82\x82\x02\x03\xd8\x45\x4c".to_vec();
        tail.extend(&pixels);
        assert!(message[0].ends_with(&tail), "{:02x?}", message[0]);
        assert_eq!(message[0][..4], [0xd9, 0xd9, 0xf7, 0xa9], "a map of 9 entries");
    }

    #[test]
    fn packed_pixels_name_their_algorithm() {
        let mut cbor = Cbor::default();
        DectrisV2::new(Encoding::Bslz4).write_pixels(&mut cbor, &[5, 6], ElementType::U32);
        assert_eq!(cbor.finish(), b"\xd8\x46\xd9\xdc\xb4\x83\x65bslz4\x04\x42\x05\x06");
    }
}
