//! Writes the phantom to an NXtomo file, with the truth beside it.

use std::io;
use std::path::{Path, PathBuf};

use beamstream_sim_wire::{Stop, Stopped};
use hdf5_pure::{AttrValue, FileBuilder, GroupBuilder, LibVer, make_f32_type, make_u16_type};

use crate::phantom::Phantom;
use crate::source::FrameSource;

/// A file is made in memory; larger scans are refused.
const MAX_BYTES: usize = 8 << 30;

/// Why a scan file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The frames or the truth are too large.
    #[error("a scan of {bytes} bytes is too large for {path}, expected at most {MAX_BYTES}", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes of frames and truth.
        bytes: usize,
    },
    /// The file cannot be laid out.
    #[error("cannot write {path}", path = path.display())]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: hdf5_pure::Error,
    },
    /// A stop was asked for.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The file cannot be moved to its place.
    #[error("cannot write {path}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Writes the scan of a phantom; the file appears under its name only when it is whole.
///
/// `/entry/truth` holds `rotation_axis_px` (0 is the middle of the first column) and, if `with_volume`, the true
/// slices `volume` `(z, y, x)` in attenuation per pixel. `progress` is told how many frames are ready.
///
/// # Errors
/// If the scan is too large to be made in memory, the file cannot be written, or a stop was asked for meanwhile.
///
/// # Source
/// NIAC, `NeXus` application definition NXtomo.
pub fn write_nxtomo(
    path: &Path,
    phantom: &Phantom,
    with_volume: bool,
    stop: &Stop,
    progress: impl FnMut(u64),
) -> Result<(), WriteError> {
    let format = phantom.format();
    let slice_bytes = format.shape.columns.saturating_pow(2).saturating_mul(4);
    let volume_bytes = if with_volume { slice_bytes.saturating_mul(format.shape.rows) } else { 0 };
    let frame_bytes = format.bytes().saturating_mul(phantom.frames().len());
    let bytes = frame_bytes.saturating_add(volume_bytes);
    if bytes > MAX_BYTES {
        return Err(WriteError::TooLarge { path: path.to_owned(), bytes });
    }
    let layout = |source: hdf5_pure::Error| WriteError::Hdf5 { path: path.to_owned(), source };
    let frames = count_frames(phantom, stop, progress)?;
    let file = build(phantom, frames, with_volume).map_err(|error| layout(error.into()))?;
    let partial = partial_name(path);
    let written = file.write(&partial).map_err(layout).and_then(|()| {
        std::fs::rename(&partial, path).map_err(|source| WriteError::Io { path: path.to_owned(), source })
    });
    if written.is_err() {
        // What is left of a failed write is of no use; that it cannot be removed either says nothing new.
        std::fs::remove_file(&partial).ok();
    }
    written
}

/// The counts of all frames, one after the other.
fn count_frames(phantom: &Phantom, stop: &Stop, mut progress: impl FnMut(u64)) -> Result<Vec<u8>, Stopped> {
    let count = phantom.frames().len();
    let mut frames = Vec::with_capacity(count * phantom.format().bytes());
    let mut pixels = Vec::new();
    for index in 0..count {
        if stop.is_set() {
            return Err(Stopped);
        }
        phantom.fill(index, &mut pixels);
        frames.extend_from_slice(&pixels);
        progress(index as u64 + 1);
    }
    Ok(frames)
}

