//! Both methods against the analytic phantom: sizes, axes, angles, filters, rows, threads, batches.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

use std::f64::consts::PI;

use beamstream_core::angular_weights;
use beamstream_cpu::accumulator;
use beamstream_ops::{Accumulate, Filter, Method, Padding, Projection, ReconError, ReconSpec, RotationAxis};
use beamstream_phantom as phantom;
use proptest::prelude::*;

const METHODS: [Method; 2] = [Method::Fourier, Method::Fbp];

/// A scan of the phantom: projections `(row, column)` and their angles.
struct Scan {
    spec: ReconSpec,
    angles: Vec<f64>,
    frames: Vec<Vec<f32>>,
}

impl Scan {
    fn new(columns: usize, rows: usize, angles: Vec<f64>, axis: RotationAxis) -> Self {
        let spec = ReconSpec { rotation_axis: axis, ..ReconSpec::new(rows, columns, 0.0) };
        let mut frames = vec![Vec::new(); angles.len()];
        for (row, z) in phantom::heights(rows).into_iter().enumerate() {
            let axis_px = spec.rotation_axis.of_row(row).unwrap();
            let sinogram = phantom::sinogram(columns, &angles, z, axis_px);
            for (frame, line) in frames.iter_mut().zip(sinogram.chunks(columns)) {
                frame.extend_from_slice(line);
            }
        }
        Self { spec, angles, frames }
    }

    fn centred(columns: usize, rows: usize, angles: Vec<f64>) -> Self {
        Self::new(columns, rows, angles, RotationAxis::Same((columns as f64 - 1.0) / 2.0))
    }

    fn projections(&self) -> Vec<Projection<'_>> {
        let weights = angular_weights(&self.angles);
        let parts = self.frames.iter().zip(&self.angles).zip(weights);
        parts.map(|((pixels, &angle_rad), weight)| Projection { pixels, angle_rad, weight }).collect()
    }

    fn reconstruct(&self, method: Method) -> Vec<Vec<f32>> {
        self.reconstruct_as(&ReconSpec { method, ..self.spec.clone() }, 2)
    }

    fn reconstruct_as(&self, spec: &ReconSpec, threads: usize) -> Vec<Vec<f32>> {
        let mut recon = accumulator(spec, threads).unwrap();
        recon.accumulate(&self.projections()).unwrap();
        all_slices(&mut *recon, spec)
    }
}

fn all_slices(recon: &mut dyn Accumulate, spec: &ReconSpec) -> Vec<Vec<f32>> {
    let mut slices = vec![vec![f32::NAN; spec.slice_len()]; spec.rows];
    for (index, rows) in recon.row_groups().into_iter().enumerate() {
        let mut out: Vec<&mut [f32]> = slices[rows].iter_mut().map(|slice| &mut slice[..]).collect();
        recon.slices(index, &mut out).unwrap();
    }
    slices
}

fn even(count: usize, span_deg: f64) -> Vec<f64> {
    (0..count).map(|i| span_deg.to_radians() * i as f64 / count as f64).collect()
}

/// How a slice compares to another within a disc: `slice = gain * other + offset`.
struct Likeness {
    gain: f64,
    /// Root mean square of the difference, over the range of the other.
    nrmse: f64,
    /// Displacement in pixels, `(y, x)`.
    shift: [f64; 2],
}

