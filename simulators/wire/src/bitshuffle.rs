//! Bitshuffle and LZ4 as detectors and HDF5 filters frame them.

use bytes::{BufMut, Bytes, BytesMut};
use lz4_flex::block::{compress_into, get_maximum_output_size};

/// Bytes of a bitshuffle block: the library's default, and what DECTRIS detectors send.
const BLOCK_BYTES: usize = 8192;
/// Most bytes of one block in HDF5's LZ4 framing.
const MAX_LZ4_BLOCK_BYTES: usize = 1 << 30;

/// Bitshuffle/LZ4 with the 12-byte header, as in a chunk of the HDF5 filter 32008.
///
/// Total bytes (u64) and block bytes (u32), then for each block its compressed length (u32, all big-endian) and an
/// LZ4 block of transposed bits; the last `count mod 8` elements follow as they are.
///
/// # Source
/// K. Masui et al., "A compression scheme for radio data in high performance computing", 2015,
/// doi:10.1016/j.ascom.2015.07.002; framing as in the HDF5 filter of that work.
pub(crate) fn bslz4(pixels: &[u8], element_bytes: usize) -> Bytes {
    let count = pixels.len() / element_bytes;
    let (shuffled, rest) = pixels.split_at((count - count % 8) * element_bytes);
    let mut out = BytesMut::with_capacity(12 + pixels.len() / 2);
    out.put_u64(pixels.len() as u64);
    out.put_u32(BLOCK_BYTES as u32);
    let mut transposed = [0; BLOCK_BYTES];
    for block in shuffled.chunks(BLOCK_BYTES) {
        let transposed = &mut transposed[..block.len()];
        transpose_bits(block, element_bytes, transposed);
        put_block(&mut out, transposed);
    }
    out.put_slice(rest);
    out.freeze()
}

/// One LZ4 block without any framing, as DECTRIS V1 `lz4<` carries it.
pub(crate) fn lz4_block(pixels: &[u8]) -> Bytes {
    lz4_flex::block::compress(pixels).into()
}

/// LZ4 with the framing of the HDF5 filter 32004, as DECTRIS V2 `lz4` carries it.
///
/// Total bytes (u64) and block bytes (u32), then for each block its length (u32, all big-endian) and its bytes, which
/// are the pixels themselves where LZ4 would not make them fewer.
pub(crate) fn lz4_hdf5(pixels: &[u8]) -> Bytes {
    let block_bytes = pixels.len().clamp(1, MAX_LZ4_BLOCK_BYTES);
    let mut out = BytesMut::new();
    out.put_u64(pixels.len() as u64);
    out.put_u32(block_bytes as u32);
    for block in pixels.chunks(block_bytes) {
        let packed = lz4_flex::block::compress(block);
        let kept = if packed.len() < block.len() { packed.as_slice() } else { block };
        out.put_u32(kept.len() as u32);
        out.put_slice(kept);
    }
    out.freeze()
}

/// Appends the length and the LZ4 block of `plain`.
fn put_block(out: &mut BytesMut, plain: &[u8]) {
    let mut packed = [0; get_maximum_output_size(BLOCK_BYTES)];
    // The buffer is as long as LZ4 can ask for, so compressing cannot fail.
    let length = compress_into(plain, &mut packed).unwrap_or_default();
    out.put_u32(length as u32);
    out.put_slice(&packed[..length]);
}

/// Writes bit `b` of byte `k` of all elements as row `8 k + b` of `to`, eight elements a byte, lowest bit first.
///
/// `from` holds a multiple of 8 elements; `to` is as long as `from`.
fn transpose_bits(from: &[u8], element_bytes: usize, to: &mut [u8]) {
    let row_bytes = from.len() / element_bytes / 8;
    for (group, elements) in from.chunks_exact(8 * element_bytes).enumerate() {
        for k in 0..element_bytes {
            let bytes = std::array::from_fn(|i| elements[i * element_bytes + k]);
            for (bit, byte) in transpose_8x8(bytes).into_iter().enumerate() {
                to[(8 * k + bit) * row_bytes + group] = byte;
            }
        }
    }
}

