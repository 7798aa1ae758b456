//! The file of recordings and spills: series, blocks and ends as they came, checked record by record.
//!
//! A tape is written in order and never changed. It ends with an index; one that was cut off is read as far as its
//! records are whole, and can be continued from there. The bytes are told in `docs/recording-format.md`.

mod content;
mod error;
mod prefix;
mod reader;
mod record;
mod writer;

pub use content::{Content, Record};
pub use error::TapeError;
pub use reader::TapeReader;
pub use record::{Entry, read_at, write_at};
pub use writer::{Stored, TapeWriter, Unfinished};