/// Least squares of `slice = gain * other - dy * d other/dy - dx * d other/dx + offset`.
fn compare(slice: &[f32], other: &[f32], n: usize, part: f64) -> Likeness {
    assert!(slice.iter().all(|value| value.is_finite()), "a value is not finite");
    let middle = (n as f64 - 1.0) / 2.0;
    // The fit looks at smoothed images: sharp edges blur differently in every method.
    let (smooth, smooth_other) = (smoothed(slice, n), smoothed(other, n));
    let mut normal = [[0.0; 5]; 4];
    let (mut square, mut count) = (0.0, 0.0);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for y in 1..n - 1 {
        for x in 1..n - 1 {
            if (y as f64 - middle).hypot(x as f64 - middle) > part * n as f64 / 2.0 {
                continue;
            }
            let at = y * n + x;
            let half_difference =
                |after: usize, before: usize| 0.5 * (smooth_other[after] - smooth_other[before]);
            let basis =
                [smooth_other[at], half_difference(at + n, at - n), half_difference(at + 1, at - 1), 1.0];
            for (i, line) in normal.iter_mut().enumerate() {
                for (entry, other) in line.iter_mut().zip(basis) {
                    *entry += basis[i] * other;
                }
                line[4] += basis[i] * smooth[at];
            }
            square += (f64::from(slice[at]) - f64::from(other[at])).powi(2);
            count += 1.0;
            low = low.min(f64::from(other[at]));
            high = high.max(f64::from(other[at]));
        }
    }
    let [gain, dy, dx, _] = solve(normal);
    Likeness { gain, nrmse: (square / count).sqrt() / (high - low), shift: [-dy / gain, -dx / gain] }
}

/// Sum over the inscribed disc, beyond which not every projection sees the slice.
fn sum_in_disc(image: &[f32], n: usize) -> f64 {
    let middle = (n as f64 - 1.0) / 2.0;
    let inside = |at: &usize| ((at / n) as f64 - middle).hypot((at % n) as f64 - middle) < middle;
    (0..n * n).filter(inside).map(|at| f64::from(image[at])).sum()
}

/// Three passes of a 3 x 3 mean.
fn smoothed(image: &[f32], n: usize) -> Vec<f64> {
    let mut image: Vec<f64> = image.iter().map(|value| f64::from(*value)).collect();
    for _ in 0..3 {
        for stride in [1, n] {
            let from = image.clone();
            for at in stride..image.len() - stride {
                image[at] = (from[at - stride] + from[at] + from[at + stride]) / 3.0;
            }
        }
    }
    image
}

/// Solves four linear equations by elimination.
fn solve(mut rows: [[f64; 5]; 4]) -> [f64; 4] {
    for pivot in 0..4 {
        for other in 0..4 {
            if other != pivot {
                let factor = rows[other][pivot] / rows[pivot][pivot];
                let line = rows[pivot];
                rows[other].iter_mut().zip(line).for_each(|(value, from)| *value -= factor * from);
            }
        }
    }
    std::array::from_fn(|i| rows[i][4] / rows[i][i])
}

/// The grey level and the place are right, and the slice is as sharp as its pixels allow.
///
/// Linear interpolation blurs a little, which the fit sees as a lower grey level of small things.
fn check_against_truth(scan: &Scan, slices: &[Vec<f32>], nrmse: f64, what: &str) {
    let n = scan.spec.columns;
    let axis_px = scan.spec.rotation_axis.of_row(0).unwrap();
    let seen = (2.0 * (axis_px.min(n as f64 - 1.0 - axis_px) - 4.0) / n as f64).min(0.9);
    for (row, z) in phantom::heights(scan.spec.rows).into_iter().enumerate() {
        let like = compare(&slices[row], &phantom::truth(n, z), n, seen);
        let [dy, dx] = like.shift;
        let text = format!(
            "{what}, row {row}: gain {:.4}, shift {dy:.3} {dx:.3}, nRMSE {:.4}",
            like.gain, like.nrmse
        );
        assert!((like.gain - 1.0).abs() < 0.002 + 1.0 / n as f64, "{text}");
        assert!(dy.hypot(dx) < 0.03, "{text}");
        assert!(like.nrmse < nrmse, "{text}");
    }
}

#[test]
fn every_width_is_reconstructed() {
    for n in [64, 65, 100, 127, 128, 255, 256, 545] {
        let scan = Scan::centred(n, 1, even(n * 3 / 2, 180.0));
        for method in METHODS {
            check_against_truth(
                &scan,
                &scan.reconstruct(method),
                0.015 + 1.5 / n as f64,
                &format!("{method} {n}"),
            );
        }
    }
}

#[test]
fn tiny_widths_come_out_finite() {
    for n in [1, 2, 3, 5, 31] {
        let scan = Scan::centred(n, 3, even(20, 180.0));
        for method in METHODS {
            let slices = scan.reconstruct(method);
            assert!(slices.iter().flatten().all(|value| value.is_finite()), "{method} {n}");
        }
    }
}

