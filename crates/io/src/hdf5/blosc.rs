//! Blosc chunks (HDF5 filter 32001): blocks of streams, each compressed on its own.
//!
//! # Source
//! F. Alted and others, "Blosc Chunk Format", `README_CHUNK_FORMAT` of c-blosc 1.21.

use beamstream_codec::{Compression, decode, decode_hdf5_bitshuffle};

use super::bytes::Cursor;
use super::filters::{inflate, unshuffle, unzstd};
use super::{Error, Result};

const HEADER_BYTES: usize = 16;

/// What the flags of a chunk say.
#[derive(Clone, Copy)]
struct Flags(u8);

impl Flags {
    const fn is_byte_shuffled(self) -> bool {
        self.0 & 0x01 != 0
    }

    const fn is_copied(self) -> bool {
        self.0 & 0x02 != 0
    }

    const fn is_bit_shuffled(self) -> bool {
        self.0 & 0x04 != 0
    }

    const fn is_split(self) -> bool {
        self.0 & 0x10 == 0
    }

    const fn codec(self) -> u8 {
        self.0 >> 5
    }
}

/// Decodes a chunk to its `len` bytes.
pub(crate) fn decode_chunk(stored: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut header = Cursor::new(stored, "a blosc chunk");
    header.skip(2)?;
    let flags = Flags(header.u8()?);
    let element_size = usize::from(header.u8()?).max(1);
    let (decoded, block_size) = (header.u32()? as usize, header.u32()? as usize);
    header.skip(4)?;
    if decoded != len || block_size == 0 || block_size > len.max(1) {
        return Err(Error::Malformed("a blosc chunk"));
    }
    let mut out = Vec::with_capacity(len);
    if flags.is_copied() {
        out.extend_from_slice(header.take(len)?);
        return Ok(out);
    }
    for _ in 0..len.div_ceil(block_size) {
        let start = header.u32()? as usize;
        let block_len = block_size.min(len - out.len());
        let streams = if flags.is_split() && block_len == block_size { element_size } else { 1 };
        let from = stored.get(start.max(HEADER_BYTES)..).unwrap_or_default();
        let mut cursor = Cursor::new(from, "a blosc chunk");
        let mut block = Vec::with_capacity(block_len);
        for _ in 0..streams {
            let stream_len = block_len / streams;
            let size = cursor.u32()? as usize;
            let stream = cursor.take(size)?;
            if size == stream_len {
                block.extend_from_slice(stream);
            } else {
                block.extend(decode_stream(flags, stream, stream_len)?);
            }
        }
        out.extend(restore_order(flags, block, element_size)?);
    }
    Ok(out)
}

fn decode_stream(flags: Flags, stream: &[u8], len: usize) -> Result<Vec<u8>> {
    match flags.codec() {
        1 => {
            let mut decoded = vec![0; len];
            decode(Compression::Lz4Block, stream, &mut decoded, 1)?;
            Ok(decoded)
        }
        3 => inflate(stream, len),
        4 => unzstd(stream, len),
        0 => Err(Error::Unsupported("blosc with BloscLZ".to_owned())),
        2 => Err(Error::Unsupported("blosc with Snappy".to_owned())),
        codec => Err(Error::Unsupported(format!("blosc with codec {codec}"))),
    }
}

/// Undoes the shuffling of a block. Bits are shuffled only if the elements come in eights.
fn restore_order(flags: Flags, block: Vec<u8>, element_size: usize) -> Result<Vec<u8>> {
    let elements = block.len() / element_size;
    if flags.is_byte_shuffled() {
        return Ok(unshuffle(&block, element_size));
    }
    if !flags.is_bit_shuffled() || !elements.is_multiple_of(8) || elements == 0 {
        return Ok(block);
    }
    let mut plain = block.clone();
    let whole = elements * element_size;
    let parameters = [0, 0, element_size as u32, elements as u32, 0];
    decode_hdf5_bitshuffle(&parameters, &block[..whole], &mut plain[..whole])?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(flags: u8, decoded: u32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2, 1, flags, 2];
        for number in [decoded, decoded, 16 + rest.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn copied_and_stored_streams_come_back() {
        assert_eq!(decode_chunk(&chunk(0x02, 4, &[1, 2, 3, 4]), 4).unwrap(), [1, 2, 3, 4]);
        // One block at 20, of two streams that did not shrink; their bytes are shuffled.
        let streams =
            [&20_u32.to_le_bytes()[..], &2_u32.to_le_bytes(), &[1, 3], &2_u32.to_le_bytes(), &[2, 4]]
                .concat();
        assert_eq!(decode_chunk(&chunk(0x21, 4, &streams), 4).unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(decode_chunk(&chunk(0x02, 4, &[1, 2]), 4).is_err());
        assert!(decode_chunk(&chunk(0x02, 5, &[1, 2, 3, 4, 5]), 4).is_err());
        assert!(decode_chunk(&chunk(0x21, 4, &u32::MAX.to_le_bytes()), 4).is_err());
    }
}
