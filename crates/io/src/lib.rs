//! Files that people have: recorded scans in, volumes out.

mod hdf5;
mod scan;

pub use hdf5::Error as Hdf5Error;
pub use scan::{DatasetInfo, FrameEntry, Scan, ScanError, ScanInfo, ScanKind, ScanOptions, list_datasets};
