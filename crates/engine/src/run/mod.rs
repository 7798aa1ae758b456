//! Run: an actor and a worker thread for every node, edges between them, one supervisor.

mod account;
mod actor;
mod edge;
mod emit;
mod energy;
mod handle;
mod shared;
mod shelf;
mod stats;
mod supervisor;
mod trace;
mod wire;
mod worker;

pub use handle::{NodeStatus, RunHandle, RunState, SetFailure, Status};
pub use shared::ParameterChange;
pub use stats::WorkerState;
pub use worker::Exit;

pub(crate) use edge::{Capacity, Policy, SpillSettings, default_folder};
pub(crate) use shared::{Outcome, RunShared, SharedEdge, SharedNode};
