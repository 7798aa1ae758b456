//! Direct backprojection, of volumes and of planes, gives what the CPU's gives.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

mod common;

use std::f64::consts::PI;

use beamstream_core::{ElementType, Format};
use beamstream_ops::{
    Backend, Filter, Method, Padding, Plane, ReconSpec, Reconstruction, RotationAxis, Storage,
};
use common::{Rig, Scan, lease_on_host, relative_error, rig, values_on_host};

/// What `Storage::F32` and `Storage::F16` may cost.
const TOLERANCE: [f64; 2] = [1e-4, 1e-3];

fn spec(rows: usize, columns: usize) -> ReconSpec {
    ReconSpec { method: Method::Fbp, ..ReconSpec::new(rows, columns, columns as f64 / 2.0 - 0.3) }
}

fn tolerance(spec: &ReconSpec) -> f64 {
    match spec.storage {
        Storage::F32 => TOLERANCE[0],
        Storage::F16 => TOLERANCE[1],
    }
}

fn spread(angles: usize) -> Vec<f64> {
    (0..angles).map(|at| PI * at as f64 / angles as f64 + 0.1).collect()
}

/// The slices of a group, by leases on the device.
fn slices(
    rig: &mut Rig,
    sums: &mut dyn Reconstruction,
    group: usize,
    size: usize,
    scale: f64,
) -> Vec<Vec<f32>> {
    let rows = sums.row_groups()[group].len();
    let format = Format::slice(ElementType::F32, size);
    let mut leases: Vec<_> = (0..rows).map(|_| rig.lease_on_device(format)).collect();
    sums.slices(group, scale, &mut leases).unwrap();
    leases.into_iter().map(|lease| rig.values(lease)).collect()
}

/// Adds a scan in calls of `together` projections to both, and compares all slices.
fn compare(rig: &mut Rig, spec: &ReconSpec, scan: &Scan, first_row: usize, together: usize) {
    let (mut cpu, mut cuda) = (rig.cpu.reconstruction(spec).unwrap(), rig.cuda.reconstruction(spec).unwrap());
    let format = Format::slice(ElementType::F32, spec.columns);
    cpu.accumulate(&scan.batch(&scan.host, first_row)).unwrap();
    for batch in scan.batch(&scan.device, first_row).chunks(together) {
        cuda.accumulate(batch).unwrap();
        // A look in between changes nothing.
        cuda.slice(spec.rows / 2, 1.0, &mut rig.lease_on_device(format)).unwrap();
    }
    let mut found = Vec::new();
    for group in 0..cuda.row_groups().len() {
        found.extend(slices(rig, cuda.as_mut(), group, spec.columns, 2.5));
    }
    assert_eq!(found.len(), spec.rows);
    let mut worst = 0.0_f64;
    for (row, found) in found.iter().enumerate() {
        let (mut expected, mut one) = (lease_on_host(format), rig.lease_on_device(format));
        cpu.slice(row, 2.5, &mut expected).unwrap();
        let error = relative_error(found, &values_on_host::<f32>(expected));
        assert!(error < tolerance(spec), "{spec:?}, row {row}: {error}");
        worst = worst.max(error);
        cuda.slice(row, 2.5, &mut one).unwrap();
        assert_eq!(rig.values::<f32>(one), *found, "{spec:?}, row {row}");
    }
    eprintln!("{} x {}, {:?}: {worst:.1e}", spec.rows, spec.columns, spec.storage);
}

#[test]
fn sanitize_small_slices_agree() {
    let Some(mut rig) = rig() else { return };
    for (rows, columns, angles) in [(1, 1, 1), (2, 2, 3), (3, 31, 7), (20, 64, 1), (65, 33, 5)] {
        let scan = Scan::new(&mut rig, rows, columns, spread(angles));
        for storage in [Storage::F32, Storage::F16] {
            compare(&mut rig, &ReconSpec { storage, ..spec(rows, columns) }, &scan, 0, 4);
        }
    }
}

#[test]
fn large_slices_agree() {
    let Some(mut rig) = rig() else { return };
    for (rows, columns, angles) in [(1, 257, 300), (3, 545, 64), (70, 320, 33), (2, 2048, 40)] {
        let scan = Scan::new(&mut rig, rows, columns, spread(angles));
        for storage in [Storage::F32, Storage::F16] {
            compare(&mut rig, &ReconSpec { storage, batch: 29, ..spec(rows, columns) }, &scan, 0, 1000);
        }
    }
}

#[test]
fn filters_paddings_axes_and_angles_agree() {
    let Some(mut rig) = rig() else { return };
    let (rows, columns) = (17, 90);
    let golden = (0..50).map(|at| f64::from(at) * PI * (5.0_f64.sqrt() - 1.0) / 2.0).collect();
    let scan = Scan::new(&mut rig, rows + 3, columns, golden);
    for filter in Filter::ALL {
        compare(&mut rig, &ReconSpec { filter: *filter, ..spec(rows, columns) }, &scan, 2, 50);
    }
    let edge = ReconSpec { padding: Padding::Edge, ..spec(rows, columns) };
    compare(&mut rig, &edge, &scan, 3, 7);
    let axes = (0..rows).map(|row| 40.0 + 0.31 * row as f64).collect();
    let tilted = ReconSpec { rotation_axis: RotationAxis::PerRow(axes), ..edge };
    compare(&mut rig, &tilted, &scan, 0, 50);
    let off_centre = ReconSpec { rotation_axis: RotationAxis::Same(3.0), ..spec(rows, columns) };
    compare(&mut rig, &off_centre, &scan, 1, 13);
}

