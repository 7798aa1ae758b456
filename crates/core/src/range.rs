//! Ranges as users write them: `first:end`, the end excluded.

use std::ops::Range;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A range of rows, columns or frame numbers, written `"first:end"` with the end excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct IndexRange {
    /// The first index.
    pub first: u64,
    /// One past the last index.
    pub end: u64,
}

/// The text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no range: expected FIRST:END with FIRST below END, the end excluded, for example 10:20")]
pub struct ParseRangeError(String);

impl IndexRange {
    /// Whether the index lies inside.
    pub const fn contains(self, index: u64) -> bool {
        self.first <= index && index < self.end
    }

    /// Number of indices inside.
    pub const fn len(self) -> u64 {
        self.end - self.first
    }

    /// Never: a range holds one index at least.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// The range as indices into memory, or `None` if it ends beyond `limit`.
    pub fn within(self, limit: usize) -> Option<Range<usize>> {
        let end = usize::try_from(self.end).ok().filter(|end| *end <= limit)?;
        Some(usize::try_from(self.first).ok()?..end)
    }
}

impl FromStr for IndexRange {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once(':')
            .and_then(|(first, end)| Some((first.trim().parse().ok()?, end.trim().parse().ok()?)))
            .filter(|(first, end): &(u64, u64)| first < end)
            .map(|(first, end)| Self { first, end })
            .ok_or_else(|| ParseRangeError(text.to_owned()))
    }
}

impl std::fmt::Display for IndexRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.first, self.end)
    }
}

impl Serialize for IndexRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IndexRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_exclude_their_end() {
        let range: IndexRange = "2:5".parse().unwrap();
        assert!(range.contains(2) && range.contains(4) && !range.contains(5));
        assert_eq!(range.within(5), Some(2..5));
        assert_eq!(range.within(4), None);
        assert_eq!(range.to_string(), "2:5");
    }

    #[test]
    fn what_is_no_range_is_named() {
        for text in ["9", "5:5", "7:3", "-1:4", "a:b", ""] {
            let error = text.parse::<IndexRange>().unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }
}
