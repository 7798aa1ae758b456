//! The rotation axis, from two projections half a turn apart.

use beamstream_core::Shape;
use beamstream_ops::AxisEstimate;

use crate::pixels::{PixelError, check_size};

/// Bands of rows that are compared; the rows of a band are averaged.
const BANDS: usize = 32;
/// Columns that have to overlap, at least, as a part of all.
const MIN_OVERLAP: f64 = 0.4;
/// Confidence at most where the best place is the last that was tried.
const CONFIDENCE_AT_END: f64 = 0.3;

/// Finds the rotation axis from line integrals at 0 and 180 degrees, `(row, column)`.
///
/// The second projection is the mirror image of the first about the axis. Mirrored about the middle of the detector
/// and moved by `d` columns it is the first again, and the axis is at `(columns - 1 + d) / 2`. `d` is where the
/// correlation coefficient over the overlapping columns is highest, between columns by a parabola.
///
/// The confidence is that coefficient: near 1 for a sample, near 0 for noise, 0 for an empty or flat image.
/// Values that are not finite count as 0.
///
/// # Errors
/// If an image has another size.
pub fn rotation_axis(at_0: &[f32], at_180: &[f32], shape: Shape) -> Result<AxisEstimate, PixelError> {
    check_size(shape.len(), at_0.len())?;
    check_size(shape.len(), at_180.len())?;
    let columns = shape.columns;
    let middle_px = (columns as f64 - 1.0) / 2.0;
    let nothing = AxisEstimate { rotation_axis_px: middle_px, confidence: 0.0 };
    if shape.rows == 0 || columns < 4 {
        return Ok(nothing);
    }
    let bands: Vec<Band> = (0..BANDS.min(shape.rows))
        .map(|band| {
            let count = BANDS.min(shape.rows);
            let rows = band * shape.rows / count * columns..(band + 1) * shape.rows / count * columns;
            Band {
                first: mean_row(&at_0[rows.clone()], columns, false),
                mirrored: mean_row(&at_180[rows], columns, true),
            }
        })
        .collect();
    let most = ((1.0 - MIN_OVERLAP) * columns as f64) as isize;
    let values: Vec<f64> = (-most..=most).map(|shift| correlation(&bands, columns, shift)).collect();
    let Some((best, peak)) = values.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Ok(nothing);
    };
    if peak <= 0.0 {
        return Ok(nothing);
    }
    let neighbours = best.checked_sub(1).and_then(|before| values.get(before)).zip(values.get(best + 1));
    let (between, limit) = match neighbours {
        Some((before, after)) => (vertex(*before, peak, *after), 1.0),
        None => (0.0, CONFIDENCE_AT_END),
    };
    let shift = best as f64 - most as f64 + between;
    Ok(AxisEstimate { rotation_axis_px: middle_px + shift / 2.0, confidence: peak.min(limit) })
}

/// Some rows of both projections, averaged.
struct Band {
    first: Vec<f64>,
    mirrored: Vec<f64>,
}

fn mean_row(rows: &[f32], columns: usize, mirrored: bool) -> Vec<f64> {
    let mut mean = vec![0.0; columns];
    for row in rows.chunks_exact(columns) {
        for (mean, value) in mean.iter_mut().zip(row) {
            *mean += f64::from(if value.is_finite() { *value } else { 0.0 });
        }
    }
    let count = (rows.len() / columns).max(1) as f64;
    for value in &mut mean {
        *value /= count;
    }
    if mirrored {
        mean.reverse();
    }
    mean
}

/// Correlation coefficient of the first projections and the mirrored ones moved by `shift`, all bands together.
fn correlation(bands: &[Band], columns: usize, shift: isize) -> f64 {
    let overlap = columns - shift.unsigned_abs();
    let (mut product, mut first_square, mut other_square) = (0.0, 0.0, 0.0);
    for band in bands {
        let first = &band.first[shift.max(0) as usize..][..overlap];
        let other = &band.mirrored[(-shift).max(0) as usize..][..overlap];
        let mean = |values: &[f64]| values.iter().sum::<f64>() / overlap as f64;
        let (first_mean, other_mean) = (mean(first), mean(other));
        for (a, b) in first.iter().zip(other) {
            let (a, b) = (a - first_mean, b - other_mean);
            product += a * b;
            first_square += a * a;
            other_square += b * b;
        }
    }
    let scale = (first_square * other_square).sqrt();
    // Rounding of a flat image is no structure.
    if scale > 1e-12 * (columns * bands.len()) as f64 { product / scale } else { 0.0 }
}

/// Where a parabola through values at -1, 0 and 1 is highest.
fn vertex(before: f64, peak: f64, after: f64) -> f64 {
    let curvature = 2.0 * peak - before - after;
    if curvature > 0.0 { (0.5 * (after - before) / curvature).clamp(-0.5, 0.5) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    use beamstream_phantom as phantom;

    /// Rows of the phantom at 0 and 180 degrees.
    fn pair(columns: usize, rows: usize, axis_px: f64) -> [Vec<f32>; 2] {
        let at = |angle: f64| -> Vec<f32> {
            phantom::heights(rows)
                .iter()
                .flat_map(|z| phantom::sinogram(columns, &[angle], *z, axis_px))
                .collect()
        };
        [at(0.0), at(PI)]
    }

    /// Numbers in -1..1 without a pattern.
    fn noise(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn axis_of_the_phantom_is_found_between_columns() {
        for (columns, off) in [(128, -5.3), (129, 0.0), (200, 9.5), (128, 0.5), (64, 3.1), (97, -11.0)] {
            let axis_px = (columns as f64 - 1.0) / 2.0 + off;
            let [at_0, at_180] = pair(columns, 5, axis_px);
            let found = rotation_axis(&at_0, &at_180, Shape::new(5, columns)).unwrap();
            assert!((found.rotation_axis_px - axis_px).abs() < 0.1, "{columns} {axis_px}: {found:?}");
            assert!(found.confidence > 0.9, "{found:?}");
        }
    }

    #[test]
    fn columns_of_unequal_gain_do_not_mislead() {
        let (columns, rows, axis_px) = (160, 5, 84.2);
        let [mut at_0, mut at_180] = pair(columns, rows, axis_px);
        let gain = noise(columns, 7);
        for image in [&mut at_0, &mut at_180] {
            for (at, value) in image.iter_mut().enumerate() {
                *value += 0.08 * gain[at % columns];
            }
        }
        let found = rotation_axis(&at_0, &at_180, Shape::new(rows, columns)).unwrap();
        assert!((found.rotation_axis_px - axis_px).abs() < 0.25, "{found:?}");
    }

    #[test]
    fn nothing_to_see_gives_no_confidence() {
        let shape = Shape::new(3, 96);
        for seed in 1..20 {
            let found = rotation_axis(&noise(288, seed), &noise(288, seed + 100), shape).unwrap();
            assert!(found.confidence < 0.5, "{found:?}");
        }
        assert_eq!(rotation_axis(&[0.7; 288], &[0.7; 288], shape).unwrap().confidence, 0.0);
        assert_eq!(rotation_axis(&[0.7], &[0.7], Shape::new(1, 1)).unwrap().confidence, 0.0);
        assert!(rotation_axis(&[0.0; 3], &[0.0; 288], shape).is_err());
    }
}
