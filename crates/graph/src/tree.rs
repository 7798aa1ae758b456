//! Values that know where they stand.

use serde_json::{Map, Value};

use crate::Place;

/// A value and its place.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) place: Place,
    pub(crate) tree: Tree,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(crate) enum Tree {
    /// One word: as it is written, variables filled in, and what it means.
    Scalar { text: String, value: Value },
    /// Values in a row.
    List(Vec<Located>),
    /// Values by name, in the order of the text.
    Map(Vec<Entry>),
}

/// A named value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_place: Place,
    pub(crate) value: Located,
}

impl Located {
    /// A text at a place.
    pub(crate) fn text(text: &str, place: &Place) -> Self {
        let tree = Tree::Scalar { text: text.to_owned(), value: Value::String(text.to_owned()) };
        Self { place: place.clone(), tree }
    }

    /// A map at a place.
    pub(crate) fn map(entries: Vec<Entry>, place: &Place) -> Self {
        Self { place: place.clone(), tree: Tree::Map(entries) }
    }

    /// The word as it is written. Ids and kinds are read by it, so that a node may be named `1` or `true`.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match &self.tree {
            Tree::Scalar { value: Value::Null, .. } | Tree::List(_) | Tree::Map(_) => None,
            Tree::Scalar { text, .. } => Some(text),
        }
    }

    /// The value as what it means, if it is one word.
    pub(crate) fn as_scalar(&self) -> Option<&Value> {
        match &self.tree {
            Tree::Scalar { value, .. } => Some(value),
            Tree::List(_) | Tree::Map(_) => None,
        }
    }

    /// The named values, none if this is no map.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.tree {
            Tree::Map(entries) => entries,
            Tree::Scalar { .. } | Tree::List(_) => &[],
        }
    }

    /// The entry with that key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The entry with that key, to be changed.
    pub(crate) fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        match &mut self.tree {
            Tree::Map(entries) => entries.iter_mut().find(|entry| entry.key == key),
            Tree::Scalar { .. } | Tree::List(_) => None,
        }
    }

    /// The value below this one that a key or, in a list, a number leads to.
    pub(crate) fn child(&self, key: &str) -> Option<&Located> {
        match &self.tree {
            Tree::Map(_) => self.entry(key).map(|entry| &entry.value),
            Tree::List(items) => items.get(key.parse::<usize>().ok()?),
            Tree::Scalar { .. } => None,
        }
    }

    /// What a message says was found here.
    pub(crate) fn found(&self) -> String {
        match &self.tree {
            Tree::Scalar { value: Value::Null, .. } => "nothing".to_owned(),
            Tree::Scalar { value, .. } => clipped(value.to_string()),
            Tree::List(_) => "a list".to_owned(),
            Tree::Map(_) => "a map".to_owned(),
        }
    }

    /// The value without its place.
    pub(crate) fn to_json(&self) -> Value {
        match &self.tree {
            Tree::Scalar { value, .. } => value.clone(),
            Tree::List(items) => items.iter().map(Self::to_json).collect(),
            Tree::Map(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Number of values in here, this one included.
    pub(crate) fn count(&self) -> usize {
        1 + match &self.tree {
            Tree::Scalar { .. } => 0,
            Tree::List(items) => items.iter().map(Self::count).sum(),
            Tree::Map(entries) => entries.iter().map(|entry| entry.value.count()).sum::<usize>(),
        }
    }
}

/// A text that is not too long for a message.
fn clipped(text: String) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
