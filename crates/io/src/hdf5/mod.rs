//! Reads HDF5 files: links, attributes, and frames straight from their place in the file.
//!
//! Only what scans need is here. Metadata are read on demand with positioned reads; a file that another
//! program holds open for writing can be read. Nothing in a file makes this module panic, recurse without
//! end, or allocate more than the file itself or a stated limit justifies.
//!
//! # Source
//! The HDF Group, "HDF5 File Format Specification Version 3.0"; section names in the comments are its own.

mod blosc;
mod btree;
mod bytes;
mod chunks;
mod dataset;
mod file;
mod filters;
mod group;
mod heap;
mod object;
mod selection;
mod types;
mod virtuals;

use std::path::PathBuf;

pub(crate) use blosc::decode_chunk as decode_blosc;
pub(crate) use dataset::{Dataset, Frames, pixel_type};
pub(crate) use file::{File, has_signature};
pub(crate) use filters::{Filter, gunzip, inflate, unzstd};
pub(crate) use group::{Node, NodeKind, walk};
pub(crate) use types::{Datatype, Number, NumberClass};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why an HDF5 file or an object in it cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The superblock announces more bytes than there are.
    #[error("the file is cut off: {expected} bytes were written, {found} are there")]
    CutOff {
        /// Bytes by the superblock.
        expected: u64,
        /// Bytes found.
        found: u64,
    },
    /// An address points outside of the file.
    #[error("{what} at byte {address} lies outside of the file")]
    Outside {
        /// What is there.
        what: &'static str,
        /// Where it should be.
        address: u64,
    },
    /// A structure is not what it should be.
    #[error("{0} is damaged")]
    Malformed(&'static str),
    /// A compressed chunk does not decode.
    #[error("a chunk cannot be decoded")]
    Codec(#[from] beamstream_codec::CodecError),
    /// Something that HDF5 can do and this reader cannot.
    #[error("{0} cannot be read")]
    Unsupported(String),
    /// There is no such object.
    #[error("there is no {0}")]
    NotFound(String),
    /// A link leads to a file that cannot be opened.
    #[error(
        "{link} is a link to {target}: neither that nor a file of its name beside this one can be opened"
    )]
    BrokenLink {
        /// Path of the link.
        link: String,
        /// The file that it names.
        target: PathBuf,
    },
    /// Links lead in a circle.
    #[error("the links of {0} lead in a circle")]
    LinkCircle(String),
}