#[test]
fn axis_may_be_anywhere() {
    for (n, off) in [(96, -7.0), (96, 0.5), (97, 0.3), (97, -0.5), (96, 5.3), (128, -9.25)] {
        let axis = RotationAxis::Same((n as f64 - 1.0) / 2.0 + off);
        let scan = Scan::new(n, 1, even(150, 180.0), axis);
        for method in METHODS {
            check_against_truth(&scan, &scan.reconstruct(method), 0.035, &format!("{method} {n} {off}"));
        }
    }
}

#[test]
fn axis_may_be_tilted() {
    let axes = (0..5).map(|row| 47.0 + 0.37 * f64::from(row)).collect();
    let scan = Scan::new(96, 5, even(150, 180.0), RotationAxis::PerRow(axes));
    for method in METHODS {
        check_against_truth(&scan, &scan.reconstruct(method), 0.035, &format!("{method} tilted"));
    }
}

#[test]
fn point_is_where_the_geometry_says() {
    // At x = +20, y = +10 from the axis: row c + 10, column c + 20 of the slice.
    let (n, axis_px, angles) = (101, 50.0, even(120, 180.0));
    let frames = angles.iter().map(|angle| {
        let position = axis_px + 20.0 * angle.cos() + 10.0 * angle.sin();
        (0..n).map(|column| (-0.5 * ((f64::from(column) - position) / 1.5).powi(2)).exp() as f32).collect()
    });
    let scan = Scan { spec: ReconSpec::new(1, 101, axis_px), frames: frames.collect(), angles };
    for method in METHODS {
        let slice = &scan.reconstruct(method)[0];
        let brightest = (0..slice.len()).max_by(|a, b| slice[*a].total_cmp(&slice[*b])).unwrap();
        assert_eq!((brightest / 101, brightest % 101), (60, 70), "{method}");
    }
}

#[test]
fn any_angles_serve() {
    let golden: Vec<f64> =
        (0..180).map(|i| (f64::from(i) * (5.0_f64.sqrt() - 1.0) / 2.0).fract() * PI).collect();
    let jitter = |i: usize| 0.006 * ((i * 37 % 17) as f64 / 8.0 - 1.0);
    let missing =
        even(180, 180.0).into_iter().enumerate().filter(|(i, _)| ![7, 8, 60, 61, 62, 100, 179].contains(i));
    let there = even(160, 180.0);
    let sets = [
        ("with end point", (0..=160).map(|i| PI * f64::from(i) / 160.0).collect()),
        ("full turn", even(320, 360.0)),
        ("odd count over a full turn", even(321, 360.0)),
        ("three turns", even(480, 1080.0)),
        ("golden", golden),
        ("jittered", even(180, 180.0).into_iter().enumerate().map(|(i, angle)| angle + jitter(i)).collect()),
        ("decreasing", even(160, 180.0).into_iter().rev().collect()),
        ("missing", missing.map(|(_, angle)| angle).collect()),
        ("back and forth", there.iter().chain(there.iter().rev()).copied().collect()),
        ("from -90", even(160, 180.0).into_iter().map(|angle| angle - PI / 2.0).collect::<Vec<f64>>()),
    ];
    for (what, angles) in sets {
        let scan = Scan::centred(96, 1, angles);
        for method in METHODS {
            check_against_truth(&scan, &scan.reconstruct(method), 0.04, &format!("{method} {what}"));
        }
    }
}

