//! Run: an actor and a worker thread for every node, edges between them, one supervisor.

mod account;
mod actor;
mod edge;
mod emit;
mod energy;
mod handle;
mod shelf;
mod stats;
mod supervisor;
mod trace;
mod worker;

pub use handle::{NodeStatus, ParameterChange, RunHandle, RunState, SetFailure, Status};
pub use stats::WorkerState;
pub use worker::Exit;

pub(crate) use edge::{Capacity, Policy};
pub(crate) use handle::{Outcome, RunShared, SharedEdge, SharedNode};
