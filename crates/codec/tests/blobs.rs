//! Every blob of the reference encoders, every framing, byte for byte; damaged blobs; round trips.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use beamstream_codec::{CodecError, Compression, decode, decode_hdf5_bitshuffle, has_bslz4_header};
use beamstream_testkit::data;
use proptest::prelude::*;

fn decoded(
    compression: Compression,
    blob: &[u8],
    bytes: usize,
    element: usize,
) -> Result<Vec<u8>, CodecError> {
    let mut out = vec![0xA5; bytes];
    decode(compression, blob, &mut out, element)?;
    Ok(out)
}

#[test]
fn reference_blobs_decode_byte_for_byte() {
    let Some(folder) = data("compression") else { return };
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let arrays: Vec<serde_json::Value> = serde_json::from_slice(&manifest).unwrap();
    assert!(!arrays.is_empty());
    for array in &arrays {
        let name = array["name"].as_str().unwrap();
        let element: usize = array["dtype"].as_str().unwrap()[2..].parse().unwrap();
        let read = |form: &str| std::fs::read(folder.join(format!("{name}.{form}"))).unwrap();
        let raw = read("raw");
        let check = |form: &str, compression| {
            let got = decoded(compression, &read(form), raw.len(), element);
            assert!(got.as_ref() == Ok(&raw), "{name}.{form}: {:?}", got.err());
        };
        check("raw", Compression::None);
        check("bslz4", Compression::Bslz4);
        check("b136.bslz4", Compression::Bslz4);
        check("h5chunk.bslz4", Compression::Bslz4);
        check("lz4raw", Compression::Lz4Block);
        check("lz4h5", Compression::Lz4Hdf5);
        check("lz4h5_multi", Compression::Lz4Hdf5);
        check("h5chunk.lz4h5", Compression::Lz4Hdf5);

        let blob = read("bslz4");
        assert!(has_bslz4_header(&blob, raw.len()) && !has_bslz4_header(&blob[12..], raw.len()));
        assert_eq!(decoded(Compression::Bslz4Headerless, &blob[12..], raw.len(), element), Ok(raw.clone()));
        let mut out = vec![0; raw.len()];
        decode_hdf5_bitshuffle(&[0, 4, element as u32, 0, 2], &read("h5chunk.bslz4"), &mut out).unwrap();
        assert_eq!(out, raw);

        for other in [raw.len() - 1, raw.len() + element, 2 * raw.len()] {
            for form in ["bslz4", "lz4raw", "lz4h5", "lz4h5_multi"] {
                let compression = match form {
                    "bslz4" => Compression::Bslz4,
                    "lz4raw" => Compression::Lz4Block,
                    _ => Compression::Lz4Hdf5,
                };
                assert!(decoded(compression, &read(form), other, element).is_err(), "{name}.{form}");
            }
        }
    }
}

#[test]
fn damaged_blobs_are_refused() {
    let Some(folder) = data("compression/negative") else {
        return;
    };
    let raw = std::fs::read(folder.join("../i13_crop_135x160_u2.raw")).unwrap();
    let rules: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("README.json")).unwrap()).unwrap();
    for name in rules["cases"].as_object().unwrap().keys() {
        let blob = std::fs::read(folder.join(format!("{name}.bslz4"))).unwrap();
        let got = decoded(Compression::Bslz4, &blob, raw.len(), 2);
        match name.as_str() {
            "block_size_zero_means_default" | "trailing_garbage" => {
                assert_eq!(got, Ok(raw.clone()), "{name}");
            }
            // LZ4 has no checksum: whether a flipped byte is seen depends on where it lies.
            "flipped_byte_in_lz4" => assert_ne!(got, Ok(raw.clone())),
            _ => assert!(got.is_err(), "{name}"),
        }
    }
}

/// The bits of a block, from the definition.
fn transpose(elements: &[u8], size: usize) -> Vec<u8> {
    let count = elements.len() / size;
    let mut bits = vec![0; elements.len()];
    for element in 0..count {
        for bit in 0..8 * size {
            let set = elements[element * size + bit / 8] >> (bit % 8) & 1;
            bits[bit * count / 8 + element / 8] |= set << (element % 8);
        }
    }
    bits
}

/// An LZ4 block that only holds literals.
fn literals(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    if bytes.len() < 15 {
        out.push((bytes.len() as u8) << 4);
    } else {
        out.push(0xF0);
        let mut rest = bytes.len() - 15;
        while rest >= 255 {
            out.push(255);
            rest -= 255;
        }
        out.push(rest as u8);
    }
    out.extend(bytes);
    out
}

fn encode(pixels: &[u8], size: usize, block_elements: usize, compress: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if compress {
        out.extend((pixels.len() as u64).to_be_bytes());
        out.extend(((block_elements * size) as u32).to_be_bytes());
    }
    let blocked = pixels.len() / (8 * size) * 8 * size;
    for block in pixels[..blocked].chunks(block_elements * size) {
        let bits = transpose(block, size);
        if compress {
            let packed = literals(&bits);
            out.extend((packed.len() as u32).to_be_bytes());
            out.extend(packed);
        } else {
            out.extend(bits);
        }
    }
    out.extend(&pixels[blocked..]);
    out
}

proptest! {
    #[test]
    fn frames_of_any_size_round_trip(
        size in prop::sample::select(vec![1_usize, 2, 4, 8]),
        count in 0_usize..3000,
        block in 1_usize..80,
        seed in any::<u8>(),
    ) {
        let pixels: Vec<u8> = (0..count * size).map(|i| (i as u8).wrapping_mul(31) ^ seed ^ (i >> 8) as u8).collect();
        let block = 8 * block;
        let packed = encode(&pixels, size, block, true);
        prop_assert_eq!(decoded(Compression::Bslz4, &packed, pixels.len(), size), Ok(pixels.clone()));
        let parameters = [0, 4, size as u32, block as u32, 0];
        let mut out = vec![0; pixels.len()];
        decode_hdf5_bitshuffle(&parameters, &encode(&pixels, size, block, false), &mut out).unwrap();
        prop_assert_eq!(out, pixels);
    }

    #[test]
    fn anything_decodes_or_is_refused(
        blob in proptest::collection::vec(any::<u8>(), 0..300),
        bytes in 0_usize..5000,
        element in 0_usize..9,
        kind in 0_usize..5,
        honest in any::<bool>(),
    ) {
        let kinds = [Compression::None, Compression::Lz4Block, Compression::Lz4Hdf5, Compression::Bslz4,
                     Compression::Bslz4Headerless];
        let mut blob = blob;
        if honest && blob.len() >= 12 {
            blob[..8].copy_from_slice(&(bytes as u64).to_be_bytes());
        }
        drop(decoded(kinds[kind], &blob, bytes, element));
    }
}
