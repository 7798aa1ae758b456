//! One image as it is sent: reduced, with its grey levels, behind a header.

use beamstream_buffer::Block;
use beamstream_core::{Axes, Element, ElementType, Shape};
use bytemuck::Pod;
use bytes::Bytes;
use half::f16;

/// Longest edge of an image that is sent; larger ones are reduced.
const MAX_EDGE: usize = 1024;
/// Bytes before the pixels; a multiple of 8, so that the pixels of a message are aligned.
pub(crate) const HEADER_BYTES: usize = 64;
/// First bytes of an image message; the digit counts changes of the layout.
const MAGIC: &[u8; 4] = b"BSV1";
/// Pixels at most from which percentiles are taken.
const MAX_SAMPLES: usize = 65_536;
/// The percentiles that are sent, as fractions.
const LOW_PERCENTILE: f64 = 0.01;
const HIGH_PERCENTILE: f64 = 0.99;

/// Flag: a look at unfinished work.
const FLAG_PREVIEW: u8 = 1;
/// Flag: the highest integer marks pixels without a value.
const FLAG_GAPS: u8 = 2;

/// Where an image hangs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spot {
    /// Number of the view among the views of the run, by their names.
    pub(crate) view: u8,
    /// Number of the image within its view, from the lowest row to the highest.
    pub(crate) panel: u8,
}

/// An image, ready to be sent to any number of viewers.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    /// Where it hangs.
    pub(crate) spot: Spot,
    /// The slice's z, or 0 for frames.
    pub(crate) place: u64,
    /// Rises with every image of a view.
    pub(crate) version: u64,
    /// The message.
    pub(crate) bytes: Bytes,
}

impl Picture {
    /// Reads a block once; `None` if the host cannot see its pixels or there are none.
    pub(crate) fn new(spot: Spot, place: u64, version: u64, series: u64, block: &Block) -> Option<Self> {
        let reduced = Reduced::read(block)?;
        let bytes = encode(spot, place, version, series, block, &reduced);
        Some(Self { spot, place, version, bytes })
    }
}

/// The pixels of an image, reduced to what a screen shows. NaN: no value.
struct Reduced {
    shape: Shape,
    /// Pixels of the block per pixel, along each axis.
    factor: usize,
    values: Vec<f32>,
}

impl Reduced {
    fn read(block: &Block) -> Option<Self> {
        let format = block.format();
        if format.shape.is_empty() || !block.kind().is_host() {
            return None;
        }
        Some(match format.element {
            ElementType::U8 => Self::mean::<u8>(block),
            ElementType::U16 => Self::mean::<u16>(block),
            ElementType::U32 => Self::mean::<u32>(block),
            ElementType::I16 => Self::mean::<i16>(block),
            ElementType::I32 => Self::mean::<i32>(block),
            ElementType::F16 => Self::mean::<f16>(block),
            ElementType::F32 => Self::mean::<f32>(block),
        })
    }

    /// The mean over squares of `factor` x `factor` pixels; those at the far edges may be smaller.
    fn mean<T: Element + Pod>(block: &Block) -> Self {
        let format = block.format();
        let factor = format.shape.rows.max(format.shape.columns).div_ceil(MAX_EDGE);
        let shape = Shape::new(format.shape.rows.div_ceil(factor), format.shape.columns.div_ceil(factor));
        // No finite value is NaN: without a mark all of them count.
        let gap = gap_value(block).unwrap_or(f32::NAN).to_bits();
        let has_value = |value: f32| value.is_finite() && value.to_bits() != gap;
        let pixels: &[T] = bytemuck::cast_slice(block.bytes());
        let mut values = Vec::with_capacity(shape.len());
        if factor == 1 {
            let all = pixels.iter().map(|pixel| pixel.to_f32());
            values.extend(all.map(|value| if has_value(value) { value } else { f32::NAN }));
            return Self { shape, factor, values };
        }
        let (mut sums, mut counts) = (vec![0.0f32; format.shape.columns], vec![0.0f32; format.shape.columns]);
        for band in pixels.chunks(factor * format.shape.columns) {
            sums.fill(0.0);
            counts.fill(0.0);
            // Down the columns first: that is done for many columns at once.
            for row in band.chunks(format.shape.columns) {
                for ((pixel, sum), count) in row.iter().zip(&mut sums).zip(&mut counts) {
                    let value = pixel.to_f32();
                    let valid = has_value(value);
                    *sum += if valid { value } else { 0.0 };
                    *count += if valid { 1.0 } else { 0.0 };
                }
            }
            let squares = sums.chunks(factor).zip(counts.chunks(factor));
            // 0 / 0 is NaN: a square without a value.
            values
                .extend(squares.map(|(sums, counts)| sums.iter().sum::<f32>() / counts.iter().sum::<f32>()));
        }
        Self { shape, factor, values }
    }
}

