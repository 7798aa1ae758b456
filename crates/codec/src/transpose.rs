//! The bit transposition of bitshuffle, backwards: from rows of bits to elements.
//!
//! A block of `E` elements of `S` bytes is stored as `8 S` rows of `E / 8` bytes: row `8 k + b` holds bit `b`
//! of byte `k` of all elements, the first element in the lowest bit.
//!
//! Fast path, for 32 bytes of each row at a time: within the 8 rows of one byte plane, three rounds of
//! exchanges turn (row, bit) into (element, bit), on whole registers; then the bytes of all planes are
//! brought into element order by interleaving. The same code is compiled for the baseline (SSE2) and AVX2.

/// Bytes of each row that the fast path takes at once.
const CHUNK: usize = 32;

/// Turns rows of bits into elements of `element_bytes` bytes.
///
/// Both slices have the same length, a multiple of 8 elements.
pub(crate) fn untranspose(bits: &[u8], out: &mut [u8], element_bytes: usize) {
    let row_bytes = bits.len() / (8 * element_bytes);
    let done = fast(bits, out, element_bytes, row_bytes);
    for group in done..row_bytes {
        untranspose_group(bits, out, element_bytes, row_bytes, group);
    }
}

/// Turns byte `group` of each row into eight elements.
fn untranspose_group(bits: &[u8], out: &mut [u8], element_bytes: usize, row_bytes: usize, group: usize) {
    let out = &mut out[group * 8 * element_bytes..][..8 * element_bytes];
    for plane in 0..element_bytes {
        let rows = bits[8 * plane * row_bytes + group..].iter().step_by(row_bytes);
        let mut column = [0; 8];
        for (byte, row) in column.iter_mut().zip(rows) {
            *byte = *row;
        }
        let elements = transpose_8x8(u64::from_le_bytes(column)).to_le_bytes();
        for (element, byte) in elements.into_iter().enumerate() {
            out[element * element_bytes + plane] = byte;
        }
    }
}

/// Transposes the 8 x 8 bits of a word, one row a byte.
///
/// # Source
/// H. S. Warren, "Hacker's Delight", section 7-3.
fn transpose_8x8(mut x: u64) -> u64 {
    for (shift, mask) in [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0xF0F0_F0F0)] {
        let swapped = (x ^ (x >> shift)) & mask;
        x ^= swapped ^ (swapped << shift);
    }
    x
}

