//! Specifications of the computations: shapes, units, tolerances.
//!
//! Every operation has one meaning, written down here, and an implementation per backend. The one on the
//! CPU is the reference; another backend may differ from it by the tolerance stated with the operation.

mod backend;
mod device;
mod flat_field;
mod gridding;
mod names;
mod planes;
mod recon;
mod response;

pub use backend::{
    AxisEstimate, Backend, FlatField, MeanImage, OUTPUT_TYPES, OpError, ProjectionBlock, Reconstruction,
};
pub use device::{Device, DeviceSpan, Transfer};
pub use flat_field::{BadPixels, FlatFieldSpec, MIN_TRANSMISSION};
pub use gridding::Gridding;
pub use names::UnknownName;
pub use planes::{Plane, ScanStore};
pub use recon::{
    Accumulate, Filter, Memory, Method, Padding, Projection, ReconError, ReconSpec, RotationAxis, SpecError,
    Storage,
};
pub use response::good_length;
