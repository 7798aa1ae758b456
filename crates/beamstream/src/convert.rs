//! Files in one kind, out in another: scans as NXtomo, volumes as any kind of output.

use std::path::{Path, PathBuf};

use beamstream_core::{Axes, Content, Format, FrameId, Role};
use beamstream_io::{
    Output, OutputKind, OutputSpec, Scan, ScanInfo, ScanKind, ScanOptions, create_output, create_scan,
    output_kind_of,
};
use serde_json::{Value, json};

use crate::{Error, date};

/// What to convert, and to what.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    /// The scan or volume.
    pub input: PathBuf,
    /// Where to write; the ending tells the kind.
    pub out: PathBuf,
    /// Whether it may replace what is there.
    pub overwrite: bool,
    /// Where the parts of a scan are, if not where the file says.
    pub places: ScanOptions,
}

/// What was converted.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted {
    /// Whether it is a scan, with roles and angles; else a volume.
    pub is_scan: bool,
    /// `[frames, rows, columns]` or `[z, y, x]`.
    pub shape: [usize; 3],
    /// What had to be assumed.
    pub warnings: Vec<String>,
}

/// Converts a file. The values stay as they are, bit for bit.
///
/// A scan becomes NXtomo (`.nxs`, `.h5`). Frames without roles and angles of their own, such as the slices of a
/// volume, become a volume of the kind that the ending tells; to `.nxs` they are a scan all the same.
///
/// # Errors
/// [`Error::Convert`] if the output cannot hold what the input has; else what is wrong with either file.
pub fn convert(options: &ConvertOptions) -> Result<Converted, Error> {
    let out = &options.out;
    let kind = output_kind_of(out)?;
    if is_same(&options.input, out) {
        return Err(refused(out, "this is the input: choose another path"));
    }
    let mut scan = Scan::open(&options.input, &options.places)?;
    let info = scan.info().clone();
    let is_scan = is_nexus(out) || is_scan(&info);
    if is_scan && kind != OutputKind::Hdf5 {
        let what = format!(
            "{} is a {} scan, whose angles and roles have no place in such a file: write .nxs or .h5, or name one \
             dataset of it with --data",
            info.path.display(),
            info.kind
        );
        return Err(refused(out, &what));
    }
    let mut output = if is_scan {
        create_scan(out, options.overwrite, info.format, &info.frames, info.pixel_size_m)?
    } else {
        create_volume(kind, options, &info)?
    };
    copy(&mut scan, output.as_mut())?;
    output.finish(&provenance(options, &info))?;
    let shape = info.format.shape;
    let warnings = if is_scan { info.warnings } else { Vec::new() };
    Ok(Converted { is_scan, shape: [info.frames.len(), shape.rows, shape.columns], warnings })
}

fn create_volume(
    kind: OutputKind,
    options: &ConvertOptions,
    info: &ScanInfo,
) -> Result<Box<dyn Output>, Error> {
    let spec = OutputSpec {
        path: options.out.clone(),
        overwrite: options.overwrite,
        content: Content::Volume,
        format: Format { axes: Axes::Slice, ..info.format },
        count: Some(info.frames.len() as u64),
        first_number: 0,
    };
    Ok(create_output(kind, &spec)?)
}

/// Copies all frames, one in memory at a time.
fn copy(scan: &mut Scan, output: &mut dyn Output) -> Result<(), Error> {
    let (format, frames) = (scan.info().format, scan.info().frames.len());
    let mut bytes = vec![0; format.bytes()];
    for frame in 0..frames {
        scan.read(frame, 0..format.shape.rows, &mut bytes)?;
        output.write(FrameId::new(frame as u64), &bytes)?;
    }
    Ok(())
}

/// Whether the roles or angles of the frames are more than a volume has.
fn is_scan(info: &ScanInfo) -> bool {
    let is_kind_of_scan = matches!(
        info.kind,
        ScanKind::NxTomo | ScanKind::DxChange | ScanKind::Dectris | ScanKind::Bliss | ScanKind::Txrm
    );
    is_kind_of_scan || info.frames.iter().any(|frame| frame.role != Role::Projection)
}