/// The fast path; gives how many bytes of each row were done.
#[cfg(target_arch = "x86_64")]
fn fast(bits: &[u8], out: &mut [u8], element_bytes: usize, row_bytes: usize) -> usize {
    if std::arch::is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code, reason = "enters code compiled for AVX2")]
        // SAFETY: the processor has AVX2, as was just asked.
        unsafe {
            x86::untranspose_avx2(bits, out, element_bytes, row_bytes)
        }
    } else {
        x86::untranspose_sse2(bits, out, element_bytes, row_bytes)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fast(_: &[u8], _: &mut [u8], _: usize, _: usize) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m128i, _mm_unpackhi_epi8, _mm_unpacklo_epi8};

    use super::CHUNK;

    /// A chunk of one row, as words so that the compiler takes the widest registers it has.
    type Row = [u64; CHUNK / 8];

    #[target_feature(enable = "avx2")]
    pub(super) fn untranspose_avx2(bits: &[u8], out: &mut [u8], element_bytes: usize, row: usize) -> usize {
        untranspose(bits, out, element_bytes, row)
    }

    pub(super) fn untranspose_sse2(bits: &[u8], out: &mut [u8], element_bytes: usize, row: usize) -> usize {
        untranspose(bits, out, element_bytes, row)
    }

    #[inline(always)]
    fn untranspose(bits: &[u8], out: &mut [u8], element_bytes: usize, row_bytes: usize) -> usize {
        match element_bytes {
            1 => all_chunks::<1, 8>(bits, out, row_bytes),
            2 => all_chunks::<2, 16>(bits, out, row_bytes),
            4 => all_chunks::<4, 16>(bits, out, row_bytes),
            8 => all_chunks::<8, 16>(bits, out, row_bytes),
            _ => 0,
        }
    }

    /// `S` is the size of an element, `N` the number of rows that are interleaved at once.
    #[inline(always)]
    fn all_chunks<const S: usize, const N: usize>(bits: &[u8], out: &mut [u8], row_bytes: usize) -> usize {
        let chunks = row_bytes / CHUNK;
        for chunk in 0..chunks {
            let mut planes = [[[0; CHUNK / 8]; 8]; S];
            for (plane, rows) in planes.iter_mut().enumerate() {
                for (bit, row) in rows.iter_mut().enumerate() {
                    *row = load(&bits[(8 * plane + bit) * row_bytes + chunk * CHUNK..]);
                }
                exchange(rows);
            }
            let out = &mut out[chunk * CHUNK * 8 * S..][..CHUNK * 8 * S];
            interleave::<S, N>(&planes, out);
        }
        chunks * CHUNK
    }

    #[inline(always)]
    fn load(bytes: &[u8]) -> Row {
        let mut row = [0; CHUNK];
        row.copy_from_slice(&bytes[..CHUNK]);
        bytemuck::cast(row)
    }

    /// Exchanges row and bit: afterwards row `j` holds, byte by byte, what was bit `j` of rows 0 to 7.
    #[inline(always)]
    fn exchange(rows: &mut [Row; 8]) {
        for (distance, mask) in [
            (4, 0x0F0F_0F0F_0F0F_0F0F_u64),
            (2, 0x3333_3333_3333_3333),
            (1, 0x5555_5555_5555_5555),
        ] {
            for upper in (0..8).filter(|row| row & distance == 0) {
                for word in 0..CHUNK / 8 {
                    let (a, b) = (rows[upper][word], rows[upper + distance][word]);
                    let swapped = ((a >> distance) ^ b) & mask;
                    rows[upper][word] = a ^ (swapped << distance);
                    rows[upper + distance][word] = b ^ swapped;
                }
            }
        }
    }

    /// Brings bytes from (plane, element of a group, group) into the order (group, element, plane).
    ///
    /// The `8 S` rows are taken `N` at a time, which gives 16 bytes of each group (of two groups for `S` = 1).
    #[inline(always)]
    fn interleave<const S: usize, const N: usize>(planes: &[[Row; 8]; S], out: &mut [u8]) {
        let groups_apart = 16.max(8 * S);
        for (half, out) in out.chunks_exact_mut(16 * 8 * S).enumerate() {
            for part in 0..8 * S / N {
                let mut rows: [__m128i; N] = std::array::from_fn(|row| {
                    let at = part * N + row;
                    let words = &planes[at % S][at / S];
                    bytemuck::cast([words[2 * half], words[2 * half + 1]])
                });
                shuffle(&mut rows);
                for (at, row) in rows.iter().enumerate() {
                    let bytes: [u8; 16] = bytemuck::cast(*row);
                    out[at * groups_apart + 16 * part..][..16].copy_from_slice(&bytes);
                }
            }
        }
    }

    /// Transposes `N` rows of 16 bytes by interleaving the lower with the upper half log2(N) times.
    #[inline(always)]
    fn shuffle<const N: usize>(rows: &mut [__m128i; N]) {
        for _ in 0..N.trailing_zeros() {
            let before = *rows;
            for at in 0..N / 2 {
                (rows[2 * at], rows[2 * at + 1]) = zip_bytes(before[at], before[at + N / 2]);
            }
        }
    }

    /// The bytes of `a` and `b` alternating: the first sixteen and the last sixteen.
    #[inline(always)]
    #[allow(unsafe_code, reason = "two instructions of SSE2")]
    fn zip_bytes(a: __m128i, b: __m128i) -> (__m128i, __m128i) {
        // SAFETY: SSE2 belongs to every x86-64 processor.
        let low = unsafe { _mm_unpacklo_epi8(a, b) };
        // SAFETY: as above.
        let high = unsafe { _mm_unpackhi_epi8(a, b) };
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bit by bit, as the definition says.
    fn transpose(elements: &[u8], element_bytes: usize) -> Vec<u8> {
        let count = elements.len() / element_bytes;
        let mut bits = vec![0; elements.len()];
        for element in 0..count {
            for bit in 0..8 * element_bytes {
                if elements[element * element_bytes + bit / 8] >> (bit % 8) & 1 == 1 {
                    bits[bit * count / 8 + element / 8] |= 1 << (element % 8);
                }
            }
        }
        bits
    }

    #[test]
    fn one_set_bit_lands_in_its_element() {
        let mut bits = vec![0; 32];
        bits[2 * 9] = 0b100; // bit 9 of element 2, of 16 elements of 2 bytes
        let mut out = vec![0; 32];
        untranspose(&bits, &mut out, 2);
        let mut expected = vec![0; 32];
        expected[2 * 2 + 1] = 0b10;
        assert_eq!(out, expected);
    }

    proptest! {
        #[test]
        fn all_paths_undo_the_definition(
            element_bytes in prop::sample::select(vec![1_usize, 2, 3, 4, 8]),
            groups in 1_usize..100,
            seed in any::<u64>(),
        ) {
            let mut state = seed | 1;
            let elements: Vec<u8> = (0..groups * 8 * element_bytes)
                .map(|_| { state ^= state << 13; state ^= state >> 7; state ^= state << 17; state as u8 })
                .collect();
            let bits = transpose(&elements, element_bytes);
            let mut out = vec![0xA5; elements.len()];
            untranspose(&bits, &mut out, element_bytes);
            prop_assert_eq!(&out, &elements);
            #[cfg(target_arch = "x86_64")]
            {
                let mut out = vec![0xA5; elements.len()];
                let done = x86::untranspose_sse2(&bits, &mut out, element_bytes, groups);
                let done = done * 8 * element_bytes;
                prop_assert_eq!(&out[..done], &elements[..done]);
            }
        }
    }
}