/// Transposes a matrix of 8 x 8 bits: bit `b` of byte `i` becomes bit `i` of byte `b`.
///
/// # Source
/// H. S. Warren, "Hacker's Delight", 2nd ed., 2012, section 7-3.
fn transpose_8x8(rows: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(rows);
    for (distance, mask) in
        [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)]
    {
        let swapped = (x ^ (x >> distance)) & mask;
        x ^= swapped ^ (swapped << distance);
    }
    x.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::data;
    use proptest::prelude::*;

    /// Splits a bslz4 blob into its transposed blocks and the rest, trusting it.
    fn blocks(blob: &[u8], element_bytes: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
        let total = u64::from_be_bytes(blob[..8].try_into().unwrap()) as usize;
        let block_bytes = u32::from_be_bytes(blob[8..12].try_into().unwrap()) as usize;
        let shuffled = total / element_bytes / 8 * 8 * element_bytes;
        let (mut at, mut done, mut out) = (12, 0, Vec::new());
        while done < shuffled {
            let plain = block_bytes.min(shuffled - done);
            let packed = u32::from_be_bytes(blob[at..at + 4].try_into().unwrap()) as usize;
            out.push(lz4_flex::block::decompress(&blob[at + 4..at + 4 + packed], plain).unwrap());
            (at, done) = (at + 4 + packed, done + plain);
        }
        (out, blob[at..].to_vec())
    }

    /// Undoes the transposing bit by bit.
    fn decode(blob: &[u8], element_bytes: usize) -> Vec<u8> {
        let (blocks, rest) = blocks(blob, element_bytes);
        let mut out = Vec::new();
        for block in blocks {
            let elements = block.len() / element_bytes;
            let mut plain = vec![0; block.len()];
            for row in 0..8 * element_bytes {
                for e in 0..elements {
                    let bit = block[row * (elements / 8) + e / 8] >> (e % 8) & 1;
                    plain[e * element_bytes + row / 8] |= bit << (row % 8);
                }
            }
            out.extend(plain);
        }
        out.extend(rest);
        out
    }

    #[test]
    fn bits_of_eight_elements_become_rows() {
        // Elements 0 to 7 of one byte: bit 0 is set in the odd ones, bit 1 in 2, 3, 6, 7, bit 2 in 4 to 7.
        let rows = transpose_8x8([0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(rows, [0b1010_1010, 0b1100_1100, 0b1111_0000, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn fewer_than_eight_elements_stay_as_they_are() {
        assert_eq!(&bslz4(&[1, 2, 3, 4], 2)[12..], [1, 2, 3, 4]);
    }

    #[test]
    fn transposed_blocks_equal_those_of_the_hdf5_filter() {
        let Some(folder) = data("compression") else { return };
        let mut compared = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "raw") {
                let raw = std::fs::read(&path).unwrap();
                let genuine = std::fs::read(path.with_extension("bslz4")).unwrap();
                let stem = path.file_stem().unwrap().to_str().unwrap();
                let element_bytes: usize = stem.rsplit("_u").next().unwrap().parse().unwrap();
                let own = bslz4(&raw, element_bytes);
                assert_eq!(own[..12], genuine[..12], "{stem}");
                assert_eq!(blocks(&own, element_bytes), blocks(&genuine, element_bytes), "{stem}");
                compared += 1;
            }
        }
        assert!(compared >= 10, "only {compared} arrays were found");
    }

    #[test]
    fn lz4_is_stored_plain_where_it_would_grow() {
        let noise: Vec<u8> = (0..64_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        let framed = lz4_hdf5(&noise);
        assert_eq!(framed[8..16], [0, 0, 0, 64, 0, 0, 0, 64]);
        assert_eq!(framed[16..], noise);
        let zeros = lz4_hdf5(&[0; 4096]);
        let packed = u32::from_be_bytes(zeros[12..16].try_into().unwrap()) as usize;
        assert_eq!(zeros.len(), 16 + packed);
        assert_eq!(lz4_flex::block::decompress(&zeros[16..], 4096).unwrap(), [0; 4096]);
        assert_eq!(lz4_flex::block::decompress(&lz4_block(&noise), 64).unwrap(), noise);
    }

    proptest! {
        #[test]
        fn every_array_is_decoded_to_itself(
            element_bytes in prop::sample::select(vec![1_usize, 2, 4]),
            count in 0_usize..6000,
            seed in any::<u32>(),
        ) {
            let pixels: Vec<u8> = (0..count * element_bytes)
                .map(|i| ((i as u32 / 5).wrapping_mul(seed | 1) >> 24) as u8)
                .collect();
            prop_assert_eq!(decode(&bslz4(&pixels, element_bytes), element_bytes), pixels);
        }
    }
}