#[test]
fn filters_keep_grey_levels_and_smooth_in_their_order() {
    let scan = Scan::centred(128, 1, even(200, 180.0));
    let truth = phantom::truth(128, 0.0);
    for method in METHODS {
        let mut roughness = Vec::new();
        for filter in Filter::ALL.iter().copied().filter(|filter| *filter != Filter::None) {
            let spec = ReconSpec { method, filter, ..scan.spec.clone() };
            let slice = scan.reconstruct_as(&spec, 2).remove(0);
            // A blur moves grey levels about, and a little of them off the disc, but keeps their sum.
            let level = sum_in_disc(&slice, 128) / sum_in_disc(&truth, 128);
            assert!((level - 1.0).abs() < 0.025, "{method} {filter}: level {level}");
            roughness.push(slice.windows(2).map(|pair| f64::from(pair[1] - pair[0]).powi(2)).sum::<f64>());
        }
        let [ramp, shepp_logan, cosine, hann, hamming, parzen] = roughness[..] else { panic!("six filters") };
        assert!(
            ramp > shepp_logan && shepp_logan > cosine && cosine > hamming && hamming > hann && hann > parzen
        );
    }
}

#[test]
fn both_methods_agree_also_without_a_filter() {
    let scan = Scan::centred(128, 1, even(200, 180.0));
    for (filter, nrmse) in [(Filter::Parzen, 0.006), (Filter::None, 0.006)] {
        let [fourier, fbp] = METHODS.map(|method| {
            scan.reconstruct_as(&ReconSpec { method, filter, ..scan.spec.clone() }, 2).remove(0)
        });
        let like = compare(&fourier, &fbp, 128, 0.9);
        let text = format!("{filter}: gain {}, nRMSE {}", like.gain, like.nrmse);
        assert!((like.gain - 1.0).abs() < 0.01 && like.nrmse < nrmse, "{text}");
    }
}

#[test]
fn rows_are_independent_and_in_order() {
    for rows in [1, 2, 3, 7, 16, 17, 21, 35] {
        let scan = Scan::centred(80, rows, even(120, 180.0));
        for method in METHODS {
            check_against_truth(&scan, &scan.reconstruct(method), 0.04, &format!("{method} {rows} rows"));
        }
    }
}

#[test]
fn rows_that_are_computed_together_stay_apart() {
    let scan = Scan::centred(321, 3, even(200, 180.0));
    for method in METHODS {
        let together = scan.reconstruct(method);
        for (row, slice) in together.iter().enumerate() {
            let projections = scan.projections();
            let line = |projection: &Projection<'_>| projection.pixels[row * 321..(row + 1) * 321].to_vec();
            let lines: Vec<Vec<f32>> = projections.iter().map(line).collect();
            let alone: Vec<Projection<'_>> =
                projections.iter().zip(&lines).map(|(p, pixels)| Projection { pixels, ..*p }).collect();
            let mut recon = accumulator(&ReconSpec { method, rows: 1, ..scan.spec.clone() }, 2).unwrap();
            recon.accumulate(&alone).unwrap();
            let mut expected = vec![0.0; scan.spec.slice_len()];
            recon.slice(0, &mut expected).unwrap();
            let apart = compare(slice, &expected, 321, 1.0).nrmse;
            assert!(apart < 1e-5, "{method}: row {row} differs by {apart:e} from the row by itself");
        }
    }
}

#[test]
fn threads_and_previews_change_nothing() {
    let scan = Scan::centred(65, 19, even(100, 180.0));
    for method in METHODS {
        let spec = ReconSpec { method, batch: 24, ..scan.spec.clone() };
        let one = scan.reconstruct_as(&spec, 1);
        for threads in [2, 3] {
            assert!(scan.reconstruct_as(&spec, threads) == one, "{method} on {threads} threads differs");
        }
        let mut recon = accumulator(&spec, 2).unwrap();
        let projections = scan.projections();
        let mut preview = vec![f32::NAN; spec.slice_len()];
        for batch in projections.chunks(spec.batch) {
            recon.accumulate(batch).unwrap();
            recon.slice(18, &mut preview).unwrap();
        }
        assert!(all_slices(&mut *recon, &spec) == one, "{method}: previews change the result");
        for (row, slice) in one.iter().enumerate() {
            recon.slice(row, &mut preview).unwrap();
            assert!(preview == *slice, "{method}: the preview of row {row} differs from its slice");
        }
        recon.reset();
        recon.accumulate(&projections).unwrap();
        assert!(all_slices(&mut *recon, &spec) == one, "{method}: a second series differs");
    }
}

