//! The kinds of nodes that a program knows.

use std::collections::BTreeMap;

use schemars::Schema;
use serde_json::Value;

use crate::{BuildContext, BuildError, Node, NodeConfig, Source, SourceConfig};

/// Where a kind stands in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KindClass {
    /// Begins branches.
    Source,
    /// Stands within a branch.
    Step,
    /// Ends a branch.
    Sink,
}

/// A node that was built.
pub enum Built {
    /// A source.
    Source(Box<dyn Source>),
    /// A step or a sink.
    Node(Box<dyn Node>),
}

/// Settings that cannot be read, or that build no node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A value has the wrong type or is out of its range.
    #[error("{message}")]
    Parse {
        /// Path of the value below the node, outermost key first.
        path: Vec<String>,
        /// What was expected and what was found.
        message: String,
    },
    /// The settings can be read but not used.
    #[error(transparent)]
    Build(#[from] BuildError),
}

type Builder = Box<dyn Fn(&Value, &BuildContext) -> Result<Built, RegistryError> + Send + Sync>;

/// One kind of node.
pub struct KindInfo {
    /// Its name in pipeline files.
    pub kind: &'static str,
    /// Where it stands in a graph.
    pub class: KindClass,
    /// Whether blocks that show unfinished work are sent to it.
    pub previews: bool,
    /// Whether it can be placed on a device.
    pub computes: bool,
    /// JSON Schema of its parameters.
    pub schema: Schema,
    build: Builder,
}

impl KindInfo {
    /// One line that says what the kind does.
    pub fn summary(&self) -> &str {
        let description = self.schema.get("description").and_then(Value::as_str).unwrap_or_default();
        description.lines().next().unwrap_or_default()
    }

    /// The names of its parameters.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flatten().map(|(name, _)| name.as_str())
    }

    /// Builds a node from its parameters.
    ///
    /// # Errors
    /// [`RegistryError`] naming the parameter.
    pub fn build(&self, parameters: &Value, cx: &BuildContext) -> Result<Built, RegistryError> {
        (self.build)(parameters, cx)
    }
}

/// All kinds that a program knows. Each crate of nodes adds its own by a function `register`.
#[derive(Default)]
pub struct Registry {
    kinds: BTreeMap<&'static str, KindInfo>,
}

impl Registry {
    /// Adds a step or sink.
    pub fn node<C: NodeConfig>(&mut self) {
        let build: Builder = Box::new(|parameters, cx| {
            let config: C = parse(parameters)?;
            Ok(Built::Node(Box::new(config.build(cx)?)))
        });
        self.add(KindInfo {
            kind: C::KIND,
            class: C::CLASS,
            previews: C::PREVIEWS,
            computes: C::COMPUTES,
            schema: schemars::schema_for!(C),
            build,
        });
    }

    /// Adds a source.
    pub fn source<C: SourceConfig>(&mut self) {
        let build: Builder = Box::new(|parameters, cx| {
            let config: C = parse(parameters)?;
            Ok(Built::Source(Box::new(config.build(cx)?)))
        });
        self.add(KindInfo {
            kind: C::KIND,
            class: KindClass::Source,
            previews: false,
            computes: false,
            schema: schemars::schema_for!(C),
            build,
        });
    }

    /// The kind of that name.
    pub fn get(&self, kind: &str) -> Option<&KindInfo> {
        self.kinds.get(kind)
    }

    /// All kinds by name.
    pub fn iter(&self) -> impl Iterator<Item = &KindInfo> {
        self.kinds.values()
    }

    fn add(&mut self, info: KindInfo) {
        let kind = info.kind;
        let earlier = self.kinds.insert(kind, info);
        debug_assert!(earlier.is_none(), "two kinds are named {kind}");
    }
}

/// Reads settings, and says at which key they are wrong.
fn parse<C: serde::de::DeserializeOwned>(parameters: &Value) -> Result<C, RegistryError> {
    serde_path_to_error::deserialize(parameters).map_err(|error| {
        let path = error.path().iter().filter_map(segment).collect();
        RegistryError::Parse { path, message: error.into_inner().to_string() }
    })
}

fn segment(segment: &serde_path_to_error::Segment) -> Option<String> {
    use serde_path_to_error::Segment;
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } | Segment::Enum { variant: key } => Some(key.clone()),
        Segment::Unknown => None,
    }
}
