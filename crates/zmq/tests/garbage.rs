//! Messages of any content are refused or read, never a panic, and never an allocation by a number in them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use beamstream_zmq::protocol::{Decoder, Incoming, Protocol};
use proptest::prelude::*;

const ALL: [Protocol; 6] = [
    Protocol::Auto,
    Protocol::DectrisV1,
    Protocol::DectrisV2,
    Protocol::Concert,
    Protocol::Array,
    Protocol::JsonArray,
];

fn refused_by_all(parts: &[&[u8]]) {
    for protocol in ALL {
        let got = Decoder::new(protocol, None).decode(parts);
        assert!(got.is_err(), "{}: {got:?}", protocol.name());
    }
}

#[test]
fn garbage_is_refused() {
    let deep_json = vec![b'['; 200_000];
    let mut deep_cbor = vec![0x81; 200_000];
    deep_cbor.push(0);
    let mut deep_tags = vec![0xC1; 200_000];
    deep_tags.push(0);
    let binary: Vec<u8> = (0..=255).cycle().take(10_240).collect();
    let mut map_of_2_60 = vec![0xD9, 0xD9, 0xF7, 0xBB];
    map_of_2_60.extend((1_u64 << 60).to_be_bytes());
    let mut array_of_2_40 = vec![0x9B];
    array_of_2_40.extend((1_u64 << 40).to_be_bytes());
    for part in [
        b"{not json".as_slice(),
        &binary,
        b"",
        b"42",
        br#"["dimage-1.0"]"#,
        br#"{"htype":"surprise-9.9","series":7}"#,
        &deep_json,
        &deep_cbor,
        &deep_tags,
        &map_of_2_60,
        &array_of_2_40,
        b"{\"htype\":\"dimage-1.0\",\"series\":7,\"frame\":\x01\x02}",
    ] {
        refused_by_all(&[part]);
    }
    refused_by_all(&[]);
    refused_by_all(&[b"x".as_slice(); 64]);
}

#[test]
fn frames_with_odd_numbers_are_refused_as_frames() {
    for number in ["\"one\"", "-1", "99999999999999999999", "1.5", "null"] {
        let first = format!(r#"{{"htype":"dimage-1.0","series":7,"frame":{number}}}"#);
        let refusal =
            Decoder::new(Protocol::Auto, None).decode(&[first.as_bytes(), b"{}", b"", b"{}"]).unwrap_err();
        assert_eq!((refusal.series, refusal.number, refusal.is_frame), (Some(7), None, true), "{number}");
    }
}

/// A CBOR image message whose data map holds `value`.
fn image_with(value: &[u8]) -> Vec<u8> {
    let mut message = vec![0xD9, 0xD9, 0xF7, 0xA4];
    let text = |message: &mut Vec<u8>, text: &str| {
        message.push(0x60 | text.len() as u8);
        message.extend(text.as_bytes());
    };
    text(&mut message, "type");
    text(&mut message, "image");
    text(&mut message, "series_id");
    message.push(7);
    text(&mut message, "image_id");
    message.push(20);
    text(&mut message, "data");
    message.push(0xA1);
    text(&mut message, "threshold_1");
    message.extend(value);
    message
}

#[test]
fn cbor_that_claims_too_much_is_refused_under_its_number() {
    let dims = |extent: u64| {
        let mut value = vec![0xD8, 40, 0x82, 0x82];
        for _ in 0..2 {
            value.push(0x1B);
            value.extend(extent.to_be_bytes());
        }
        value.extend([0xD8, 69, 0x43, 1, 2, 3]);
        value
    };
    let mut long_bytes = vec![0xD8, 40, 0x82, 0x82, 4, 4, 0xD8, 69, 0x5B];
    long_bytes.extend((1_u64 << 40).to_be_bytes());
    let mut zip = vec![0xD8, 40, 0x82, 0x82, 1, 2, 0xD8, 69, 0xD9, 0xDC, 0xB4, 0x83, 0x63];
    zip.extend(b"zip\x02\x44abcd");
    for value in [dims(1 << 31), dims(1 << 63), dims(0), long_bytes, zip.clone(), vec![0x80], vec![0xF6]] {
        let message = image_with(&value);
        let refusal = Decoder::new(Protocol::Auto, None).decode(&[&message]).unwrap_err();
        assert_eq!((refusal.series, refusal.number, refusal.is_frame), (Some(7), Some(20), true));
    }
    let refusal = Decoder::new(Protocol::Auto, None).decode(&[&image_with(&zip)]).unwrap_err();
    assert!(refusal.to_string().contains("zip"), "{refusal}");
}

#[test]
fn another_protocol_is_refused_once_one_is_settled() {
    let mut decoder = Decoder::new(Protocol::Auto, None);
    assert_eq!(
        decoder.decode(&[br#"{"htype":"dseries_end-1.0","series":3}"#]),
        Ok(Incoming::End { series: Some(3) })
    );
    assert_eq!(decoder.protocol(), Protocol::DectrisV1);
    assert!(decoder.decode(&[br#"{"dtype":"uint8","shape":[1,2]}"#, b"ab"]).is_err());
}

proptest! {
    #[test]
    fn damaged_messages_never_panic(
        kind in 0_usize..4,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let seeds: [Vec<Vec<u8>>; 4] = [
            vec![
                br#"{"htype":"dimage-1.0","series":7,"frame":1}"#.to_vec(),
                br#"{"htype":"dimage_d-1.0","shape":[2,2],"type":"uint16","encoding":"<","size":8}"#.to_vec(),
                vec![0; 8],
            ],
            vec![image_with(&[0xD8, 40, 0x82, 0x82, 1, 2, 0xD8, 69, 0x44, 1, 2, 3, 4])],
            vec![br#"{"htype":"array-1.0","shape":[2,2],"type":"uint8","frame":3,"encoding":"bslz4"}"#.to_vec(), vec![1; 4]],
            vec![br#"{"dtype":"<u2","shape":[1,2],"mirror":true,"rotate":2}"#.to_vec(), vec![0; 4]],
        ];
        for part in 0..seeds[kind].len() {
            let mut message = seeds[kind].clone();
            let end = cut.index(message[part].len() + 1);
            message[part].truncate(end);
            if end > 0 {
                message[part][at.index(end)] = byte;
            }
            let parts: Vec<&[u8]> = message.iter().map(Vec::as_slice).collect();
            for protocol in ALL {
                drop(Decoder::new(protocol, None).decode(&parts));
            }
        }
    }
}
