//! Reads pieces of files straight into the memory that they are for, many at once.
//!
//! A [`Reader`] fills a list of [`Piece`]s by `io_uring`, around the page cache where the caller asks for it and the file
//! system allows it. Where `io_uring` is refused, as in many containers, the same calls read with `pread`.

mod alignment;
mod parts;
mod reader;
mod ring;

pub use reader::{Cache, Piece, ReadError, Reader};
