//! Eight `f32` lanes, and the choice of instructions at run time.
//!
//! Computations are written once over [`Lanes`]; [`run`] compiles them twice, for AVX2 with FMA and for
//! whatever the target has at least, and takes what the processor can do.
//!
//! All code over [`Lanes`] is `#[inline(always)]`, and no closure touches a vector: what is not inlined is compiled
//! without AVX, and every instruction in it becomes a call.

#![allow(
    unsafe_code,
    reason = "vector instructions are unsafe to call where the compiler cannot see that they exist"
)]

use bytemuck::{Pod, Zeroable};

/// Lanes of a vector.
pub(crate) const WIDTH: usize = 8;

/// A complex number in each lane; as large as a cache line, and aligned to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Cell {
    /// Real parts.
    pub(crate) re: [f32; WIDTH],
    /// Imaginary parts.
    pub(crate) im: [f32; WIDTH],
}

/// Eight `f32` that are computed on at once.
pub(crate) trait Lanes: Copy {
    fn load(from: &[f32; WIDTH]) -> Self;
    fn store(self, to: &mut [f32; WIDTH]);
    fn splat(value: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self * factor + addend`, rounded once where the processor can.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// `addend - self * factor`, likewise.
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self;
    /// Asks for a cache line ahead of its use.
    fn prefetch(from: &[f32]);
    /// Lane `i` of the `j`-th becomes lane `j` of the `i`-th.
    fn transpose(rows: [Self; WIDTH]) -> [Self; WIDTH];
}

/// A computation that is written over any [`Lanes`].
pub(crate) trait Kernel {
    type Output;
    /// Implementations are `#[inline(always)]`, and so is all that they call over `V`.
    fn run<V: Lanes>(self) -> Self::Output;
}

/// Runs a kernel with the best instructions there are.
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has AVX2 and FMA, as was just asked.
        return unsafe { x86::run(kernel) };
    }
    kernel.run::<Portable>()
}

/// Lanes that any processor has; the compiler makes of them what it can.
#[derive(Clone, Copy)]
struct Portable([f32; WIDTH]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, op: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|lane| op(self.0[lane], other.0[lane])))
    }
}

impl Lanes for Portable {
    #[inline(always)]
    fn load(from: &[f32; WIDTH]) -> Self {
        Self(*from)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; WIDTH]) {
        *to = self.0;
    }

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; WIDTH])
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.mul(factor).add(addend)
    }

    #[inline(always)]
    fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        addend.sub(self.mul(factor))
    }

    #[inline(always)]
    fn prefetch(_: &[f32]) {}

    #[inline(always)]
    fn transpose(rows: [Self; WIDTH]) -> [Self; WIDTH] {
        std::array::from_fn(|i| Self(std::array::from_fn(|j| rows[j].0[i])))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, _MM_HINT_T1, _mm_prefetch, _mm256_add_ps, _mm256_fmadd_ps, _mm256_fnmadd_ps, _mm256_loadu_ps,
        _mm256_mul_ps, _mm256_permute2f128_ps, _mm256_set1_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
        _mm256_sub_ps, _mm256_unpackhi_ps, _mm256_unpacklo_ps,
    };

    use super::{Kernel, Lanes, WIDTH};

    /// Compiles a kernel for AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn run<K: Kernel>(kernel: K) -> K::Output {
        kernel.run::<Avx>()
    }

    /// Lanes of AVX. Private to this module, so that only `run` uses them.
    #[derive(Clone, Copy)]
    struct Avx(__m256);

    /// One instruction on registers. The safety is argued once, here, for all of them.
    macro_rules! instruction {
        ($call:expr) => {
            // SAFETY: values of `Avx` exist only inside of `run`, whose caller knows that there are AVX2 and FMA.
            unsafe { $call }
        };
    }

    /// The shuffles of a transpose, as functions that are inlined whatever happens: a closure that the compiler
    /// leaves alone would be compiled without AVX.
    macro_rules! shuffles {
        ($($name:ident => $instruction:expr;)*) => {$(
            #[inline(always)]
            fn $name(a: Avx, b: Avx) -> Avx {
                Avx(instruction!($instruction(a.0, b.0)))
            }
        )*};
    }

    shuffles! {
        low => _mm256_unpacklo_ps;
        high => _mm256_unpackhi_ps;
        first => _mm256_shuffle_ps::<0x44>;
        second => _mm256_shuffle_ps::<0xEE>;
        left => _mm256_permute2f128_ps::<0x20>;
        right => _mm256_permute2f128_ps::<0x31>;
    }

    impl Lanes for Avx {
        #[inline(always)]
        fn load(from: &[f32; WIDTH]) -> Self {
            // SAFETY: the reference is to eight floats; the load needs no alignment. AVX: as in `instruction`.
            Self(unsafe { _mm256_loadu_ps(from.as_ptr()) })
        }

        #[inline(always)]
        fn store(self, to: &mut [f32; WIDTH]) {
            // SAFETY: the reference is to eight floats; the store needs no alignment. AVX: as in `instruction`.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), self.0) }
        }

        #[inline(always)]
        fn splat(value: f32) -> Self {
            Self(instruction!(_mm256_set1_ps(value)))
        }

        #[inline(always)]
        fn add(self, other: Self) -> Self {
            Self(instruction!(_mm256_add_ps(self.0, other.0)))
        }

        #[inline(always)]
        fn sub(self, other: Self) -> Self {
            Self(instruction!(_mm256_sub_ps(self.0, other.0)))
        }

        #[inline(always)]
        fn mul(self, other: Self) -> Self {
            Self(instruction!(_mm256_mul_ps(self.0, other.0)))
        }

        #[inline(always)]
        fn mul_add(self, factor: Self, addend: Self) -> Self {
            Self(instruction!(_mm256_fmadd_ps(self.0, factor.0, addend.0)))
        }

        #[inline(always)]
        fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
            Self(instruction!(_mm256_fnmadd_ps(self.0, factor.0, addend.0)))
        }

        #[inline(always)]
        fn prefetch(from: &[f32]) {
            // SAFETY: a prefetch reads nothing that the program sees and cannot fault. AVX: as in `instruction`.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(from.as_ptr().cast()) }
        }

        #[inline(always)]
        fn transpose(rows: [Self; WIDTH]) -> [Self; WIDTH] {
            let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
            // Pairs of rows, then quarters of a column in each half, then whole columns.
            let (l01, h01, l23, h23) = (low(r0, r1), high(r0, r1), low(r2, r3), high(r2, r3));
            let (l45, h45, l67, h67) = (low(r4, r5), high(r4, r5), low(r6, r7), high(r6, r7));
            let (a0, a1, a2, a3) = (first(l01, l23), second(l01, l23), first(h01, h23), second(h01, h23));
            let (b0, b1, b2, b3) = (first(l45, l67), second(l45, l67), first(h45, h67), second(h45, h67));
            [
                left(a0, b0),
                left(a1, b1),
                left(a2, b2),
                left(a3, b3),
                right(a0, b0),
                right(a1, b1),
                right(a2, b2),
                right(a3, b3),
            ]
        }
    }
}

