//! Phantoms, a harness for one node, a simulated device, golden data; a dev-dependency only.

mod arrays;
mod data;
#[cfg(feature = "harness")]
mod harness;
pub use beamstream_phantom as phantom;
mod receiver;
#[cfg(feature = "harness")]
mod sim;

pub use arrays::Array;
pub use data::{data, recording};
#[cfg(feature = "harness")]
pub use harness::{Harness, build_context, build_kind};
pub use receiver::Receiver;
#[cfg(feature = "harness")]
pub use sim::SimDevice;
