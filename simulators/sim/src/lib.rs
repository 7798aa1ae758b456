//! Simulated detectors.
//!
//! A [`Simulator`] takes frames from a [`FrameSource`] (a recorded [`ScanSource`], the analytic [`Phantom`], or a
//! [`Stack`] in memory) and sends them as a detector would: in one of its protocols, at its rate, with its faults.
//!
//! ```no_run
//! use beamstream_sim::{Phantom, PhantomConfig, Protocol, Settings, Simulator};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let phantom = Phantom::new(PhantomConfig { size: 128, angles: 200, ..Default::default() })?;
//! let settings = Settings::new(Protocol::DectrisV1, "tcp://127.0.0.1:0".parse()?);
//! let simulator = Simulator::open(Box::new(phantom), settings)?;
//! let (endpoint, stop) = (simulator.endpoint().to_string(), simulator.stop());
//! let running = std::thread::spawn(|| simulator.run(|_frames| ()));
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests expect exact values"))]

mod faults;
mod nxtomo;
mod phantom;
mod plan;
mod random;
mod scan;
mod simulator;
mod source;

pub use beamstream_sim_wire::{
    Encoding, Endpoint, EndpointError, Protocol, SocketKind, Stop, Stopped, UnknownName,
};
pub use faults::{FaultError, FaultKind, Faults};
pub use nxtomo::{WriteError, write_nxtomo};
pub use phantom::{Phantom, PhantomConfig, PhantomError};
pub use scan::{RowsError, ScanSource};
pub use simulator::{Sent, Settings, SimError, Simulator};
pub use source::{FrameSource, ReadError, SourceFrame, Stack};
