//! Files that people have: recorded scans in, volumes out.

mod hdf5;
mod output;
mod scan;

pub use hdf5::Error as Hdf5Error;
pub use output::{Output, OutputError, OutputKind, OutputSpec, create_output, output_kind_of};
pub use scan::{DatasetInfo, FrameEntry, Scan, ScanError, ScanInfo, ScanKind, ScanOptions, list_datasets};
