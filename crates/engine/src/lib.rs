//! From a graph to a run: [`Plan`] checks, types and sizes it, [`Plan::start`] gives every node an actor
//! and a worker thread.

mod budget;
mod explain;
mod limit;
mod plan;
mod report;
mod run;

pub use budget::{available_host_bytes, parse_bytes, show_bytes};
pub use explain::{EdgeExplanation, Explanation, MemoryExplanation, NodeExplanation};
pub use limit::{Limit, Work};
pub use plan::{Plan, PlanError, PlanOptions};
pub use report::{
    AngleReport, EdgeReport, ExitCode, MemoryReport, NodeReport, Report, SeriesBytes, SeriesReport,
    SeriesSeconds,
};
pub use run::{Exit, NodeStatus, ParameterChange, RunHandle, RunState, SetFailure, Status, WorkerState};
