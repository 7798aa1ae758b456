//! Binning: fewer and larger pixels.

use beamstream_core::{Element, ElementType, Shape};

use crate::pixels::{PixelError, check_size, elements, saturation, with_element};

/// The shape of a frame whose pixels are `bin` x `bin` of those before; what is left over at the ends is dropped.
pub fn binned_shape(shape: Shape, bin: usize) -> Shape {
    let bin = bin.max(1);
    Shape::new(shape.rows / bin, shape.columns / bin)
}

/// Means over `bin` x `bin` pixels of a frame, given as bytes in native order.
///
/// Pixels that are NaN, infinite or at the integer maximum are left out; where all are, the result is NaN, so that
/// the flat-field correction sees it.
///
/// # Errors
/// If the frame or `out` has another size, or if the bytes are not aligned.
pub fn bin(
    frame: &[u8],
    element: ElementType,
    shape: Shape,
    bin: usize,
    out: &mut [f32],
) -> Result<(), PixelError> {
    let bin = bin.max(1);
    let binned = binned_shape(shape, bin);
    check_size(binned.len(), out.len())?;
    with_element!(element, T => {
        let pixels = elements::<T>(frame, element, shape.len())?;
        for (row, out) in out.chunks_mut(binned.columns.max(1)).enumerate() {
            bin_row(&pixels[row * bin * shape.columns..][..bin * shape.columns], shape.columns, bin, saturation(element), out);
        }
    });
    Ok(())
}

fn bin_row<T: Element>(rows: &[T], columns: usize, bin: usize, saturated: f32, out: &mut [f32]) {
    for (column, out) in out.iter_mut().enumerate() {
        let (mut sum, mut count) = (0.0_f32, 0.0_f32);
        for row in rows.chunks_exact(columns) {
            for pixel in &row[column * bin..][..bin] {
                let value = pixel.to_f32();
                if value.is_finite() && value < saturated {
                    sum += value;
                    count += 1.0;
                }
            }
        }
        *out = sum / count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_leave_out_masked_pixels_and_rests() {
        let frame: [u16; 15] = [1, 3, 10, 65535, 9, 5, 7, 20, 30, 9, 8, 8, 8, 8, 8];
        let mut out = [0.0; 2];
        bin(bytemuck::cast_slice(&frame), ElementType::U16, Shape::new(3, 5), 2, &mut out).unwrap();
        assert_eq!(out, [4.0, 20.0]);
        bin(&[255], ElementType::U8, Shape::new(1, 1), 1, &mut out[..1]).unwrap();
        assert!(out[0].is_nan());
        assert!(bin(&[0; 15], ElementType::U8, Shape::new(3, 5), 2, &mut [0.0; 3]).is_err());
    }
}
