//! The words of the field as types: series, frame, role, element type, shape, angle, rotation axis.
//!
//! Everything else in Beamstream speaks in these types. This crate does no I/O, starts no thread
//! and holds no unsafe code.

mod angles;
mod element;
mod format;
mod frame;
mod ledger;
mod range;
mod series;

pub use angles::{AngleRule, angular_weights};
pub use element::{Element, ElementType};
pub use format::{Axes, Format, Shape};
pub use frame::{BlockMeta, FrameId, Role, Timestamps};
pub use half::f16;
pub use ledger::{FrameCounts, Ledger, Verdict};
pub use range::{IndexRange, ParseRangeError};
pub use series::{Content, Pass, RoleCounts, SeriesHeader, SeriesId, SeriesSummary, Window};
