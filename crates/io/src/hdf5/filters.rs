//! The filters that chunks pass: compression, shuffling, checksums.

use std::io::Read;

use beamstream_codec::{Compression, decode, decode_hdf5_bitshuffle};

use super::bytes::Cursor;
use super::{Error, Result};

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
const LZF: u16 = 32_000;
const BLOSC: u16 = 32_001;
const LZ4: u16 = 32_004;
const BITSHUFFLE: u16 = 32_008;
const ZSTD: u16 = 32_015;

/// Most filters of a dataset by the specification.
const MAX_FILTERS: usize = 32;

/// One filter of a dataset with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    id: u16,
    name: String,
    parameters: Vec<u32>,
}

impl Filter {
    /// The filters of message 0x0B, in the order in which they were applied.
    pub(super) fn parse_all(body: &[u8]) -> Result<Vec<Self>> {
        let mut cursor = Cursor::new(body, "a filter");
        let version = cursor.u8()?;
        let count = usize::from(cursor.u8()?);
        cursor.skip(if version == 1 { 6 } else { 0 })?;
        if count > MAX_FILTERS || !matches!(version, 1 | 2) {
            return Err(Error::Malformed("a filter"));
        }
        let mut filters = Vec::with_capacity(count);
        for _ in 0..count {
            let id = cursor.u16()?;
            // Version 2 leaves out the names of the filters of the HDF5 library itself.
            let name_size = if version == 1 || id >= 256 { usize::from(cursor.u16()?) } else { 0 };
            cursor.skip(2)?;
            let parameter_count = usize::from(cursor.u16()?);
            let padded = if version == 1 { name_size.next_multiple_of(8) } else { name_size };
            let name = super::bytes::text(cursor.take(padded)?);
            let parameters = (0..parameter_count).map(|_| cursor.u32()).collect::<Result<Vec<_>>>()?;
            cursor.skip(if version == 1 && parameter_count % 2 == 1 { 4 } else { 0 })?;
            filters.push(Self { id, name, parameters });
        }
        Ok(filters)
    }

    /// The name for people.
    pub(crate) fn label(&self) -> String {
        let known = match self.id {
            DEFLATE => "deflate",
            SHUFFLE => "shuffle",
            FLETCHER32 => "fletcher32",
            LZF => "lzf",
            LZ4 => "lz4",
            BITSHUFFLE => "bitshuffle",
            BLOSC => "blosc",
            ZSTD => "zstd",
            4 => "szip",
            32_013 => "zfp",
            32_026 => "blosc2",
            _ => self.name.as_str(),
        };
        format!("{known} (HDF5 filter {})", self.id)
    }

    /// Fails, with the name of the filter, if chunks cannot be decoded.
    pub(super) fn check(&self) -> Result<()> {
        match self.id {
            DEFLATE | SHUFFLE | FLETCHER32 | LZF | BLOSC | LZ4 | BITSHUFFLE | ZSTD => Ok(()),
            _ => Err(Error::Unsupported(format!("data compressed with {}", self.label()))),
        }
    }

    /// Undoes the filter on `stored`, giving `len` bytes.
    fn undo(&self, stored: &[u8], len: usize) -> Result<Vec<u8>> {
        let damaged = || Error::Malformed("a compressed chunk");
        match self.id {
            DEFLATE => inflate(stored, len),
            SHUFFLE => Ok(unshuffle(stored, self.parameters.first().map_or(1, |&size| size as usize))),
            FLETCHER32 => {
                let (data, checksum) = stored.split_last_chunk::<4>().ok_or_else(damaged)?;
                let good = fletcher32(data) == u32::from_le_bytes(*checksum);
                if good { Ok(data.to_vec()) } else { Err(Error::Malformed("the checksum of a chunk")) }
            }
            LZF => lzf(stored, len).ok_or_else(damaged),
            BLOSC => super::blosc::decode_chunk(stored, len),
            ZSTD => unzstd(stored, len),
            LZ4 => {
                let mut decoded = vec![0; len];
                decode(Compression::Lz4Hdf5, stored, &mut decoded, 1)?;
                Ok(decoded)
            }
            BITSHUFFLE => bitshuffle(&self.parameters, stored, len),
            _ => Err(Error::Unsupported(format!("data compressed with {}", self.label()))),
        }
    }
}

/// Undoes all filters on a stored chunk, giving its `len` bytes.
pub(super) fn undo_all(filters: &[Filter], mask: u32, stored: Vec<u8>, len: usize) -> Result<Vec<u8>> {
    let is_active = |at: usize| mask >> at & 1 == 0;
    let mut bytes = stored;
    for (at, filter) in filters.iter().enumerate().rev().filter(|(at, _)| is_active(*at)) {
        // What a filter was given is the chunk, longer by the checksums that were put on before.
        let checksums =
            filters.iter().enumerate().take(at).filter(|(i, f)| is_active(*i) && f.id == FLETCHER32);
        bytes = filter.undo(&bytes, len + 4 * checksums.count())?;
    }
    if bytes.len() == len { Ok(bytes) } else { Err(Error::Malformed("a compressed chunk")) }
}

