//! An analytic phantom: ellipsoids whose line integrals are known exactly.
//!
//! Lengths are in units of half the field of view, which reaches from -1 to 1 over the columns of the detector.

/// One ellipsoid; its third axis stands along the rotation axis.
struct Ellipsoid {
    /// Centre: x, y, z.
    centre: [f64; 3],
    /// Half axes.
    half_axes: [f64; 3],
    /// Angle of the first half axis to x, in radians.
    turn_rad: f64,
    /// Attenuation, added to that of the ellipsoids around.
    density: f64,
}

/// An ellipsoid cut at a height.
#[derive(Clone)]
struct Ellipse {
    centre: [f64; 2],
    half_axes: [f64; 2],
    /// Angle of the first half axis to x, in radians, with its sine and cosine.
    turn_rad: f64,
    turn_sin_cos: (f64, f64),
    density: f64,
}

const fn ellipsoid(centre: [f64; 3], half_axes: [f64; 3], turn_deg: f64, density: f64) -> Ellipsoid {
    Ellipsoid { centre, half_axes, turn_rad: turn_deg * (std::f64::consts::PI / 180.0), density }
}

/// A round body with a shell, large and small holes and inclusions, thin and bright ones too.
const BODY: [Ellipsoid; 12] = [
    ellipsoid([0.00, 0.00, 0.00], [0.82, 0.78, 2.00], 0.0, 1.00),
    ellipsoid([0.02, -0.03, 0.00], [0.74, 0.70, 1.80], 10.0, -0.30),
    ellipsoid([0.28, 0.12, 0.05], [0.16, 0.31, 0.80], -18.0, 0.40),
    ellipsoid([-0.25, 0.10, -0.05], [0.20, 0.11, 0.70], 30.0, -0.35),
    ellipsoid([0.05, -0.42, 0.00], [0.11, 0.11, 0.60], 0.0, 0.60),
    ellipsoid([-0.38, -0.30, 0.10], [0.07, 0.12, 0.60], 45.0, 0.80),
    ellipsoid([0.42, -0.32, 0.00], [0.05, 0.05, 0.50], 0.0, -0.50),
    ellipsoid([-0.10, 0.48, 0.00], [0.15, 0.05, 0.60], 75.0, 0.50),
    ellipsoid([0.10, 0.45, 0.02], [0.03, 0.03, 0.40], 0.0, 1.00),
    ellipsoid([-0.52, 0.18, 0.00], [0.02, 0.035, 0.40], 20.0, 1.20),
    ellipsoid([0.55, 0.30, -0.02], [0.015, 0.015, 0.30], 0.0, 1.50),
    ellipsoid([0.00, 0.05, 0.00], [0.025, 0.20, 0.50], -60.0, -0.25),
];

/// Points along each edge of a voxel over which [`truth`] averages.
const SAMPLES: usize = 5;

/// The ellipses of one height: a slice of the phantom, or of several copies of it.
#[derive(Clone)]
pub struct Slice {
    ellipses: Vec<Ellipse>,
}

impl Slice {
    /// The phantom at height `z`.
    pub fn at(z: f64) -> Self {
        Self::rosette(z, 1)
    }

    /// The mean of `copies` of the phantom at height `z`, turned by equal angles over a full turn. Its projections
    /// repeat after every `2 pi / copies`, so that a long scan takes few different ones.
    pub fn rosette(z: f64, copies: usize) -> Self {
        let turns = (0..copies).map(|copy| std::f64::consts::TAU * copy as f64 / copies as f64);
        let ellipses = turns.flat_map(|turn| BODY.iter().filter_map(move |body| body.cut(z, turn)));
        let density = |ellipse: Ellipse| Ellipse { density: ellipse.density / copies as f64, ..ellipse };
        Self { ellipses: ellipses.map(density).collect() }
    }

