//! The bit transposition of bitshuffle, backwards: from rows of bits to elements.
//!
//! A block of `E` elements of `S` bytes is stored as `8 S` rows of `E / 8` bytes: row `8 k + b` holds bit `b`
//! of byte `k` of all elements, the first element in the lowest bit.
//!
//! Fast path, for a register's bytes of each row at a time: within the 8 rows of one byte plane, three rounds of
//! exchanges turn (row, bit) into (element, bit), on whole registers; then the bytes of all planes are
//! brought into element order by interleaving.

#![allow(unsafe_code, reason = "instructions that a processor may lack, unaligned loads and stores")]

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
        // SAFETY: the processor has AVX2, as was just asked.
        unsafe { avx2::untranspose(bits, out, element_bytes, row_bytes) }
    } else {
        // SAFETY: SSE2 belongs to every x86-64 processor.
        unsafe { sse2::untranspose(bits, out, element_bytes, row_bytes) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fast(_: &[u8], _: &mut [u8], _: usize, _: usize) -> usize {
    0
}

/// The fast path for one width of registers, written once: only the names of the instructions differ.
///
/// `$bytes` of each row are taken at once; a register has `$bytes / 16` lanes of 16 bytes, within which bytes are
/// interleaved.
#[cfg(target_arch = "x86_64")]
macro_rules! kernel {
    (
        $name:ident, $feature:literal, $bytes:literal, $register:ident, $load:ident, $set:ident, $xor:ident,
        $and:ident, $right:ident, $left:ident, $zip_low:ident, $zip_high:ident, $lanes:expr
    ) => {
        mod $name {
            #[allow(clippy::wildcard_imports, reason = "instructions")]
            use std::arch::x86_64::*;

            type Rows<const N: usize> = [$register; N];

            /// The fast path; gives how many bytes of each row were done.
            #[target_feature(enable = $feature)]
            pub(super) fn untranspose(
                bits: &[u8],
                out: &mut [u8],
                element_bytes: usize,
                row_bytes: usize,
            ) -> usize {
                match element_bytes {
                    1 => chunks::<1, 8>(bits, out, row_bytes),
                    2 => chunks::<2, 16>(bits, out, row_bytes),
                    4 => chunks::<4, 16>(bits, out, row_bytes),
                    8 => chunks::<8, 16>(bits, out, row_bytes),
                    _ => 0,
                }
            }

            /// `S` is the size of an element, `N` the number of rows that are interleaved at once.
            #[target_feature(enable = $feature)]
            fn chunks<const S: usize, const N: usize>(
                bits: &[u8],
                out: &mut [u8],
                row_bytes: usize,
            ) -> usize {
                let groups = row_bytes / $bytes * $bytes;
                for group in (0..groups).step_by($bytes) {
                    let mut planes = [[$set(0); 8]; S];
                    for (plane, rows) in planes.iter_mut().enumerate() {
                        for (bit, row) in rows.iter_mut().enumerate() {
                            *row = load(&bits[(8 * plane + bit) * row_bytes + group..]);
                        }
                        *rows = exchange(*rows);
                    }
                    interleave::<S, N>(&planes, &mut out[group * 8 * S..][..$bytes * 8 * S]);
                }
                groups
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn load(row: &[u8]) -> $register {
                let row = &row[..$bytes];
                // SAFETY: the slice has as many bytes as a register; its alignment does not matter.
                unsafe { $load(row.as_ptr().cast()) }
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn store(lane: __m128i, out: &mut [u8]) {
                let out = &mut out[..16];
                // SAFETY: the slice has 16 bytes; its alignment does not matter.
                unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), lane) }
            }

            /// Exchanges row and bit: afterwards row `j` holds, byte by byte, what was bit `j` of rows 0 to 7.
            #[inline]
            #[target_feature(enable = $feature)]
            fn exchange(rows: Rows<8>) -> Rows<8> {
                let [a, b, c, d, e, f, g, h] = rows;
                let mask = $set(0x0F);
                let ((a, e), (b, f)) = (swap::<4>(a, e, mask), swap::<4>(b, f, mask));
                let ((c, g), (d, h)) = (swap::<4>(c, g, mask), swap::<4>(d, h, mask));
                let mask = $set(0x33);
                let ((a, c), (b, d)) = (swap::<2>(a, c, mask), swap::<2>(b, d, mask));
                let ((e, g), (f, h)) = (swap::<2>(e, g, mask), swap::<2>(f, h, mask));
                let mask = $set(0x55);
                let ((a, b), (c, d)) = (swap::<1>(a, b, mask), swap::<1>(c, d, mask));
                let ((e, f), (g, h)) = (swap::<1>(e, f, mask), swap::<1>(g, h, mask));
                [a, b, c, d, e, f, g, h]
            }

            /// Swaps the bits of `upper` above `mask` with the bits of `lower` below it, within each byte.
            #[inline]
            #[target_feature(enable = $feature)]
            fn swap<const DISTANCE: i32>(
                upper: $register,
                lower: $register,
                mask: $register,
            ) -> ($register, $register) {
                let swapped = $and($xor($right::<DISTANCE>(upper), lower), mask);
                ($xor(upper, $left::<DISTANCE>(swapped)), $xor(lower, swapped))
            }

            /// Brings bytes from (plane, element of a group, group) into the order (group, element, plane).
            ///
            /// The `8 S` rows are taken `N` at a time, which gives 16 bytes of each group, of two groups for `S` = 1.
            #[inline]
            #[target_feature(enable = $feature)]
            fn interleave<const S: usize, const N: usize>(planes: &[Rows<8>; S], out: &mut [u8]) {
                let groups_apart = 16.max(8 * S);
                for part in 0..8 * S / N {
                    let mut rows = [$set(0); N];
                    for (at, row) in rows.iter_mut().enumerate() {
                        let at = part * N + at;
                        *row = planes[at % S][at / S];
                    }
                    // Interleaving the lower half with the upper half log2(N) times transposes the bytes.
                    for _ in 0..N.trailing_zeros() {
                        let before = rows;
                        for at in 0..N / 2 {
                            rows[2 * at] = $zip_low(before[at], before[at + N / 2]);
                            rows[2 * at + 1] = $zip_high(before[at], before[at + N / 2]);
                        }
                    }
                    for (at, row) in rows.into_iter().enumerate() {
                        for (lane, bytes) in $lanes(row).into_iter().enumerate() {
                            store(bytes, &mut out[lane * 16 * 8 * S + at * groups_apart + 16 * part..]);
                        }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernel!(
    avx2,
    "avx2",
    32,
    __m256i,
    _mm256_loadu_si256,
    _mm256_set1_epi8,
    _mm256_xor_si256,
    _mm256_and_si256,
    _mm256_srli_epi64,
    _mm256_slli_epi64,
    _mm256_unpacklo_epi8,
    _mm256_unpackhi_epi8,
    |row| [_mm256_castsi256_si128(row), _mm256_extracti128_si256::<1>(row)]
);

#[cfg(target_arch = "x86_64")]
kernel!(
    sse2,
    "sse2",
    16,
    __m128i,
    _mm_loadu_si128,
    _mm_set1_epi8,
    _mm_xor_si128,
    _mm_and_si128,
    _mm_srli_epi64,
    _mm_slli_epi64,
    _mm_unpacklo_epi8,
    _mm_unpackhi_epi8,
    |row| [row]
);

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
                // SAFETY: SSE2 belongs to every x86-64 processor.
                let done = unsafe { sse2::untranspose(&bits, &mut out, element_bytes, groups) };
                let done = done * 8 * element_bytes;
                prop_assert_eq!(&out[..done], &elements[..done]);
            }
        }
    }
}