fn build(
    phantom: &Phantom,
    frames: Vec<u8>,
    with_volume: bool,
) -> Result<FileBuilder, hdf5_pure::FormatError> {
    let mut file = FileBuilder::new();
    file.with_libver_bounds(LibVer::Earliest, LibVer::V18);
    let mut entry = group(file.create_group("entry"), "NXentry");
    add_text(&mut entry, "definition", "NXtomo")?;
    add_text(&mut entry, "title", "analytic phantom")?;

    let mut instrument = group(entry.create_group("instrument"), "NXinstrument");
    let mut detector = group(instrument.create_group("detector"), "NXdetector");
    let extents =
        [phantom.frames().len(), phantom.config().rows, phantom.config().size].map(|extent| extent as u64);
    let data = detector.create_dataset("data");
    data.with_raw_data(make_u16_type(), frames, extents.iter().product()).with_shape(&extents);
    let keys: Vec<i32> = phantom.frames().iter().map(|frame| i32::from(frame.role.image_key())).collect();
    detector.create_dataset("image_key").with_i32_data(&keys);
    instrument.add_group(detector.finish());
    entry.add_group(instrument.finish());

    let mut sample = group(entry.create_group("sample"), "NXsample");
    add_text(&mut sample, "name", "phantom")?;
    let angles: Vec<f64> = phantom.frames().iter().map(|frame| frame.angle_deg.unwrap_or(0.0)).collect();
    let angle = sample.create_dataset("rotation_angle").with_f64_data(&angles);
    angle.set_attr("units", AttrValue::String("degree".to_owned()));
    entry.add_group(sample.finish());

    let mut truth = group(entry.create_group("truth"), "NXcollection");
    add_truth(&mut truth, phantom, with_volume);
    entry.add_group(truth.finish());
    file.add_group(entry.finish());
    Ok(file)
}

fn group(mut group: GroupBuilder, class: &str) -> GroupBuilder {
    group.set_attr("NX_class", AttrValue::String(class.to_owned()));
    group
}

fn add_text(group: &mut GroupBuilder, name: &str, text: &str) -> Result<(), hdf5_pure::FormatError> {
    group.create_dataset(name).with_strings(&[text])?.with_shape(&[]);
    Ok(())
}

fn add_truth(truth: &mut GroupBuilder, phantom: &Phantom, with_volume: bool) {
    let config = phantom.config();
    truth.create_dataset("rotation_axis_px").with_f64_data(&[config.rotation_axis_px()]).with_shape(&[]);
    let photons = config.noise_photons.unwrap_or(f64::INFINITY);
    truth.create_dataset("photons").with_f64_data(&[photons]).with_shape(&[]);
    if with_volume {
        let slices = (0..config.rows).flat_map(|row| phantom.truth(row));
        let volume: Vec<u8> = slices.flat_map(f32::to_le_bytes).collect();
        let extents = [config.rows, config.size, config.size].map(|extent| extent as u64);
        let voxels = extents.iter().product();
        let dataset = truth.create_dataset("volume").with_raw_data(make_f32_type(), volume, voxels);
        dataset.with_shape(&extents).set_attr("units", AttrValue::String("1/pixel".to_owned()));
    }
}

/// A hidden name beside the file, of this process alone.
fn partial_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial-{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PhantomConfig, ScanSource};

    fn phantom(rows: usize) -> Phantom {
        let config = PhantomConfig { size: 32, rows, angles: 12, flats: 2, darks: 1, ..Default::default() };
        Phantom::new(PhantomConfig { axis_px: Some(14.5), ..config }).unwrap()
    }

    #[test]
    fn a_written_phantom_is_read_back_as_a_scan() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.nxs");
        let mut phantom = phantom(2);
        let mut ready = 0;
        write_nxtomo(&path, &phantom, true, &Stop::default(), |frames| ready = frames).unwrap();
        assert_eq!(ready, 15);
        let mut scan = ScanSource::open(&path).unwrap();
        assert_eq!((scan.format(), scan.frames()), (phantom.format(), phantom.frames()));
        let (mut stored, mut made) = (Vec::new(), Vec::new());
        for index in 0..15 {
            scan.read(index, &mut stored).unwrap();
            phantom.read(index, &mut made).unwrap();
            assert_eq!(stored, made, "frame {index}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside the file");
    }

    #[test]
    fn a_place_that_is_not_there_is_named() {
        let path = Path::new("/no/such/folder/p.nxs");
        let error = write_nxtomo(path, &phantom(1), false, &Stop::default(), |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "cannot write /no/such/folder/p.nxs");
    }

    #[test]
    fn a_scan_that_does_not_fit_memory_is_refused() {
        let config = PhantomConfig { size: 3000, rows: 1000, angles: 10_000, ..Default::default() };
        // Only the size counts: no frame is made.
        let phantom = Phantom::new(config).unwrap();
        assert!(matches!(
            write_nxtomo(Path::new("p.nxs"), &phantom, false, &Stop::default(), |_| ()),
            Err(WriteError::TooLarge { .. })
        ));
    }
}
