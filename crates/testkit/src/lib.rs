//! Phantoms, a harness for one node, golden data; a dev-dependency only.

mod arrays;
mod data;
pub mod phantom;

pub use arrays::Array;
pub use data::{data, recording};
