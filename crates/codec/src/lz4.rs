//! LZ4 blocks by the C library, and the framing of HDF5 filter 32004.

#![allow(unsafe_code, reason = "one call of the C library")]

use std::ffi::c_int;

use crate::CodecError;
use crate::error::{split, split_u32, split_u64};

/// Decodes one bare LZ4 block that fills `dst` exactly.
pub(crate) fn decode_block(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    decode_numbered(0, src, dst)
}

/// Decodes block number `block`; the number is only for the error.
pub(crate) fn decode_numbered(block: u64, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let failed = CodecError::Lz4 { block, expected: dst.len() as u64 };
    let (Ok(src_len), Ok(dst_len)) = (c_int::try_from(src.len()), c_int::try_from(dst.len())) else {
        return Err(failed);
    };
    // SAFETY: both pointers are valid for the lengths given with them, and `LZ4_decompress_safe` neither
    // reads nor writes outside these, whatever the source holds.
    let decoded = unsafe {
        lz4_sys::LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len)
    };
    if usize::try_from(decoded) == Ok(dst.len()) { Ok(()) } else { Err(failed) }
}

/// Decodes HDF5's LZ4 framing: total (u64), block size (u32), then per block its length (u32) and data.
///
/// Numbers are big-endian. A block whose length equals its decoded size is stored as it is.
pub(crate) fn decode_hdf5(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let (total, src) = split_u64(src)?;
    let (block_bytes, mut src) = split_u32(src)?;
    if total != dst.len() as u64 {
        return Err(CodecError::WrongSize { expected: dst.len() as u64, found: total });
    }
    if block_bytes == 0 && !dst.is_empty() {
        return Err(CodecError::BlockSize { found: 0, element_bytes: 1 });
    }
    for (block, out) in dst.chunks_mut(block_bytes.max(1) as usize).enumerate() {
        let (length, rest) = split_u32(src)?;
        let (packed, rest) = split(rest, length as usize)?;
        if packed.len() == out.len() {
            out.copy_from_slice(packed);
        } else {
            decode_numbered(block as u64, packed, out)?;
        }
        src = rest;
    }
    Ok(())
}
