//! What the kinds say about their parameters.

use beamstream_node::KindInfo;
use serde_json::{Map, Value};

/// Keyword of a parameter's schema that lists its other spellings, as in
/// `#[schemars(extend("x-aliases" = ["center"]))]`.
pub(crate) const ALIASES: &str = "x-aliases";

/// Keywords by which a schema gets properties from elsewhere; only its own reader knows them all then.
const COMPOSED: [&str; 4] = ["oneOf", "anyOf", "allOf", "$ref"];

/// The parameters of a kind, as its schema describes them.
pub(crate) struct Parameters<'a> {
    schema: &'a Map<String, Value>,
}

impl<'a> Parameters<'a> {
    /// Those of a kind; `None` for a kind whose schema describes nothing.
    pub(crate) fn of(info: &'a KindInfo) -> Option<Self> {
        info.schema.as_object().map(|schema| Self { schema })
    }

    /// The name under which a kind reads the parameter that a file spells `key`.
    pub(crate) fn name(&self, key: &str) -> Option<&'a str> {
        let mut properties = self.properties();
        properties
            .clone()
            .find(|(name, _)| *name == key)
            .or_else(|| properties.find(|(_, schema)| aliases(schema).any(|alias| alias == key)))
            .map(|(name, _)| name.as_str())
    }

    /// All spellings of all parameters.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = &'a str> {
        self.properties().flat_map(|(name, schema)| std::iter::once(name.as_str()).chain(aliases(schema)))
    }

    /// Whether the kind has no other parameters than those that the schema lists.
    pub(crate) fn are_complete(&self) -> bool {
        let more = self.schema.get("additionalProperties").unwrap_or(&Value::Bool(false));
        more == &Value::Bool(false) && !COMPOSED.iter().any(|keyword| self.schema.contains_key(*keyword))
    }

    fn properties(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + Clone + use<'a> {
        self.schema.get("properties").and_then(Value::as_object).into_iter().flatten()
    }
}

/// The other spellings that the schema of a parameter lists.
pub(crate) fn aliases(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get(ALIASES).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