/// The value by which a detector marks gaps and masked pixels. Slices have none: there it is mere saturation.
fn gap_value(block: &Block) -> Option<f32> {
    let format = block.format();
    let marks = format.axes == Axes::Frame && format.element != ElementType::U8;
    format.element.integer_max().filter(|_| marks).map(|max| max as f32)
}

/// Grey levels of an image.
#[derive(Debug, PartialEq)]
struct Levels {
    low: f32,
    high: f32,
    min: f32,
    max: f32,
}

impl Levels {
    /// The levels of all pixels that have a value; 0 to 1 if none has.
    fn of(values: &[f32]) -> Self {
        // `min` and `max` pass over NaN, and nothing else is left that is not finite.
        let (min, max) = values
            .iter()
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &value| (value.min(min), value.max(max)));
        // An odd step goes over all columns, even where their number is a power of two.
        let step = values.len().div_ceil(MAX_SAMPLES) | 1;
        let mut samples: Vec<f32> =
            values.iter().copied().step_by(step).filter(|value| !value.is_nan()).collect();
        let Some(last) = samples.len().checked_sub(1) else {
            return Self { low: 0.0, high: 1.0, min: 0.0, max: 1.0 };
        };
        let mut percentile = |fraction: f64| {
            let rank = (fraction * last as f64).round() as usize;
            *samples.select_nth_unstable_by(rank, f32::total_cmp).1
        };
        Self { low: percentile(LOW_PERCENTILE), high: percentile(HIGH_PERCENTILE), min, max }
    }
}

/// The message: see `docs/live-view.md`.
fn encode(spot: Spot, place: u64, version: u64, series: u64, block: &Block, image: &Reduced) -> Bytes {
    let levels = Levels::of(&image.values);
    let (element, size) = match block.format().element {
        ElementType::U8 => (0u8, 1),
        ElementType::U16 => (1, 2),
        _ => (2, 4),
    };
    let axes = match block.format().axes {
        Axes::Frame => 0u8,
        Axes::Sinogram => 1,
        Axes::Slice => 2,
    };
    let mut flags = 0;
    if block.meta.preview {
        flags |= FLAG_PREVIEW;
    }
    if gap_value(block).is_some() && element < 2 {
        flags |= FLAG_GAPS;
    }
    let mut message = Vec::with_capacity(HEADER_BYTES + image.values.len() * size);
    message.extend_from_slice(MAGIC);
    message.extend_from_slice(&(version as u32).to_le_bytes());
    message.extend_from_slice(&u32::try_from(place).unwrap_or(u32::MAX).to_le_bytes());
    message.extend_from_slice(&(image.shape.rows as u32).to_le_bytes());
    message.extend_from_slice(&(image.shape.columns as u32).to_le_bytes());
    message.extend_from_slice(&[element, flags, spot.view, spot.panel]);
    for level in [levels.low, levels.high, levels.min, levels.max] {
        message.extend_from_slice(&level.to_le_bytes());
    }
    message.extend_from_slice(&block.meta.epoch.to_le_bytes());
    message.extend_from_slice(&u16::try_from(image.factor).unwrap_or(u16::MAX).to_le_bytes());
    message.extend_from_slice(&[axes, 0]);
    message.extend_from_slice(&series.to_le_bytes());
    message.extend_from_slice(&block.meta.time.received_ns.to_le_bytes());
    message.resize(HEADER_BYTES + image.values.len() * size, 0);
    let pixels = message[HEADER_BYTES..].chunks_exact_mut(size).zip(&image.values);
    for (pixel, &value) in pixels {
        match element {
            0 => pixel[0] = integer(value, u8::MAX.into()) as u8,
            1 => pixel.copy_from_slice(&integer(value, u16::MAX).to_le_bytes()),
            _ => pixel.copy_from_slice(&value.to_le_bytes()),
        }
    }
    Bytes::from(message)
}

/// Means back to the integers that they were made from; a pixel without a value is a gap again.
fn integer(value: f32, gap: u16) -> u16 {
    if value.is_nan() { gap } else { value.round() as u16 }
}

#[cfg(test)]
mod tests {
    use beamstream_buffer::Pool;
    use beamstream_core::{BlockMeta, Format, FrameId, Role};
    use proptest::prelude::*;

    use super::*;