#[test]
fn few_projections_and_none_give_finite_slices() {
    for count in [0, 1, 2, 3] {
        let scan = Scan::centred(33, 2, even(count, 180.0));
        for method in METHODS {
            let slices = scan.reconstruct(method);
            assert!(slices.iter().flatten().all(|value| value.is_finite()));
            assert_eq!(slices[0].iter().any(|value| *value != 0.0), count > 0, "{method} {count}");
        }
    }
}

#[test]
fn a_value_that_is_no_number_does_not_spread() {
    let mut scan = Scan::centred(48, 3, even(60, 180.0));
    let clean = scan.reconstruct(Method::Fourier);
    scan.frames[11][48 + 5] = f32::NAN;
    let slices = scan.reconstruct(Method::Fourier);
    assert!(slices.iter().flatten().all(|value| value.is_finite()));
    for row in [0, 2] {
        assert!(compare(&slices[row], &clean[row], 48, 1.0).nrmse < 1e-5, "row {row} has changed");
    }
}

#[test]
fn padding_with_the_edge_lifts_a_truncated_sample() {
    // The middle 64 of 128 columns: the sample is wider than the detector.
    let whole = Scan::centred(128, 1, even(200, 180.0));
    let frames = whole.frames.iter().map(|frame| frame[32..96].to_vec()).collect();
    let scan = Scan { spec: ReconSpec::new(1, 64, 31.5), frames, angles: whole.angles.clone() };
    for method in METHODS {
        let of =
            |padding| scan.reconstruct_as(&ReconSpec { method, padding, ..scan.spec.clone() }, 2).remove(0);
        let truth: Vec<f32> = phantom::truth(128, 0.0)
            .chunks(128)
            .skip(32)
            .take(64)
            .flat_map(|line| line[32..96].to_vec())
            .collect();
        let error = |padding| compare(&of(padding), &truth, 64, 0.8).nrmse;
        let (edge, zero) = (error(Padding::Edge), error(Padding::Zero));
        assert!(edge < 0.7 * zero, "{method}: {edge} and {zero}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let spec = ReconSpec::new(2, 8, 3.5);
    for method in METHODS {
        let mut recon = accumulator(&ReconSpec { method, ..spec.clone() }, 1).unwrap();
        let short = Projection { pixels: &[0.0; 15], angle_rad: 0.0, weight: 1.0 };
        assert_eq!(recon.accumulate(&[short]), Err(ReconError::ProjectionLength { expected: 16, found: 15 }));
        let nowhere = Projection { pixels: &[0.0; 16], angle_rad: f64::NAN, weight: 1.0 };
        assert!(matches!(recon.accumulate(&[nowhere]), Err(ReconError::Angle { .. })));
        assert_eq!(recon.slice(2, &mut [0.0; 64]), Err(ReconError::Row { rows: 2, found: 2 }));
        assert_eq!(recon.slice(0, &mut [0.0; 63]), Err(ReconError::SliceLength { expected: 64, found: 63 }));
        assert_eq!(recon.slices(1, &mut []), Err(ReconError::Group { groups: 1, found: 1 }));
        assert_eq!(recon.slices(0, &mut []), Err(ReconError::Slices { expected: 2, found: 0 }));
    }
    assert!(accumulator(&ReconSpec::new(2, 8, 9.0), 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn reconstruction_is_linear(
        columns in 1_usize..40,
        rows in 1_usize..5,
        angles in proptest::collection::vec(-7.0_f64..7.0, 1..12),
        factor in -3.0_f32..3.0,
        fbp in any::<bool>(),
    ) {
        let mut scan = Scan::centred(columns, rows, angles);
        let method = METHODS[usize::from(fbp)];
        let once = scan.reconstruct(method);
        scan.frames.iter_mut().flatten().for_each(|pixel| *pixel *= factor);
        let scaled = scan.reconstruct(method);
        let highest = once.iter().flatten().fold(0.0_f32, |most, value| most.max(value.abs()));
        for (a, b) in once.iter().flatten().zip(scaled.iter().flatten()) {
            prop_assert!((a * factor - b).abs() <= 1e-5 * highest * factor.abs().max(1.0));
        }
    }
}