fn is_nexus(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("nxs"))
}

fn is_same(input: &Path, out: &Path) -> bool {
    let places = (input.canonicalize(), out.canonicalize());
    matches!(places, (Ok(input), Ok(out)) if input == out)
}

fn refused(path: &Path, message: &str) -> Error {
    Error::Convert { path: path.to_owned(), message: message.to_owned() }
}

fn provenance(options: &ConvertOptions, info: &ScanInfo) -> Value {
    json!({
        "program": "beamstream",
        "version": env!("CARGO_PKG_VERSION"),
        "date": date::now(),
        "converted_from": options.input,
        "kind": info.kind,
        "pixel_size_m": info.pixel_size_m,
        "source": info.metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_testkit::data;

    fn to(input: PathBuf, out: PathBuf) -> ConvertOptions {
        ConvertOptions { input, out, overwrite: false, places: ScanOptions::default() }
    }

    fn pixels(path: &Path) -> (Format, Vec<u8>) {
        let mut scan = Scan::open(path, &ScanOptions::default()).unwrap();
        let (format, frames) = (scan.info().format, scan.info().frames.len());
        let mut bytes = vec![0; format.bytes() * frames];
        for (frame, bytes) in bytes.chunks_exact_mut(format.bytes()).enumerate() {
            scan.read(frame, 0..format.shape.rows, bytes).unwrap();
        }
        (format, bytes)
    }

    #[test]
    fn a_real_scan_keeps_frames_roles_and_angles() {
        let Some(path) = data("tomo/aps_tooth/tooth.h5") else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("tooth.nxs");
        assert!(convert(&to(path.clone(), out.clone())).unwrap().is_scan);
        let before = Scan::open(&path, &ScanOptions::default()).unwrap();
        let after = Scan::open(&out, &ScanOptions::default()).unwrap();
        assert_eq!(after.info().kind, ScanKind::NxTomo);
        assert_eq!(after.info().projection_angles_deg(), before.info().projection_angles_deg());
        let roles = |scan: &Scan| scan.info().frames.iter().map(|frame| frame.role).collect::<Vec<_>>();
        assert_eq!(roles(&after), roles(&before));
        assert_eq!(pixels(&out), pixels(&path));
        let refused = convert(&to(path, folder.path().join("tooth.tif"))).unwrap_err().to_string();
        assert!(refused.contains("tooth.tif") && refused.contains(".nxs"), "{refused}");
    }

    #[test]
    fn a_volume_goes_from_kind_to_kind_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let spec = OutputSpec {
            path: path("v.h5"),
            overwrite: false,
            content: Content::Volume,
            format: Format::slice(beamstream_core::ElementType::F32, 70),
            count: Some(3),
            first_number: 0,
        };
        let mut output = create_output(OutputKind::Hdf5, &spec).unwrap();
        for z in 0..3_u16 {
            let slice: Vec<u8> = (0..4900_u16).flat_map(|at| f32::from(at + z).to_le_bytes()).collect();
            output.write(FrameId::new(z.into()), &slice).unwrap();
        }
        output.finish(&Value::Null).unwrap();
        let (_, expected) = pixels(&path("v.h5"));
        let names = ["v.h5", "v.zarr", "v.tif", "slices", "v.npy", "again.h5"];
        for step in names.windows(2) {
            convert(&to(path(step[0]), path(step[1]))).unwrap();
            assert_eq!(pixels(&path(step[1])).1, expected, "{} to {}", step[0], step[1]);
        }
        convert(&to(path("v.zarr"), path("v.raw"))).unwrap();
        assert_eq!(std::fs::read(path("v.raw")).unwrap(), expected);
        let exists = convert(&to(path("v.tif"), path("v.npy"))).unwrap_err().to_string();
        assert!(exists.contains("v.npy") && exists.contains("--overwrite"), "{exists}");
        let itself = convert(&ConvertOptions { overwrite: true, ..to(path("v.tif"), path("v.tif")) });
        assert!(itself.unwrap_err().to_string().contains("this is the input"));
    }
}
