//! Files that people have: recorded scans in, volumes out.

mod hdf5;
mod nodes;
mod output;
mod scan;

pub use hdf5::Error as Hdf5Error;
pub use nodes::{
    FileSink, Hdf5SinkConfig, NpySinkConfig, RawSinkConfig, ScanSource, ScanSourceConfig, TiffSinkConfig,
    ZarrSinkConfig, register,
};
pub use output::{Output, OutputError, OutputKind, OutputSpec, create_output, create_scan, output_kind_of};
pub use scan::{DatasetInfo, FrameEntry, Scan, ScanError, ScanInfo, ScanKind, ScanOptions, list_datasets};