    /// Line integrals `(angle, column)`, averaged over the width of each of `n` columns.
    ///
    /// # Units
    /// Attenuation per pixel times pixels, so that a reconstruction gives [`Self::truth`]. The highest is about 2.
    pub fn sinogram(&self, n: usize, angles_rad: &[f64], axis_px: f64) -> Vec<f32> {
        let column_width = 2.0 / n as f64;
        let mut rows = Vec::with_capacity(n * angles_rad.len());
        let mut integral_to_edge = vec![0.0; n + 1];
        for &angle in angles_rad {
            integral_to_edge.fill(0.0);
            for ellipse in &self.ellipses {
                add_integral(&mut integral_to_edge, ellipse, angle, axis_px, column_width);
            }
            let columns = integral_to_edge.windows(2);
            rows.extend(columns.map(|edges| ((edges[1] - edges[0]) / column_width) as f32));
        }
        rows
    }

    /// Rows `first_row..` of the slice `(y, x)` of `n` x `n`, as many as `rows` holds, averaged over each voxel.
    /// Unit: attenuation per pixel.
    ///
    /// # Panics
    /// If `rows` does not hold whole rows.
    pub fn truth(&self, n: usize, first_row: usize, rows: &mut [f32]) {
        assert_eq!(rows.len() % n, 0, "rows of {n} voxels");
        let position = |pixel: usize, sample: usize| {
            let offset = (sample as f64 + 0.5) / SAMPLES as f64 - 0.5;
            (pixel as f64 - (n as f64 - 1.0) / 2.0 + offset) * 2.0 / n as f64
        };
        for (row, voxels) in (first_row..).zip(rows.chunks_exact_mut(n)) {
            let (top, bottom) = (position(row, 0), position(row, SAMPLES - 1));
            let near = |ellipse: &&Ellipse| {
                let reach = ellipse.half_axes[0].max(ellipse.half_axes[1]);
                bottom > ellipse.centre[1] - reach && top < ellipse.centre[1] + reach
            };
            let near: Vec<&Ellipse> = self.ellipses.iter().filter(near).collect();
            for (column, voxel) in voxels.iter_mut().enumerate() {
                let mut sum = 0.0;
                for sample in 0..SAMPLES * SAMPLES {
                    let (y, x) = (position(row, sample / SAMPLES), position(column, sample % SAMPLES));
                    sum +=
                        near.iter().filter(|ellipse| contains(ellipse, x, y)).map(|e| e.density).sum::<f64>();
                }
                *voxel = (sum / (SAMPLES * SAMPLES) as f64 * 2.0 / n as f64) as f32;
            }
        }
    }
}

impl Ellipsoid {
    /// What a height `z` cuts out of it, after it was turned about the rotation axis.
    fn cut(&self, z: f64, turn_rad: f64) -> Option<Ellipse> {
        let rest = 1.0 - ((z - self.centre[2]) / self.half_axes[2]).powi(2);
        let (sin, cos) = turn_rad.sin_cos();
        let [x, y, _] = self.centre;
        (rest > 0.0).then(|| Ellipse {
            centre: [x * cos - y * sin, x * sin + y * cos],
            half_axes: [self.half_axes[0] * rest.sqrt(), self.half_axes[1] * rest.sqrt()],
            turn_rad: self.turn_rad + turn_rad,
            turn_sin_cos: (self.turn_rad + turn_rad).sin_cos(),
            density: self.density,
        })
    }
}

/// Heights of `rows` slices, spread evenly over the middle of the phantom; one row is the middle itself.
pub fn heights(rows: usize) -> Vec<f64> {
    if rows < 2 {
        return vec![0.0; rows];
    }
    (0..rows).map(|row| -0.2 + 0.4 * row as f64 / (rows - 1) as f64).collect()
}

/// [`Slice::sinogram`] of the phantom at height `z`.
pub fn sinogram(n: usize, angles_rad: &[f64], z: f64, axis_px: f64) -> Vec<f32> {
    Slice::at(z).sinogram(n, angles_rad, axis_px)
}