/// Bitshuffle, alone, with LZ4 or with zstd.
fn bitshuffle(parameters: &[u32], stored: &[u8], len: usize) -> Result<Vec<u8>> {
    /// Parameter 4 for zstd.
    const WITH_ZSTD: u32 = 3;
    let mut decoded = vec![0; len];
    if parameters.get(4) != Some(&WITH_ZSTD) {
        decode_hdf5_bitshuffle(parameters, stored, &mut decoded)?;
        return Ok(decoded);
    }
    // As with LZ4: the size, the size of a block, then each block behind its length; a rest of less than eight
    // elements is stored as it is.
    let element_size = parameters.get(2).copied().unwrap_or(1).max(1);
    let big_endian = |bytes: &[u8]| bytes.iter().fold(0_usize, |value, &byte| value << 8 | usize::from(byte));
    let mut cursor = Cursor::new(stored, "a compressed chunk");
    let total = big_endian(cursor.take(8)?);
    let block_bytes = big_endian(cursor.take(4)?);
    if total != len || block_bytes == 0 || block_bytes % (8 * element_size as usize) != 0 {
        return Err(Error::Malformed("a compressed chunk"));
    }
    let in_eights = len - len % (8 * element_size as usize);
    let mut shuffled = Vec::with_capacity(len);
    while shuffled.len() < in_eights {
        let size = big_endian(cursor.take(4)?);
        let block = unzstd(cursor.take(size)?, block_bytes.min(in_eights - shuffled.len()))?;
        shuffled.extend(block);
    }
    shuffled.extend_from_slice(cursor.take(len - in_eights)?);
    let block_elements = block_bytes as u32 / element_size;
    decode_hdf5_bitshuffle(&[0, 0, element_size, block_elements, 0], &shuffled, &mut decoded)?;
    Ok(decoded)
}

/// A zstd frame of `len` bytes.
pub(crate) fn unzstd(stored: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut decoded = vec![0; len];
    match ruzstd::decoding::FrameDecoder::new().decode_all(stored, &mut decoded) {
        Ok(found) if found == len => Ok(decoded),
        Ok(_) | Err(_) => Err(Error::Malformed("a compressed chunk")),
    }
}

pub(crate) fn inflate(stored: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut decoded = Vec::with_capacity(len);
    let mut decoder = flate2::Decompress::new(true);
    match decoder.decompress_vec(stored, &mut decoded, flate2::FlushDecompress::Finish) {
        Ok(flate2::Status::StreamEnd) if decoded.len() == len => Ok(decoded),
        Ok(_) | Err(_) => Err(Error::Malformed("a compressed chunk")),
    }
}

/// A gzip file of `len` bytes; `None` if it is damaged.
pub(crate) fn gunzip(stored: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(len);
    let read = flate2::read::GzDecoder::new(stored).take(len as u64 + 1).read_to_end(&mut decoded);
    (read.ok()? == len).then_some(decoded)
}

/// Byte `b` of every element was stored together; what does not fill an element is left at the end.
pub(super) fn unshuffle(stored: &[u8], element_size: usize) -> Vec<u8> {
    let elements = stored.len() / element_size.max(1);
    if element_size < 2 || elements < 2 {
        return stored.to_vec();
    }
    let mut plain = stored.to_vec();
    for (byte, plane) in stored.chunks_exact(elements).take(element_size).enumerate() {
        for (to, from) in plain.iter_mut().skip(byte).step_by(element_size).zip(plane) {
            *to = *from;
        }
    }
    plain
}

/// Fletcher's checksum over big-endian 16-bit words, as the HDF5 library computes it.
fn fletcher32(data: &[u8]) -> u32 {
    /// Most words whose sums fit without a reduction.
    const BLOCK: usize = 360;
    let (mut low, mut high) = (0_u32, 0_u32);
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let words = data.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)));
    for (at, word) in words.enumerate() {
        low += word;
        high += low;
        if at % BLOCK == BLOCK - 1 {
            (low, high) = (fold(low), fold(high));
        }
    }
    (low, high) = (fold(fold(low)), fold(fold(high)));
    high << 16 | low
}

/// M. Lehmann's LZF, h5py's own filter; `None` if the data are damaged.
fn lzf(stored: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(len);
    let mut at = 0;
    while at < stored.len() {
        let control = usize::from(stored[at]);
        at += 1;
        if control < 32 {
            let literal = stored.get(at..at + control + 1)?;
            out.extend_from_slice(literal);
            at += control + 1;
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += usize::from(*stored.get(at)?);
                at += 1;
            }
            let back = ((control & 0x1f) << 8) + usize::from(*stored.get(at)?) + 1;
            at += 1;
            let from = out.len().checked_sub(back)?;
            if out.len() + count + 2 > len {
                return None;
            }
            // The copy may overlap what it writes, so it goes byte by byte.
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > len {
            return None;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shuffled_bytes_return_to_their_elements() {
        assert_eq!(unshuffle(&[1, 3, 5, 2, 4, 6], 2), [1, 2, 3, 4, 5, 6]);
        assert_eq!(unshuffle(&[1, 3, 2, 4, 9], 2), [1, 2, 3, 4, 9], "the odd byte stays at the end");
    }

    #[test]
    fn lzf_repeats_what_came_before() {
        // "ab" as it is, then 4 bytes from 2 back.
        assert_eq!(lzf(&[1, b'a', b'b', 2 << 5, 1], 6).unwrap(), b"ababab");
        assert_eq!(lzf(&[2 << 5, 1], 6), None, "nothing to repeat");
    }

    proptest! {
        #[test]
        fn damaged_chunks_are_refused_not_believed(stored in proptest::collection::vec(any::<u8>(), 0..200), id in 0_usize..8) {
            let id = [DEFLATE, SHUFFLE, FLETCHER32, LZF, LZ4, BITSHUFFLE, BLOSC, ZSTD][id];
            let filter = Filter { id, name: String::new(), parameters: vec![0, 3, 2, 0, 2] };
            if let Ok(decoded) = undo_all(&[filter], 0, stored, 64) {
                prop_assert_eq!(decoded.len(), 64);
            }
        }
    }
}
