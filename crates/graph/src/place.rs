//! Where something stands in a text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::NamedSource;

/// A text with the name that people know it by: a file, a launch line, an argument.
pub(crate) type Source = Arc<NamedSource<String>>;

/// Names a text.
pub(crate) fn source(name: &str, text: &str) -> Source {
    Arc::new(NamedSource::new(name, text.to_owned()))
}

/// A stretch of a pipeline file, of a launch line or of an argument.
#[derive(Debug, Clone)]
pub struct Place {
    source: Source,
    bytes: Range<usize>,
}

impl Place {
    pub(crate) fn new(source: &Source, bytes: Range<usize>) -> Self {
        Self { source: Arc::clone(source), bytes }
    }

    /// The file, or what else the text is known by.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// The whole text in which the place is.
    pub fn text(&self) -> &str {
        self.source.inner()
    }

    /// The stretch, in bytes from the start of the text.
    pub fn bytes(&self) -> Range<usize> {
        self.bytes.clone()
    }

    /// The line in which the stretch begins, counted from 1.
    pub fn line(&self) -> usize {
        self.before().bytes().filter(|byte| *byte == b'\n').count() + 1
    }

    /// The column in which the stretch begins, in characters, counted from 1.
    pub fn column(&self) -> usize {
        let before = self.before();
        let line = before.rfind('\n').map_or(before, |end| &before[end + 1..]);
        line.chars().count() + 1
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    fn before(&self) -> &str {
        self.text().get(..self.bytes.start).unwrap_or_default()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name(), self.line(), self.column())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let source = source("mine.yaml", "a: 1\nµm: 2\n");
        let at = |byte| Place::new(&source, byte..byte + 1).to_string();
        assert_eq!(at(0), "mine.yaml:1:1");
        assert_eq!(at(3), "mine.yaml:1:4");
        assert_eq!(at(5), "mine.yaml:2:1");
        assert_eq!(at(8), "mine.yaml:2:3");
    }
}