    fn block<T: Element + Pod>(format: Format, pixels: &[T]) -> Block {
        let pool = Pool::host("test", 1, format.bytes()).unwrap();
        let mut lease = pool.lease(format).unwrap();
        lease.elements_mut::<T>().unwrap().copy_from_slice(pixels);
        let mut meta = BlockMeta::new(FrameId::new(5), Role::Projection);
        meta.epoch = 3;
        meta.time.received_ns = 99;
        lease.freeze(meta)
    }

    fn picture(block: &Block) -> Vec<u8> {
        Picture::new(Spot { view: 1, panel: 2 }, 11, 4, 7, block).unwrap().bytes.to_vec()
    }

    fn u32_at(message: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(message[at..at + 4].try_into().unwrap())
    }

    fn f32_at(message: &[u8], at: usize) -> f32 {
        f32::from_bits(u32_at(message, at))
    }

    #[test]
    fn a_message_is_a_header_and_the_pixels() {
        let message = picture(&block(Format::frame(ElementType::U16, 2, 3), &[1u16, 2, 3, 4, 5, 600]));
        assert_eq!(&message[..4], b"BSV1");
        let numbers = [4, 8, 12, 16].map(|at| u32_at(&message, at));
        assert_eq!(numbers, [4, 11, 2, 3], "version, place, rows, columns");
        assert_eq!(message[20..24], [1, FLAG_GAPS, 1, 2], "element, flags, view, panel");
        assert_eq!([24, 28, 32, 36].map(|at| f32_at(&message, at)), [1.0, 600.0, 1.0, 600.0]);
        assert_eq!(u32_at(&message, 40), 3, "epoch");
        assert_eq!(message[44..48], [1, 0, 0, 0], "reduction, axes");
        assert_eq!((u32_at(&message, 48), u32_at(&message, 56)), (7, 99), "series, time");
        assert_eq!(message[HEADER_BYTES..], [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 88, 2]);
    }

    #[test]
    fn percentiles_leave_out_what_has_no_value() {
        let mut values: Vec<f32> = (0..=100u8).map(f32::from).collect();
        values.extend([f32::NAN; 3]);
        assert_eq!(Levels::of(&values), Levels { low: 1.0, high: 99.0, min: 0.0, max: 100.0 });
        assert_eq!(Levels::of(&[f32::NAN]), Levels { low: 0.0, high: 1.0, min: 0.0, max: 1.0 });
    }

    #[test]
    fn large_images_are_reduced_by_their_mean() {
        let format = Format::frame(ElementType::U16, 1, 2049);
        let mut pixels = vec![0u16; 2049];
        // Squares of three: a mean, one with a gap, one that is all gap.
        pixels[..9].copy_from_slice(&[1, 2, 6, 10, u16::MAX, 20, u16::MAX, u16::MAX, u16::MAX]);
        let message = picture(&block(format, &pixels));
        assert_eq!([u32_at(&message, 12), u32_at(&message, 16)], [1, 683]);
        assert_eq!(message[HEADER_BYTES..HEADER_BYTES + 6], [3, 0, 15, 0, 255, 255]);
        assert_eq!(f32_at(&message, 36), 15.0, "gaps are no maximum");
    }

    #[test]
    fn saturated_slices_keep_their_value() {
        let format = Format::slice(ElementType::U16, 1);
        assert_eq!(f32_at(&picture(&block(format, &[u16::MAX])), 36), 65_535.0);
    }

    #[test]
    fn other_types_become_f32() {
        let format = Format { axes: Axes::Slice, ..Format::frame(ElementType::F16, 1, 2) };
        let message = picture(&block(format, &[f16::from_f32(-1.5), f16::INFINITY]));
        assert_eq!(message[20], 2);
        assert_eq!(f32_at(&message, HEADER_BYTES), -1.5);
        assert!(f32_at(&message, HEADER_BYTES + 4).is_nan(), "what is not finite is no value");
        assert_eq!(f32_at(&message, 36), -1.5);
    }

    proptest! {
        #[test]
        fn every_shape_fits_the_screen(rows in 1usize..40, columns in 1000usize..5000, value in -10f32..10.0) {
            let format = Format { axes: Axes::Slice, ..Format::frame(ElementType::F32, rows, columns) };
            let message = picture(&block(format, &vec![value; rows * columns]));
            let (r, c) = (u32_at(&message, 12) as usize, u32_at(&message, 16) as usize);
            prop_assert!(r <= MAX_EDGE && c <= MAX_EDGE);
            prop_assert_eq!(message.len(), HEADER_BYTES + r * c * 4);
            prop_assert!((f32_at(&message, HEADER_BYTES + (r * c - 1) * 4) - value).abs() <= 1e-5 * value.abs());
        }
    }
}
