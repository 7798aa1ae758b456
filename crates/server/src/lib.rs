//! The live web view: what a run sees, in a browser, while it goes on.
//!
//! [`Server::start`] serves one page, a small HTTP interface and a WebSocket with images on a loopback
//! address; `docs/live-view.md` describes the messages. Looking never slows the run: a view shows the
//! newest images only, they are prepared on a thread of the server, and a viewer that stalls gets none.

#![cfg_attr(test, allow(clippy::float_cmp, reason = "the cases are exact in floating point"))]

mod client;
mod exporter;
mod gallery;
mod guard;
mod http;
mod picture;
mod run;
mod server;
mod status;
mod watcher;

#[cfg(test)]
mod tests;

pub use run::LiveRun;
pub use server::{Server, ServerError};
