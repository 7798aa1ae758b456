//! A few kinds that do nothing.

use beamstream_node::prelude::*;
use beamstream_node::{KindClass, Registry};

/// Does nothing.
pub(super) struct Idle;

impl Node for Idle {
    fn negotiate(&self, header: &SeriesHeader) -> Result<Negotiated, NodeError> {
        Ok(Negotiated::unchanged(header))
    }

    fn begin(&mut self, _: &SeriesHeader, _: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    fn process(&mut self, _: Block, _: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }

    fn end(&mut self, _: &SeriesSummary, _: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
}

impl Source for Idle {
    fn header(&mut self) -> Result<Option<SeriesHeader>, NodeError> {
        Ok(None)
    }

    fn buffers(&self, _: &SeriesHeader) -> usize {
        0
    }

    fn run(&mut self, _: &mut Outlet) -> Result<(), NodeError> {
        Ok(())
    }
}

macro_rules! source {
    ($config:ident, $kind:literal) => {
        impl SourceConfig for $config {
            const KIND: &'static str = $kind;
            type Source = Idle;

            fn build(self, _: &BuildContext) -> Result<Idle, BuildError> {
                Ok(Idle)
            }
        }
    };
}

macro_rules! node {
    ($config:ident, $kind:literal, $class:ident) => {
        impl NodeConfig for $config {
            const KIND: &'static str = $kind;
            const CLASS: KindClass = KindClass::$class;
            type Node = Idle;

            fn build(self, _: &BuildContext) -> Result<Idle, BuildError> {
                Ok(Idle)
            }
        }
    };
}

/// Makes frames.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is looked at")]
struct Phantom {
    /// Columns. Unit: pixels.
    size: u32,
    rows: Option<u32>,
    angles: Option<u32>,
    noise: Option<f64>,
}
source!(Phantom, "phantom_source");

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the schema is looked at")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is looked at")]
struct Zmq {
    endpoint: OneOrMore,
    protocol: Option<String>,
}
source!(Zmq, "zmq_source");

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is looked at")]
struct FlatField {
    minus_log: Option<bool>,
}
node!(FlatField, "flat_field", Step);

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Method {
    Fourier,
    Fbp,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is looked at")]
struct Preview {
    every_projections: u32,
    slices: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the schema is looked at")]
enum Axis {
    Fixed(f64),
    Method(String),
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is looked at")]
struct Recon {
    #[schemars(extend("x-aliases" = ["center"]))]
    rotation_axis: Option<Axis>,
    method: Option<Method>,
    preview: Option<Preview>,
}
node!(Recon, "recon", Step);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is looked at")]
struct Npy {
    path: String,
}
node!(Npy, "npy_sink", Sink);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the schema is looked at")]
struct Zarr {
    path: String,
    method: Option<Method>,
}
node!(Zarr, "zarr_sink", Sink);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct View {}
node!(View, "view", Sink);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Null {}
node!(Null, "null_sink", Sink);

/// A step with whatever parameters.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
struct Plugin {}
node!(Plugin, "plugin", Step);

/// All of them.
pub(super) fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.source::<Phantom>();
    registry.source::<Zmq>();
    registry.node::<FlatField>();
    registry.node::<Recon>();
    registry.node::<Npy>();
    registry.node::<Zarr>();
    registry.node::<View>();
    registry.node::<Null>();
    registry.node::<Plugin>();
    registry
}
