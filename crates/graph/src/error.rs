//! What can be wrong with a pipeline file, and where.

use std::fmt;

use miette::{Diagnostic, LabeledSpan, SourceCode};

use crate::Place;

/// One mistake in a pipeline file, launch line or `--set` argument.
///
/// Shown as `FILE:LINE:COLUMN: what is wrong (did you mean 'that'?)`.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{place}: {cause}{}", Suggestion(.nearest.as_deref()))]
pub struct GraphError {
    /// Where it is.
    pub place: Place,
    /// What is wrong.
    pub cause: Box<Cause>,
    /// The name that was probably meant.
    pub nearest: Option<String>,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The text cannot be read at all.
    #[error("{0}")]
    Syntax(String),
    /// The text holds more than any pipeline needs.
    #[error("too large: at most {limit} {what} can be read")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// A value of another sort is needed.
    #[error("{what} must be {expected}, found {found}")]
    Expected {
        /// What the value is for.
        what: String,
        /// What would do.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A key that must be there is not.
    #[error("{inside} lacks '{key}'")]
    Missing {
        /// The key.
        key: &'static str,
        /// Where it belongs.
        inside: String,
    },
    /// A key has no meaning here.
    #[error("unknown key '{key}' in {inside}")]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        inside: &'static str,
    },
    /// A key or an id stands twice in one map.
    #[error("'{key}' stands here twice, first in line {first_line}")]
    Duplicate {
        /// The key.
        key: String,
        /// Line of the first.
        first_line: usize,
    },
    /// The file is of a version that this program cannot read.
    #[error("version {found} of pipeline files is unknown: expected version 1")]
    Version {
        /// What the file says.
        found: String,
    },
    /// A variable that the file needs is not set.
    #[error("environment variable '{name}' is not set; '${{{name}:-VALUE}}' would give a default")]
    Variable {
        /// The variable.
        name: String,
    },
    /// A node id holds other characters than it may.
    #[error("'{id}' is no node id: expected letters, digits, '_' and '-'")]
    NodeId {
        /// The id.
        id: String,
    },
    /// No kind has this name.
    #[error("unknown kind '{kind}'")]
    UnknownKind {
        /// The name.
        kind: String,
    },
    /// The kind has no parameter of this name.
    #[error("unknown parameter '{key}' of kind '{kind}'")]
    UnknownParameter {
        /// The name.
        key: String,
        /// The kind of the node.
        kind: String,
    },
    /// No node has this id.
    #[error("unknown node '{id}'")]
    UnknownNode {
        /// The id.
        id: String,
    },
    /// The node has no port of this name.
    #[error("unknown port '{port}': expected '{expected}'")]
    UnknownPort {
        /// The name.
        port: String,
        /// The name that exists.
        expected: &'static str,
    },
    /// A source cannot have an input.
    #[error("'{id}' is a source ({kind}) and takes no input")]
    SourceWithInput {
        /// The node.
        id: String,
        /// Its kind.
        kind: String,
    },
    /// A step or sink needs an input.
    #[error("'{id}' ({kind}) needs an input, for example 'input: NODE'")]
    NoInput {
        /// The node.
        id: String,
        /// Its kind.
        kind: String,
    },
    /// A sink hands nothing on.
    #[error("'{from}' is a sink ({kind}) and hands nothing on to '{id}'")]
    InputFromSink {
        /// The node that wants the input.
        id: String,
        /// The sink.
        from: String,
        /// Kind of the sink.
        kind: String,
    },
    /// Nodes feed each other in a circle.
    #[error("nodes feed each other in a circle: {}", Circle(.nodes))]
    Cycle {
        /// The nodes, each feeding the next, the last the first.
        nodes: Vec<String>,
    },
    /// Where or how much to spill is said, but the edge does not spill.
    #[error("'{key}' needs 'when_full: spill', found 'when_full: {when_full}'")]
    Spill {
        /// What is said.
        key: &'static str,
        /// The policy of the edge.
        when_full: &'static str,
    },
    /// A parameter has an unusable value.
    #[error("node '{id}': {message}")]
    Value {
        /// The node.
        id: String,
        /// Which parameter, what was expected, what was found.
        message: String,
    },
}

impl Cause {
    pub(crate) fn at(self, place: &Place) -> GraphError {
        GraphError { place: place.clone(), cause: Box::new(self), nearest: None }
    }

    /// A name that stays the same whatever the message says.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "graph::syntax",
            Self::Limit { .. } => "graph::limit",
            Self::Expected { .. } => "graph::expected",
            Self::Missing { .. } => "graph::missing",
            Self::UnknownKey { .. } => "graph::unknown_key",
            Self::Duplicate { .. } => "graph::duplicate",
            Self::Version { .. } => "graph::version",
            Self::Variable { .. } => "graph::variable",
            Self::NodeId { .. } => "graph::node_id",
            Self::UnknownKind { .. } => "graph::unknown_kind",
            Self::UnknownParameter { .. } => "graph::unknown_parameter",
            Self::UnknownNode { .. } => "graph::unknown_node",
            Self::UnknownPort { .. } => "graph::unknown_port",
            Self::SourceWithInput { .. } => "graph::source_with_input",
            Self::NoInput { .. } => "graph::no_input",
            Self::InputFromSink { .. } => "graph::input_from_sink",
            Self::Cycle { .. } => "graph::cycle",
            Self::Spill { .. } => "graph::spill",
            Self::Value { .. } => "graph::value",
        }
    }
}

impl GraphError {
    pub(crate) fn or(mut self, nearest: Option<&str>) -> Self {
        self.nearest = nearest.map(str::to_owned);
        self
    }
}

impl Diagnostic for GraphError {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.cause.code()))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let nearest = self.nearest.as_deref()?;
        Some(Box::new(format!("did you mean '{nearest}'?")))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&**self.place.source())
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(Some(self.cause.to_string()), self.place.bytes());
        Some(Box::new(std::iter::once(label)))
    }
}

/// All mistakes of a text, in the order in which they stand there. Shown one a line.
#[derive(Debug, Clone)]
pub struct Errors(Vec<GraphError>);

impl Errors {
    /// Gathers mistakes and sorts them by their places.
    pub fn new(mut errors: Vec<GraphError>) -> Self {
        errors.sort_by_key(|error| error.place.bytes().start);
        Self(errors)
    }

    /// The mistakes.
    pub fn iter(&self) -> std::slice::Iter<'_, GraphError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a GraphError;
    type IntoIter = std::slice::Iter<'a, GraphError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<GraphError> for Errors {
    fn from(error: GraphError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

impl Diagnostic for Errors {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.iter().map(|error| error as &dyn Diagnostic)))
    }
}

struct Suggestion<'a>(Option<&'a str>);

impl fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |nearest| write!(f, " (did you mean '{nearest}'?)"))
    }
}

struct Circle<'a>(&'a [String]);

impl fmt::Display for Circle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.0.iter().chain(self.0.first()).enumerate() {
            let arrow = if node.0 == 0 { "" } else { " -> " };
            write!(f, "{arrow}{}", node.1)?;
        }
        Ok(())
    }
}
