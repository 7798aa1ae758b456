//! Why a frame could not be decoded.

use thiserror::Error;

/// A frame could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The data stand for another number of bytes than the frame has.
    #[error("the frame has {expected} bytes, the data stand for {found}")]
    WrongSize {
        /// Bytes of the frame.
        expected: u64,
        /// Bytes that the data stand for.
        found: u64,
    },
    /// The data end before the frame is whole.
    #[error("the data end early: {expected} more bytes were expected, {found} are left")]
    Truncated {
        /// Bytes that should follow.
        expected: u64,
        /// Bytes that are left.
        found: u64,
    },
    /// A block size that the format does not allow.
    #[error("block size {found} bytes: expected a multiple of 8 elements of {element_bytes} bytes")]
    BlockSize {
        /// The block size in bytes, as the header says.
        found: u64,
        /// Bytes of one element.
        element_bytes: u64,
    },
    /// A block that is not valid LZ4, or decodes to another size.
    #[error("block {block} is not an LZ4 block of {expected} bytes")]
    Lz4 {
        /// Which block, from 0.
        block: u64,
        /// Bytes that the block should decode to.
        expected: u64,
    },
    /// An element size of zero, or one that does not divide the frame.
    #[error("{bytes} bytes cannot be divided into elements of {element_bytes} bytes")]
    ElementSize {
        /// Bytes of the frame.
        bytes: u64,
        /// Bytes of one element.
        element_bytes: u64,
    },
    /// HDF5 filter parameters that are not understood.
    #[error("bitshuffle filter with compression {found}: expected 0 (none) or 2 (lz4)")]
    Filter {
        /// The filter's code for the compression.
        found: u32,
    },
    /// HDF5 filter parameters that are missing.
    #[error("bitshuffle filter with {found} parameters: expected at least 3")]
    FilterParameters {
        /// How many there are.
        found: usize,
    },
}

/// The first `count` bytes and the rest.
pub(crate) fn split(src: &[u8], count: usize) -> Result<(&[u8], &[u8]), CodecError> {
    src.split_at_checked(count)
        .ok_or(CodecError::Truncated { expected: count as u64, found: src.len() as u64 })
}

/// A big-endian `u32` and the rest.
pub(crate) fn split_u32(src: &[u8]) -> Result<(u32, &[u8]), CodecError> {
    let (bytes, rest) =
        src.split_first_chunk().ok_or(CodecError::Truncated { expected: 4, found: src.len() as u64 })?;
    Ok((u32::from_be_bytes(*bytes), rest))
}

/// A big-endian `u64` and the rest.
pub(crate) fn split_u64(src: &[u8]) -> Result<(u64, &[u8]), CodecError> {
    let (bytes, rest) =
        src.split_first_chunk().ok_or(CodecError::Truncated { expected: 8, found: src.len() as u64 })?;
    Ok((u64::from_be_bytes(*bytes), rest))
}
