//! Decoding of compressed detector frames: LZ4 and bitshuffle/LZ4, in all the framings that detectors send.
//!
//! Whoever decodes knows the size of a frame and brings the buffer; nothing here allocates by a number
//! from the data, and data of any kind lead to pixels or to a [`CodecError`], never to a panic.
//!
//! LZ4 carries no checksum: a flipped byte can decode to wrong pixels without an error.

mod bitshuffle;
mod error;
mod lz4;
mod transpose;

pub use bitshuffle::{decode_hdf5_bitshuffle, has_bslz4_header};
pub use error::CodecError;

/// How the bytes of a frame are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Pixels as they are.
    None,
    /// One bare LZ4 block (DECTRIS V1 `lz4<`, areaDetector `lz4`).
    Lz4Block,
    /// HDF5 filter 32004: total, block size, then length and data of each block (DECTRIS V2 `lz4`).
    Lz4Hdf5,
    /// Bitshuffle/LZ4 behind the 12-byte header of HDF5 filter 32008 (DECTRIS `bsN-lz4<`, `bslz4`).
    Bslz4,
    /// Bitshuffle/LZ4 without header, in the library's default block size (areaDetector `bslz4`).
    Bslz4Headerless,
}

impl Compression {
    /// The most bytes that `packed` bytes can decode to: a check before a buffer is taken for them.
    ///
    /// LZ4 encodes at most 255 bytes by one.
    pub const fn max_decoded_bytes(self, packed: usize) -> usize {
        match self {
            Self::None => packed,
            _ => packed.saturating_mul(255),
        }
    }
}

/// Decodes `src` into `dst`, which must be exactly as long as the pixels.
///
/// `element_bytes` is the size of a pixel; only bitshuffle cares about it. Bytes behind the end of a
/// bitshuffle/LZ4 or HDF5-LZ4 stream are ignored: there are senders that strip a header and keep the length.
///
/// # Errors
/// [`CodecError`] if `src` does not decode to exactly `dst.len()` bytes; `dst` then holds a part of the pixels.
pub fn decode(
    compression: Compression,
    src: &[u8],
    dst: &mut [u8],
    element_bytes: usize,
) -> Result<(), CodecError> {
    match compression {
        Compression::None => copy(src, dst),
        Compression::Lz4Block => lz4::decode_block(src, dst),
        Compression::Lz4Hdf5 => lz4::decode_hdf5(src, dst),
        Compression::Bslz4 => bitshuffle::decode_with_header(src, dst, element_bytes),
        Compression::Bslz4Headerless => bitshuffle::decode_blocks(src, dst, element_bytes, 0),
    }
}

fn copy(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    if src.len() != dst.len() {
        return Err(CodecError::WrongSize { expected: dst.len() as u64, found: src.len() as u64 });
    }
    dst.copy_from_slice(src);
    Ok(())
}
