//! The framing of bitshuffle and bitshuffle/LZ4.
//!
//! An array is cut into blocks of a multiple of 8 elements. What is left over is one shorter block, again of
//! a multiple of 8 elements, and then up to 7 elements that are stored as they are. Each block is a matrix of
//! bits, elements by bits, stored transposed (see `transpose`); with LZ4, each is compressed on its own
//! behind its length as a big-endian `u32`.
//!
//! # Source
//! K. Masui et al., "A compression scheme for radio data in high performance computing", Astronomy and
//! Computing 12 (2015), doi:10.1016/j.ascom.2015.07.002; checked against blobs of the HDF5 filters and of
//! DECTRIS detectors.

use crate::CodecError;
use crate::error::{split, split_u32, split_u64};
use crate::lz4;
use crate::transpose::untranspose;

/// Bytes that a block of the library's default size aims at.
const TARGET_BLOCK_BYTES: usize = 8192;
/// Elements of the smallest default block.
const MIN_BLOCK_ELEMENTS: usize = 128;
/// Blocks hold a multiple of this many elements.
const GROUP: usize = 8;

/// Whether `src` begins with the 12-byte header of a frame of `bytes` bytes.
///
/// Senders of one name differ in this; the header's first number is the frame's size, which no LZ4 block
/// begins with by accident.
pub fn has_bslz4_header(src: &[u8], bytes: usize) -> bool {
    src.len() >= 12 && split_u64(src).is_ok_and(|(total, _)| total == bytes as u64)
}

/// Decodes a chunk of HDF5 filter 32008 with the parameters that the data set states.
///
/// `cd_values`: major and minor version, element size in bytes, block size in elements (0 for the default),
/// compression (0 none, 2 LZ4; absent means none).
///
/// # Errors
/// [`CodecError`] if the parameters are not understood or `src` does not decode to `dst.len()` bytes.
pub fn decode_hdf5_bitshuffle(cd_values: &[u32], src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let &[_, _, element_bytes, ..] = cd_values else {
        return Err(CodecError::FilterParameters { found: cd_values.len() });
    };
    let block_elements = cd_values.get(3).copied().unwrap_or(0) as usize;
    match cd_values.get(4).copied().unwrap_or(0) {
        0 => decode_uncompressed(src, dst, element_bytes as usize, block_elements),
        2 => decode_with_header(src, dst, element_bytes as usize),
        found => Err(CodecError::Filter { found }),
    }
}

/// Decodes bitshuffle/LZ4 behind its header: size (u64) and block size in bytes (u32), big-endian.
pub(crate) fn decode_with_header(src: &[u8], dst: &mut [u8], element_bytes: usize) -> Result<(), CodecError> {
    let (total, src) = split_u64(src)?;
    let (block_bytes, src) = split_u32(src)?;
    if total != dst.len() as u64 {
        return Err(CodecError::WrongSize { expected: dst.len() as u64, found: total });
    }
    decode_blocks(src, dst, element_bytes, block_bytes as usize)
}

/// Decodes the blocks of bitshuffle/LZ4; a `block_bytes` of 0 stands for the default.
pub(crate) fn decode_blocks(
    mut src: &[u8],
    dst: &mut [u8],
    element_bytes: usize,
    block_bytes: usize,
) -> Result<(), CodecError> {
    let layout = Layout::new(dst.len(), element_bytes, block_bytes)?;
    let mut scratch = vec![0; layout.block_bytes.min(dst.len())];
    let (blocks, rest) = dst.split_at_mut(layout.blocked_bytes);
    for (block, out) in blocks.chunks_mut(layout.block_bytes).enumerate() {
        let (length, after) = split_u32(src)?;
        let (packed, after) = split(after, length as usize)?;
        let bits = &mut scratch[..out.len()];
        lz4::decode_numbered(block as u64, packed, bits)?;
        untranspose(bits, out, element_bytes);
        src = after;
    }
    let (stored, _) = split(src, rest.len())?;
    rest.copy_from_slice(stored);
    Ok(())
}

fn decode_uncompressed(
    src: &[u8],
    dst: &mut [u8],
    element_bytes: usize,
    block_elements: usize,
) -> Result<(), CodecError> {
    let layout = Layout::new(dst.len(), element_bytes, block_elements.saturating_mul(element_bytes))?;
    let (src, _) = split(src, dst.len())?;
    let (bits, stored) = src.split_at(layout.blocked_bytes);
    let (blocks, rest) = dst.split_at_mut(layout.blocked_bytes);
    for (block, out) in bits.chunks(layout.block_bytes).zip(blocks.chunks_mut(layout.block_bytes)) {
        untranspose(block, out, element_bytes);
    }
    rest.copy_from_slice(stored);
    Ok(())
}

/// How an array is cut into blocks.
struct Layout {
    /// Bytes of a full block.
    block_bytes: usize,
    /// Bytes in blocks, full or shorter; the rest is stored as it is.
    blocked_bytes: usize,
}

impl Layout {
    fn new(bytes: usize, element_bytes: usize, block_bytes: usize) -> Result<Self, CodecError> {
        if element_bytes == 0 || !bytes.is_multiple_of(element_bytes) {
            let element_bytes = element_bytes as u64;
            return Err(CodecError::ElementSize { bytes: bytes as u64, element_bytes });
        }
        let group_bytes = GROUP.saturating_mul(element_bytes);
        let block_bytes = if block_bytes == 0 {
            let elements = TARGET_BLOCK_BYTES / element_bytes / GROUP * GROUP;
            elements.max(MIN_BLOCK_ELEMENTS) * element_bytes
        } else {
            block_bytes
        };
        if !block_bytes.is_multiple_of(group_bytes) {
            return Err(CodecError::BlockSize {
                found: block_bytes as u64,
                element_bytes: element_bytes as u64,
            });
        }
        Ok(Self { block_bytes, blocked_bytes: bytes / group_bytes * group_bytes })
    }
}
