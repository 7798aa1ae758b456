//! The smaller levels of a volume, each half the size of the one before.

use beamstream_core::{ElementType, Format, Shape};
use bytemuck::{AnyBitPattern, NoUninit};
use half::f16;

/// Slices of this extent fit every screen: no smaller level is made of them.
const SMALLEST: usize = 64;

/// Number and extent of the slices of all levels of a volume, the whole one first.
///
/// Extents are halved and rounded up, so that the last voxels of an odd extent are in every level.
pub(super) fn extents(count: u64, shape: Shape) -> Vec<(u64, Shape)> {
    let smaller = |&(count, shape): &(u64, Shape)| {
        let is_small = shape.rows.max(shape.columns) <= SMALLEST;
        (!is_small && count > 0).then(|| (count.div_ceil(2), halved(shape)))
    };
    std::iter::successors(Some((count, shape)), smaller).collect()
}

fn halved(shape: Shape) -> Shape {
    Shape::new(shape.rows.div_ceil(2), shape.columns.div_ceil(2))
}

/// One slice of the next level: the mean of 2 x 2 x 2 voxels, of fewer at an odd end.
///
/// `format` is that of the given slices, one or two that lie above each other.
pub(super) fn mean_of(format: Format, slices: &[&[u8]]) -> Vec<u8> {
    match format.element {
        ElementType::U8 => mean::<u8>(format.shape, slices),
        ElementType::U16 => mean::<u16>(format.shape, slices),
        ElementType::U32 => mean::<u32>(format.shape, slices),
        ElementType::I16 => mean::<i16>(format.shape, slices),
        ElementType::I32 => mean::<i32>(format.shape, slices),
        ElementType::F16 => mean::<f16>(format.shape, slices),
        ElementType::F32 => mean::<f32>(format.shape, slices),
    }
}

/// A voxel, whose sums are exact in f64 for every type of up to 32 bits.
trait Voxel: AnyBitPattern + NoUninit {
    fn value(self) -> f64;
    fn nearest(value: f64) -> Self;
}

macro_rules! integer_voxel {
    ($($integer:ty),*) => {$(
        impl Voxel for $integer {
            fn value(self) -> f64 {
                f64::from(self)
            }
            fn nearest(value: f64) -> Self {
                value.round() as Self
            }
        }
    )*};
}
integer_voxel!(u8, u16, u32, i16, i32);

impl Voxel for f32 {
    fn value(self) -> f64 {
        f64::from(self)
    }
    fn nearest(value: f64) -> Self {
        value as Self
    }
}

impl Voxel for f16 {
    fn value(self) -> f64 {
        f64::from(self)
    }
    fn nearest(value: f64) -> Self {
        Self::from_f64(value)
    }
}

fn mean<V: Voxel>(shape: Shape, slices: &[&[u8]]) -> Vec<u8> {
    let small = halved(shape);
    let size = size_of::<V>();
    let mut means: Vec<V> = Vec::with_capacity(small.len());
    let mut sums = vec![0.0; small.columns];
    for y in 0..small.rows {
        let rows = 2 * y..shape.rows.min(2 * y + 2);
        sums.fill(0.0);
        for slice in slices {
            for row in rows.clone() {
                let line = &slice[row * shape.columns * size..][..shape.columns * size];
                for (x, voxel) in line.chunks_exact(size).enumerate() {
                    sums[x / 2] += bytemuck::pod_read_unaligned::<V>(voxel).value();
                }
            }
        }
        let lines = (rows.len() * slices.len()) as f64;
        means.extend(sums.iter().enumerate().map(|(x, sum)| {
            let columns = if 2 * x + 1 < shape.columns { 2.0 } else { 1.0 };
            V::nearest(sum / (lines * columns))
        }));
    }
    bytemuck::cast_slice(&means).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_end_at_a_size_that_fits_a_screen() {
        let levels = extents(5, Shape::new(200, 130));
        let expected = [(5, 200, 130), (3, 100, 65), (2, 50, 33)];
        assert_eq!(levels, expected.map(|(count, rows, columns)| (count, Shape::new(rows, columns))));
        assert_eq!(extents(4, Shape::new(64, 64)).len(), 1);
    }

    #[test]
    fn odd_ends_are_means_of_fewer_voxels() {
        let format = Format { shape: Shape::new(1, 3), ..Format::slice(ElementType::U16, 1) };
        let (one, other): ([u16; 3], [u16; 3]) = ([1, 3, 10], [5, 7, 21]);
        let small = mean_of(format, &[bytemuck::cast_slice(&one), bytemuck::cast_slice(&other)]);
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, u16>(&small), [4, 16]);
    }

    #[test]
    fn two_slices_of_floats_give_their_mean() {
        let format = Format::slice(ElementType::F32, 2);
        let (one, other) = ([1.0_f32, 2.0, 3.0, 4.0], [-1.0_f32, 0.0, 1.0, 2.0]);
        let small = mean_of(format, &[bytemuck::cast_slice(&one), bytemuck::cast_slice(&other)]);
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&small), [1.5]);
    }
}
