//! Recordings of detectors, real and generated, against what they must decode to.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::path::Path;

use beamstream_testkit::{data, recording};
use beamstream_zmq::protocol::{Decoder, Image, Incoming, Protocol, Refusal};
use serde_json::Value;

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn messages(folder: &Path) -> Vec<Vec<Vec<u8>>> {
    recording(folder).unwrap()
}

/// What each message of a recording decodes to.
fn decode(
    folder: &Path,
    protocol: Protocol,
    channel: Option<&str>,
) -> Vec<Result<(Incoming, Vec<u8>), Refusal>> {
    let mut decoder = Decoder::new(protocol, channel.map(str::to_owned));
    let read = |message: &Vec<Vec<u8>>| {
        let parts: Vec<&[u8]> = message.iter().map(Vec::as_slice).collect();
        let incoming = decoder.decode(&parts)?;
        let pixels = match &incoming {
            Incoming::Image(image) => pixels(image, &parts),
            _ => Vec::new(),
        };
        Ok((incoming, pixels))
    };
    messages(folder).iter().map(read).collect()
}

/// The decoded pixels, little-endian.
fn pixels(image: &Image, parts: &[&[u8]]) -> Vec<u8> {
    let payload = &image.payload;
    let mut out = vec![0; image.format().bytes()];
    let src = &parts[payload.part][payload.bytes.clone()];
    beamstream_codec::decode(payload.compression, src, &mut out, image.element.size()).unwrap();
    if payload.big_endian {
        out.chunks_exact_mut(image.element.size()).for_each(<[u8]>::reverse);
    }
    out
}