#[test]
fn values_of_any_size_and_no_numbers_are_taken() {
    let Some(mut rig) = rig() else { return };
    let (rows, columns) = (2, 40);
    let format = Format::frame(ElementType::F32, rows, columns);
    for size in [1e-30_f32, 1e30, 0.0] {
        let pixels: Vec<f32> = (0..rows * columns)
            .map(|at| if at % 13 == 0 { f32::NAN } else { size * (at % 7) as f32 })
            .collect();
        let host = vec![common::on_host(format, &pixels)];
        let device = vec![rig.on_device(&host[0])];
        let scan = Scan { host, device, angles_rad: vec![0.4] };
        compare(&mut rig, &spec(rows, columns), &scan, 0, 1);
    }
}

#[test]
fn reset_forgets_and_wrong_input_is_refused() {
    let Some(mut rig) = rig() else { return };
    let spec = spec(3, 20);
    let scan = Scan::new(&mut rig, 3, 20, spread(4));
    let mut cuda = rig.cuda.reconstruction(&spec).unwrap();
    cuda.accumulate(&scan.batch(&scan.device, 0)).unwrap();
    assert!(cuda.accumulate(&scan.batch(&scan.device, 1)).is_err());
    let mut not_finite = scan.batch(&scan.device, 0);
    not_finite[2].angle_rad = f64::NAN;
    assert!(cuda.accumulate(&not_finite).is_err());
    let mut other = rig.lease_on_device(Format::slice(ElementType::F32, 21));
    assert!(cuda.slice(0, 1.0, &mut other).is_err());
    assert!(cuda.slice(3, 1.0, &mut other).is_err());
    assert!(cuda.slices(1, 1.0, &mut []).is_err());
    cuda.reset();
    assert!(slices(&mut rig, cuda.as_mut(), 0, 20, 1.0).iter().flatten().all(|value| *value == 0.0));
}

#[test]
fn sanitize_planes_agree() {
    let Some(mut rig) = rig() else { return };
    let (rows, columns) = (70, 61);
    let scan = Scan::new(&mut rig, rows, columns, spread(40));
    let spec = spec(rows, columns);
    let (mut cpu, mut cuda) =
        (rig.cpu.scan_store(&spec, 40).unwrap(), rig.cuda.scan_store(&spec, 40).unwrap());
    cpu.add(&scan.batch(&scan.host, 0)).unwrap();
    for batch in scan.batch(&scan.device, 0).chunks(9) {
        cuda.add(batch).unwrap();
    }
    assert_eq!(cuda.len(), 40);
    assert!(cuda.add(&scan.batch(&scan.device, 0)).unwrap_err().to_string().contains("40"));
    let first = Plane::horizontal(0, columns).origin[1];
    let planes = [
        Plane::horizontal(69, columns),
        Plane::frontal(20, columns),
        Plane::sagittal(31, columns),
        Plane { origin: [33.4, first, first], ..Plane::horizontal(0, columns) },
        Plane { origin: [10.0, first, first], down: [0.5, 0.4, 0.7], right: [0.3, 0.8, -0.2] },
        Plane { origin: [-5.0, first, first], down: [2.3, 0.1, 0.0], right: [0.0, 1.2, 2.0] },
        Plane { origin: [0.0, first, first], down: [5.0, 1.0, 0.0], right: [0.0, 0.0, 4.0] },
    ];
    let tilted = RotationAxis::PerRow((0..rows).map(|row| 28.0 + 0.05 * row as f64).collect());
    for axis in [RotationAxis::Same(30.2), tilted] {
        let format = Format::frame(ElementType::F32, 67, 45);
        let mut expected: Vec<_> = planes.iter().map(|_| lease_on_host(format)).collect();
        let mut found: Vec<_> = planes.iter().map(|_| rig.lease_on_device(format)).collect();
        cpu.planes(&axis, &planes, 1.5, &mut expected).unwrap();
        cuda.planes(&axis, &planes, 1.5, &mut found).unwrap();
        for (plane, (expected, found)) in planes.iter().zip(expected.into_iter().zip(found)) {
            let error = relative_error(&rig.values(found), &values_on_host::<f32>(expected));
            eprintln!("plane {error:.1e}");
            assert!(error < TOLERANCE[0], "{plane:?} {axis:?}: {error}");
        }
    }
    let mut lease = [rig.lease_on_device(Format::frame(ElementType::F32, 4, 4))];
    assert!(cuda.planes(&RotationAxis::PerRow(vec![1.0]), &planes[..1], 1.0, &mut lease).is_err());
    assert!(cuda.planes(&RotationAxis::Same(1.0), &planes, 1.0, &mut lease).is_err());
    cuda.reset();
    cuda.planes(&RotationAxis::Same(1.0), &planes[..1], 1.0, &mut lease).unwrap();
    let [lease] = lease;
    assert_eq!(rig.values::<f32>(lease), [0.0; 16]);
}
