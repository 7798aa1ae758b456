//! Settings of the sinks, one kind for each kind of file.

use std::path::Path;

use beamstream_core::ElementType;
use beamstream_node::prelude::*;

use super::file_sink::{FileSink, SinkSettings};
use crate::output::{OutputKind, output_kind_of};

/// Defines the settings of a sink: the parameters are the same for all, the manual is not.
macro_rules! volume_sink {
    ($(#[$manual:meta])* $name:ident, $kind:literal, $output:expr) => {
        $(#[$manual])*
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Where to write. `{series}`, `{date}` and `{node}` are replaced; a path that was written already in
            /// the same run gets -2, -3 and so on.
            pub path: String,
            /// Element type to write: f32, f16, u16 or u8. Without it that of the input.
            #[serde(default)]
            pub dtype: Option<ElementType>,
            /// Values that become 0 and the highest integer, `"LO:HI"`; needed for integers. Unit: that of the input.
            #[serde(default)]
            pub range: Option<String>,
            /// Whether to replace what is at the path.
            #[serde(default)]
            pub overwrite: bool,
        }

        impl NodeConfig for $name {
            const KIND: &'static str = $kind;
            const CLASS: KindClass = KindClass::Sink;
            type Node = FileSink;

            fn build(self, cx: &BuildContext) -> Result<FileSink, BuildError> {
                let Self { path, dtype, range, overwrite } = self;
                FileSink::new(SinkSettings { path, dtype, range, overwrite, kind_of: $output }, cx)
            }
        }
    };
}

volume_sink! {
    /// Writes each volume, or the frames of each series, to an HDF5 file.
    ///
    /// The data are `/entry/data/data`, `(z, y, x)` or `(frame, row, column)`; `/entry/reconstruction` tells how they
    /// were made.
    ///
    /// ```yaml
    /// version: 1
    /// nodes:
    ///   scan:    { kind: scan_source, path: "scan.nxs" }
    ///   correct: { kind: flat_field, input: scan }
    ///   volume:  { kind: recon, input: correct }
    ///   keep:    { kind: hdf5_sink, input: volume, path: "out/{series}.h5" }
    /// ```
    Hdf5SinkConfig, "hdf5_sink", |_| OutputKind::Hdf5
}

volume_sink! {
    /// Writes each volume as OME-Zarr 0.5, or the frames of each series to a Zarr v3 group.
    ///
    /// The volume is the array `0`, with a chunk for each slice and without compression; `1`, `2` … are each half the
    /// size of the one before, down to slices of 64 voxels. Frames are the array `0` alone.
    ///
    /// ```yaml
    /// version: 1
    /// nodes:
    ///   scan:    { kind: scan_source, path: "scan.nxs" }
    ///   correct: { kind: flat_field, input: scan }
    ///   volume:  { kind: recon, input: correct }
    ///   keep:    { kind: zarr_sink, input: volume, path: "out/{series}.zarr" }
    /// ```
    ZarrSinkConfig, "zarr_sink", |_| OutputKind::Zarr
}

volume_sink! {
    /// Writes each volume, or the frames of each series, as TIFF: one BigTIFF, or a folder with a file for each slice.
    ///
    /// A path that ends in .tif or .tiff is one file, any other a folder. Files in a folder are numbered by the
    /// detector row of their slice, or by frame.
    ///
    /// ```yaml
    /// version: 1
    /// nodes:
    ///   scan:    { kind: scan_source, path: "scan.nxs" }
    ///   correct: { kind: flat_field, input: scan }
    ///   volume:  { kind: recon, input: correct }
    ///   keep:    { kind: tiff_sink, input: volume, path: "out/{series}", dtype: u16, range: "0:0.05" }
    /// ```
    TiffSinkConfig, "tiff_sink", tiff_kind
}

volume_sink! {
    /// Writes the pixels of each volume, or of the frames of each series, and nothing else; little-endian.
    ///
    /// ```yaml
    /// version: 1
    /// nodes:
    ///   scan:    { kind: scan_source, path: "scan.nxs" }
    ///   correct: { kind: flat_field, input: scan }
    ///   volume:  { kind: recon, input: correct }
    ///   keep:    { kind: raw_sink, input: volume, path: "out/{series}.raw" }
    /// ```
    RawSinkConfig, "raw_sink", |_| OutputKind::Raw
}

/// Writes each series to one NumPy array, in the blocks' own type.
///
/// Frames are `(frame, row, column)` by frame number, lost ones left out; volumes are `(z, y, x)`.
///
/// ```yaml
/// version: 1
/// nodes:
///   detector: { kind: zmq_source, endpoint: "tcp://127.0.0.1:9999" }
///   keep:     { kind: npy_sink, input: detector, path: "out/{series}.npy" }
/// ```
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NpySinkConfig {
    /// Where to write. `{series}`, `{date}` and `{node}` are replaced; a path that was written already in the same
    /// run gets -2, -3 and so on.
    pub path: String,
    /// Whether to replace what is at the path.
    #[serde(default)]
    pub overwrite: bool,
}

impl NodeConfig for NpySinkConfig {
    const KIND: &'static str = "npy_sink";
    const CLASS: KindClass = KindClass::Sink;
    type Node = FileSink;

    fn build(self, cx: &BuildContext) -> Result<FileSink, BuildError> {
        let Self { path, overwrite } = self;
        FileSink::new(
            SinkSettings { path, dtype: None, range: None, overwrite, kind_of: |_| OutputKind::Npy },
            cx,
        )
    }
}

fn tiff_kind(path: &Path) -> OutputKind {
    match output_kind_of(path) {
        Ok(OutputKind::TiffStack) => OutputKind::TiffStack,
        _ => OutputKind::TiffFolder,
    }
}
