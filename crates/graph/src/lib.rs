//! Pipeline files and launch lines: one data model, with places for errors.
//!
//! [`Graph::parse`] reads files, [`Graph::launch`] lines, [`Graph::set`] changes a value, [`schema()`] describes files.
//! All of them fill one tree of values that know where they stand, and one set of checks makes the graph of it.

mod assemble;
mod error;
mod graph;
mod input;
mod kinds;
mod launch;
mod links;
mod nearest;
mod place;
mod scalar;
mod schema;
mod set;
#[cfg(test)]
mod tests;
mod tree;
mod write;
mod yaml;

pub use error::{Cause, Errors, GraphError};
pub use graph::{Graph, NodeSpec};
pub use input::{INPUT_PORT, InputSpec, OUTPUT_PORT, WhenFull};
pub use nearest::nearest;
pub use place::Place;
pub use scalar::Environment;
pub use schema::schema;
