//! All that a node author imports.
//!
//! A node is a settings struct ([`NodeConfig`] or [`SourceConfig`], parsed from a pipeline file) that
//! builds a running struct ([`Node`] or [`Source`]). Nodes compute; waiting, order, counting and
//! placement are the engine's. Each crate of nodes lists its kinds in one
//! `register(&mut Registry)`.

mod board;
mod context;
mod earlier;
mod error;
mod event;
mod journal;
mod outlet;
mod registry;
mod stop;
mod traits;

pub use board::{Board, View, ViewImage};
pub use context::{BuildContext, ImageReader};
pub use earlier::{Earlier, EarlierStep};
pub use error::{BuildError, NodeError, NodeErrorKind, SetError};
pub use event::Event;
pub use journal::{Journal, SeriesRecord, Warning};
pub use outlet::{Emit, Outlet};
pub use registry::{Built, KindClass, KindInfo, Registry, RegistryError};
pub use stop::{Closed, Stop, StopController};
pub use traits::{Negotiated, Node, NodeConfig, Source, SourceConfig, TakesEffect};

/// One import for node authors.
pub mod prelude {
    pub use crate::{
        BuildContext, BuildError, Event, KindClass, Negotiated, Node, NodeConfig, NodeError, NodeErrorKind,
        Outlet, Registry, SetError, Source, SourceConfig, TakesEffect,
    };
    pub use beamstream_buffer::{Block, LeaseMut, Pool};
    pub use beamstream_core::{
        Axes, BlockMeta, Content, Element, ElementType, Format, FrameId, IndexRange, Role, SeriesHeader,
        SeriesId, SeriesSummary, Shape,
    };
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
}