/// SHA-256 (FIPS 180-4), for the checksums in the oracles.
fn sha256(data: &[u8]) -> String {
    let primes: Vec<u64> = (2_u64..).filter(|n| (2..*n).all(|d| n % d != 0)).take(64).collect();
    let fraction = |root: f64| ((root.fract()) * 2_f64.powi(32)) as u32;
    let k: Vec<u32> = primes.iter().map(|p| fraction((*p as f64).cbrt())).collect();
    let mut h: Vec<u32> = primes[..8].iter().map(|p| fraction((*p as f64).sqrt())).collect();
    let mut padded = data.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((data.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks(64) {
        let mut w: Vec<u32> = block.chunks(4).map(|c| u32::from_be_bytes(c.try_into().unwrap())).collect();
        for i in 16..64 {
            let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
            let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
            w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
        }
        let mut v = h.clone();
        for i in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let t1 = v[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(k[i]).wrapping_add(w[i]);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let t2 = s0.wrapping_add((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(t1);
            v[0] = t1.wrapping_add(t2);
        }
        h.iter_mut().zip(v).for_each(|(h, v)| *h = h.wrapping_add(v));
    }
    h.iter()
        .flat_map(|word| word.to_be_bytes())
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat()
}

/// Entries of an oracle that stand for an image: series, number, checksum.
fn oracle(folder: &Path, channel: &str) -> Vec<(Option<u64>, u64, String)> {
    let oracle = json(&folder.join("oracle.json"));
    let entries = oracle.as_array().or_else(|| oracle["messages"].as_array()).unwrap().clone();
    let one = |entry: &Value| {
        if let Some(channels) = entry.get("channels").filter(|c| c.is_object() && entry["type"] == "image") {
            let checksum = channels[channel]["sha256_le_pixels"].as_str()?.to_owned();
            return Some((entry["series_id"].as_u64(), entry["image_id"].as_u64()?, checksum));
        }
        let checksum = entry.get("sha256_le_pixels")?.as_str()?.to_owned();
        Some((entry["series"].as_u64(), entry["frame"].as_u64()?, checksum))
    };
    entries.iter().filter_map(one).collect()
}

/// Decodes a recording and compares every image with its oracle.
fn check(folder: &str, protocol: Protocol, channel: &str) -> Option<Vec<Incoming>> {
    let path = data(folder)?;
    let mut seen = Vec::new();
    for asked in [protocol, Protocol::Auto] {
        let named = (channel != "threshold_1").then_some(channel);
        let decoded: Vec<_> = decode(&path, asked, named).into_iter().collect::<Result<_, _>>().unwrap();
        let images: Vec<_> = decoded
            .iter()
            .filter_map(|(incoming, pixels)| match incoming {
                Incoming::Image(image) => Some((image, pixels)),
                _ => None,
            })
            .collect();
        let expected = oracle(&path, channel);
        assert!(!expected.is_empty() && images.len() >= expected.len(), "{folder}: {} images", images.len());
        let skipped = images.len() - expected.len(); // darks and flats, which some oracles leave out
        for (index, ((image, pixels), (series, number, checksum))) in
            images[skipped..].iter().zip(&expected).enumerate()
        {
            assert_eq!(image.series, *series, "{folder}: series of image {index}");
            assert!(image.number.is_none_or(|n| n == *number), "{folder}: number of image {index}");
            assert_eq!(sha256(pixels), *checksum, "{folder}: pixels of image {index}");
        }
        seen = decoded.into_iter().map(|(incoming, _)| incoming).collect();
    }
    Some(seen)
}

#[test]
fn checksums_are_checksums() {
    assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn dectris_v1_recordings() {
    for name in [
        "stream/dectris_v1_eiger1_1M",
        "stream_generated/v1/a_basic_u16_bslz4",
        "stream_generated/v1/b_none_u32_lz4",
        "stream_generated/v1/c_all_u8_bslz4_appendices",
        "stream_generated/v1/d_u16_uncompressed",
        "stream_generated/v1/e_gap_dup_swap",
        "stream_generated/v1/f_two_series_first_without_end",
        "stream_generated/v1/g_stale_tail_before_header",
        "stream_generated/v1/t_tomo_i13_rows60_93",
    ] {
        check(name, Protocol::DectrisV1, "");
    }
}

#[test]
fn dectris_v2_recordings() {
    for name in [
        "stream/dectris_v2_eiger_1M",
        "stream_generated/v2/a_u16_bslz4_2ch",
        "stream_generated/v2/b_u8_bslz4",
        "stream_generated/v2/c_u32_lz4",
        "stream_generated/v2/d_u16_uncompressed",
        "stream_generated/v2/e_u16_bigendian_uncompressed",
        "stream_generated/v2/f_no_selfdescribe_f64",
        "stream_generated/v2/g_gap_dup_swap",
        "stream_generated/v2/h_no_end",
        "stream_generated/v2/t_tomo_i13_rows60_93",
    ] {
        check(name, Protocol::DectrisV2, "threshold_1");
    }
    check("stream_generated/v2/a_u16_bslz4_2ch", Protocol::DectrisV2, "threshold_2");
}

#[test]
fn json_recordings() {
    check("stream_generated/json_payload/array_1_0", Protocol::Array, "");
    check("stream_generated/json_payload/array_1_0_adzmq", Protocol::Array, "");
    check("stream_generated/json_payload/concert", Protocol::Concert, "");
    for name in ["pyzmq_send_array", "recastx_std_daq", "maxiv_stins"] {
        check(&format!("stream_generated/json_payload/{name}"), Protocol::JsonArray, "");
    }
}

fn starts(incoming: &[Incoming]) -> Vec<&beamstream_zmq::protocol::Start> {
    incoming
        .iter()
        .filter_map(|i| if let Incoming::Start(start) = i { Some(&**start) } else { None })
        .collect()
}

#[test]
fn headers_tell_roles_angles_and_counts() {
    for (name, protocol) in [("v1", Protocol::DectrisV1), ("v2", Protocol::DectrisV2)] {
        let folder = format!("stream_generated/{name}/t_tomo_i13_rows60_93");
        let Some(seen) = check(&folder, protocol, "threshold_1") else {
            return;
        };
        let headers = starts(&seen);
        let keys: Vec<_> = headers.iter().map(|h| h.role.unwrap().image_key()).collect();
        assert_eq!(keys, [2, 1, 0], "{folder}");
        let counts: Vec<_> = headers.iter().map(|h| h.expected_frames).collect();
        assert_eq!(counts, [Some(2), Some(3), Some(91)], "{folder}");
        let rule = headers[2].angles.unwrap();
        assert!((rule.angle_rad(1).to_degrees() + 86.2).abs() < 1e-9, "{folder}: {rule:?}");
        assert!(headers.iter().all(|h| h.shape.is_none_or(|s| (s.rows, s.columns) == (33, 160))), "{folder}");
    }
}

#[test]
fn real_headers_are_read() {
    let Some(v1) = check("stream/dectris_v1_eiger1_1M", Protocol::DectrisV1, "") else {
        return;
    };
    let header = starts(&v1)[0];
    assert_eq!(header.series, Some(14));
    assert_eq!(header.metadata["header"]["description"], "Dectris EIGER1 Si 1M");
    assert_eq!(header.metadata["appendix"]["rotate"], 0);
    assert!((header.pixel_size_m.unwrap() - 75e-6).abs() < 1e-9);
    let Some(v2) = check("stream/dectris_v2_eiger_1M", Protocol::DectrisV2, "threshold_1") else {
        return;
    };
    let header = starts(&v2)[0];
    assert_eq!((header.series, header.expected_frames), (Some(16), Some(10)));
    assert_eq!(header.metadata["header"]["detector_description"], "Dectris EIGER1 Si 1M");
    assert!(header.metadata.to_string().len() < 4000, "tables stay out of the metadata");
}

#[test]
fn angles_travel_with_frames() {
    for (name, first) in [("array_1_0_adzmq", 1000), ("sls_receiver", 0)] {
        let Some(path) = data(&format!("stream_generated/json_payload/{name}")) else {
            return;
        };
        let mut found = 0;
        for (incoming, _) in decode(&path, Protocol::Auto, None).into_iter().flatten() {
            if let Incoming::Image(image) = incoming
                && let Some(angle) = image.angle_rad
            {
                // The stage was commanded to -88.2 degrees plus 2 a frame, and read back to 1e-4.
                let nominal = -88.2 + 2.0 * (image.number.unwrap() - first) as f64;
                assert!((angle.to_degrees() - nominal).abs() < 2e-4, "{name}: {}", angle.to_degrees());
                found += 1;
            }
        }
        assert!(found >= 2, "{name}: {found} angles");
    }
}

#[test]
fn incomplete_frames_are_refused_under_their_number() {
    let Some(path) = data("stream_generated/json_payload/sls_receiver") else {
        return;
    };
    let refused: Vec<_> =
        decode(&path, Protocol::JsonArray, None).into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].number, refused[0].is_frame), (Some(2), true));
}

#[test]
fn other_dialects_are_refused_by_name() {
    for (folder, name) in [
        ("stream_generated/json_payload/bsread", "bsr_m-1.1"),
        ("stream_generated/v2/i_bszstd", "bszstd"),
        ("stream/pandabox_pcap_json", "shape"),
    ] {
        let Some(path) = data(folder) else { return };
        let refused: Vec<_> =
            decode(&path, Protocol::Auto, None).into_iter().filter_map(Result::err).collect();
        assert!(!refused.is_empty(), "{folder}");
        assert!(refused.iter().all(|r| r.to_string().contains(name)), "{folder}: {}", refused[0]);
    }
}

#[test]
fn truncated_frames_decode_to_an_error_of_the_codec() {
    let Some(path) = data("stream/dectris_v1_eiger2_9M_truncated") else {
        return;
    };
    let mut decoder = Decoder::new(Protocol::DectrisV1, None);
    let mut refused = 0;
    for message in messages(&path) {
        let parts: Vec<&[u8]> = message.iter().map(Vec::as_slice).collect();
        match decoder.decode(&parts) {
            // 20000 bytes cannot stand for 40 MB: refused before a buffer is taken.
            Err(refusal) => {
                assert!(refusal.is_frame && refusal.number.is_some());
                refused += 1;
            }
            Ok(Incoming::Image(_)) => panic!("a truncated frame was taken"),
            Ok(_) => {}
        }
    }
    assert_eq!(refused, 3);
}

#[test]
fn adversarial_cbor_is_sorted_out() {
    let Some(path) = data("stream_generated/v2/z_adversarial_small") else {
        return;
    };
    let mut decoder = Decoder::new(Protocol::DectrisV2, None);
    let outcome: Vec<_> = messages(&path).iter().map(|message| decoder.decode(&[&message[0]])).collect();
    assert!(matches!(outcome[0], Ok(Incoming::Start(_))));
    let refused = outcome[1].as_ref().unwrap_err();
    assert_eq!((refused.series, refused.is_frame), (Some(41), true), "truncated, but its number is read");
    assert!(!outcome[2].as_ref().unwrap_err().is_frame, "empty");
}