/// The slice `(y, x)` at height `z`, `n` x `n`, averaged over each voxel. Unit: attenuation per pixel.
pub fn truth(n: usize, z: f64) -> Vec<f32> {
    let mut slice = vec![0.0; n * n];
    Slice::at(z).truth(n, 0, &mut slice);
    slice
}

/// Adds the antiderivative of an ellipse's projection at the edges of the columns.
fn add_integral(edges: &mut [f64], ellipse: &Ellipse, angle: f64, axis_px: f64, column_width: f64) {
    let [a, b] = ellipse.half_axes;
    let (sin, cos) = angle.sin_cos();
    let (turned_sin, turned_cos) = (angle - ellipse.turn_rad).sin_cos();
    let half_shadow = (a * turned_cos).hypot(b * turned_sin);
    let middle = ellipse.centre[0] * cos + ellipse.centre[1] * sin;
    for (edge, value) in edges.iter_mut().enumerate() {
        let position = (edge as f64 - 0.5 - axis_px) * column_width;
        let q = ((position - middle) / half_shadow).clamp(-1.0, 1.0);
        *value += ellipse.density * a * b * (q * (1.0 - q * q).sqrt() + q.asin());
    }
}

fn contains(ellipse: &Ellipse, x: f64, y: f64) -> bool {
    let (sin, cos) = ellipse.turn_sin_cos;
    let (dx, dy) = (x - ellipse.centre[0], y - ellipse.centre[1]);
    let along = (dx * cos + dy * sin) / ellipse.half_axes[0];
    let across = (dy * cos - dx * sin) / ellipse.half_axes[1];
    along * along + across * across < 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_projection_holds_the_mass_of_the_slice() {
        let n = 64;
        let mass: f64 = truth(n, 0.05).iter().map(|v| f64::from(*v)).sum();
        for row in sinogram(n, &[0.0, 0.4, 1.5, 4.0], 0.05, 30.2).chunks(n) {
            let sum: f64 = row.iter().map(|v| f64::from(*v)).sum();
            assert!((sum / mass - 1.0).abs() < 2e-3, "{sum} and {mass}");
        }
    }

    #[test]
    fn half_a_turn_mirrors_a_projection_about_the_axis() {
        let n = 41;
        let both = sinogram(n, &[0.3, 0.3 + std::f64::consts::PI], 0.0, 20.0);
        let (there, back) = both.split_at(n);
        for column in 0..n {
            assert!((there[column] - back[n - 1 - column]).abs() < 1e-5);
        }
    }

    #[test]
    fn a_rosette_repeats_itself() {
        let (n, copies) = (48, 4);
        let rosette = Slice::rosette(0.05, copies);
        let part = std::f64::consts::TAU / copies as f64;
        let both = rosette.sinogram(n, &[0.3, 0.3 + part], 23.5);
        let (one, next) = both.split_at(n);
        assert!(one.iter().zip(next).all(|(one, next)| (one - next).abs() < 1e-5));

        // The mean over its copies is the mean over the angles of the phantom itself.
        let angles: Vec<f64> = (0..copies).map(|copy| 0.3 - part * copy as f64).collect();
        let copies_apart = Slice::at(0.05).sinogram(n, &angles, 23.5);
        for (column, value) in one.iter().enumerate() {
            let mean = copies_apart.chunks(n).map(|row| row[column]).sum::<f32>() / copies as f32;
            assert!((mean - value).abs() < 1e-5, "column {column}: {mean} and {value}");
        }
    }

    #[test]
    fn a_slice_can_be_made_in_parts() {
        let (n, slice) = (20, Slice::rosette(0.0, 3));
        let mut whole = vec![0.0; n * n];
        slice.truth(n, 0, &mut whole);
        let mut part = vec![0.0; 5 * n];
        slice.truth(n, 7, &mut part);
        assert_eq!(part, whole[7 * n..12 * n]);
        assert!(whole.iter().any(|voxel| *voxel > 0.0));
    }

    #[test]
    fn heights_are_even_about_the_middle() {
        assert_eq!(heights(1), [0.0]);
        assert_eq!(heights(3), [-0.2, 0.0, 0.2]);
    }
}