/// Loads eight vectors and transposes them.
#[inline(always)]
pub(crate) fn load_transposed<V: Lanes>(rows: &[[f32; WIDTH]; WIDTH]) -> [V; WIDTH] {
    let mut vectors = [V::splat(0.0); WIDTH];
    for lane in 0..WIDTH {
        vectors[lane] = V::load(&rows[lane]);
    }
    V::transpose(vectors)
}

/// A complex number in each lane, in registers.
#[derive(Clone, Copy)]
pub(crate) struct Complex<V> {
    pub(crate) re: V,
    pub(crate) im: V,
}

impl<V: Lanes> Complex<V> {
    #[inline(always)]
    pub(crate) fn load(cell: &Cell) -> Self {
        Self { re: V::load(&cell.re), im: V::load(&cell.im) }
    }

    #[inline(always)]
    pub(crate) fn store(self, cell: &mut Cell) {
        self.re.store(&mut cell.re);
        self.im.store(&mut cell.im);
    }

    #[inline(always)]
    pub(crate) fn zero() -> Self {
        Self { re: V::splat(0.0), im: V::splat(0.0) }
    }

    #[inline(always)]
    pub(crate) fn add(self, other: Self) -> Self {
        Self { re: self.re.add(other.re), im: self.im.add(other.im) }
    }

    #[inline(always)]
    pub(crate) fn sub(self, other: Self) -> Self {
        Self { re: self.re.sub(other.re), im: self.im.sub(other.im) }
    }

    /// `self * (re + i im)`.
    #[inline(always)]
    pub(crate) fn mul(self, re: V, im: V) -> Self {
        Self { re: self.im.neg_mul_add(im, self.re.mul(re)), im: self.im.mul_add(re, self.re.mul(im)) }
    }

    /// `self * factor` for a real factor.
    #[inline(always)]
    pub(crate) fn scale(self, factor: V) -> Self {
        Self { re: self.re.mul(factor), im: self.im.mul(factor) }
    }

    /// `-i * self`.
    #[inline(always)]
    pub(crate) fn turn_back(self) -> Self {
        Self { re: self.im, im: V::splat(0.0).sub(self.re) }
    }

    /// Real and imaginary part exchanged.
    #[inline(always)]
    pub(crate) fn swap(self) -> Self {
        Self { re: self.im, im: self.re }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Transpose([[f32; WIDTH]; WIDTH]);

    impl Kernel for Transpose {
        type Output = [[f32; WIDTH]; WIDTH];

        #[inline(always)]
        fn run<V: Lanes>(self) -> Self::Output {
            let columns = load_transposed::<V>(&self.0);
            let mut out = [[0.0; WIDTH]; WIDTH];
            for (to, column) in out.iter_mut().zip(columns) {
                column.store(to);
            }
            out
        }
    }

    #[test]
    fn transposing_is_the_same_with_any_instructions() {
        let square: [[f32; WIDTH]; WIDTH] =
            std::array::from_fn(|i| std::array::from_fn(|j| (10 * i + j) as f32));
        let expected: [[f32; WIDTH]; WIDTH] = std::array::from_fn(|i| std::array::from_fn(|j| square[j][i]));
        assert_eq!(run(Transpose(square)), expected);
        assert_eq!(Transpose(square).run::<Portable>(), expected);
    }
}
