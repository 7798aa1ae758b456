//! Reads launch lines: `source a=1 ! step ! [sink, step ! sink]`.

use std::collections::HashSet;

use beamstream_node::Registry;
use serde_json::Value;

use crate::assemble::is_common_key;
use crate::input::INPUT_KEYS;
use crate::place::{Source, source};
use crate::scalar::{Environment, expand};
use crate::tree::{Entry, Located, Tree};
use crate::{Cause, GraphError, Place, yaml};

/// How errors name the text of a line.
const NAME: &str = "launch line";
/// Most levels of branches in each other.
const MAX_DEPTH: usize = 32;
/// Longest line, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// Reads a line into the map of nodes that a pipeline file would hold.
pub(crate) fn read(
    line: &str,
    registry: &Registry,
    environment: Environment<'_>,
    errors: &mut Vec<GraphError>,
) -> Result<Located, GraphError> {
    let source = source(NAME, line);
    let whole = Place::new(&source, 0..line.len());
    if line.len() > MAX_BYTES {
        return Err(Cause::Limit { what: "bytes", limit: MAX_BYTES }.at(&whole));
    }
    let mut reader = Reader { source: &source, at: 0, registry, environment, elements: Vec::new(), errors };
    reader.chain(None, 0)?;
    if reader.peek().is_some() {
        return Err(reader.unexpected("'!' or the end of the line"));
    }
    let ids = ids(&reader.elements);
    let entries = reader.elements.into_iter().zip(&ids).map(|(element, id)| element.into_entry(id, &ids));
    Ok(Located::map(entries.collect(), &whole))
}

/// A node of the line.
struct Element {
    id: Option<String>,
    id_place: Place,
    kind: Entry,
    parameters: Vec<Entry>,
    edge: Vec<Entry>,
    /// Index of the element that feeds it.
    from: Option<usize>,
}

impl Element {
    fn into_entry(self, id: &str, ids: &[String]) -> Entry {
        let place = self.kind.key_place.clone();
        let mut entries = vec![self.kind];
        if let Some(from) = self.from {
            let entry = |key: &str, value| Entry { key: key.to_owned(), key_place: place.clone(), value };
            let from = Located::text(&ids[from], &place);
            let input = if self.edge.is_empty() {
                from
            } else {
                let mut edge = self.edge;
                edge.insert(0, entry(INPUT_KEYS[0], from));
                Located::map(edge, &place)
            };
            entries.push(entry("input", input));
        } else if !self.edge.is_empty() {
            // A source has no edge: the checks say so at the input that it should not have.
            let key_place = self.edge[0].key_place.clone();
            let value = Located::map(self.edge, &place);
            entries.push(Entry { key: "input".to_owned(), key_place, value });
        }
        entries.extend(self.parameters);
        Entry { key: id.to_owned(), key_place: self.id_place, value: Located::map(entries, &place) }
    }
}

/// The ids of the nodes: the given ones, else the kind with the lowest number that is free.
fn ids(elements: &[Element]) -> Vec<String> {
    let mut taken: HashSet<String> = elements.iter().filter_map(|element| element.id.clone()).collect();
    let mut ids = Vec::with_capacity(elements.len());
    for element in elements {
        let kind = element.kind.value.as_text().unwrap_or_default();
        let id = element.id.clone().unwrap_or_else(|| {
            let numbered = (2..).map(|number| format!("{kind}_{number}"));
            std::iter::once(kind.to_owned())
                .chain(numbered)
                .find(|id| !taken.contains(id))
                .unwrap_or_default()
        });
        taken.insert(id.clone());
        ids.push(id);
    }
    ids
}

struct Reader<'a> {
    source: &'a Source,
    /// Where reading goes on, in bytes.
    at: usize,
    registry: &'a Registry,
    environment: Environment<'a>,
    elements: Vec<Element>,
    errors: &'a mut Vec<GraphError>,
}

impl Reader<'_> {
    /// Nodes joined by `!`, up to a `,` or `]` or the end of the line.
    fn chain(&mut self, mut from: Option<usize>, depth: usize) -> Result<(), GraphError> {
        loop {
            self.skip_blanks();
            if self.peek() == Some('[') && from.is_some() {
                return self.branches(from, depth + 1);
            }
            from = Some(self.element(from, depth)?);
            if !self.eat('!') {
                return Ok(());
            }
        }
    }

    fn branches(&mut self, from: Option<usize>, depth: usize) -> Result<(), GraphError> {
        if depth > MAX_DEPTH {
            let limit = Cause::Limit { what: "levels of branches", limit: MAX_DEPTH };
            return Err(limit.at(&self.place(self.at)));
        }
        self.eat('[');
        loop {
            self.chain(from, depth)?;
            if self.eat(']') {
                self.skip_blanks();
                return Ok(());
            }
            if !self.eat(',') {
                return Err(self.unexpected("'!', ',' or ']'"));
            }
        }
    }

    /// A kind and its parameters.
    fn element(&mut self, from: Option<usize>, depth: usize) -> Result<usize, GraphError> {
        let start = self.at;
        let word = self.word();
        if word.is_empty() {
            return Err(self.unexpected("the name of a kind"));
        }
        let kind_place = self.place(start);
        let kind = Located::text(&self.kind(&word, from.is_none()), &kind_place);
        let mut element = Element {
            id: None,
            id_place: kind_place.clone(),
            kind: Entry { key: "kind".to_owned(), key_place: kind_place, value: kind },
            parameters: Vec::new(),
            edge: Vec::new(),
            from,
        };
        loop {
            self.skip_blanks();
            if self.at_end_of_element(depth) {
                self.elements.push(element);
                return Ok(self.elements.len() - 1);
            }
            let parameter = self.parameter(depth)?;
            self.add(&mut element, parameter);
        }
    }

    fn at_end_of_element(&self, depth: usize) -> bool {
        match self.peek() {
            None | Some('!') => true,
            Some(',' | ']') => depth > 0,
            Some(_) => false,
        }
    }

    fn add(&mut self, element: &mut Element, entry: Entry) {
        if entry.key == "name" {
            element.id_place = entry.value.place.clone();
            element.id = Some(entry.value.as_text().unwrap_or_default().to_owned());
            let first = self.elements.iter().find(|earlier| earlier.id == element.id);
            if let (Some(first), Some(key)) = (first, element.id.clone()) {
                let first_line = first.id_place.line();
                self.errors.push(Cause::Duplicate { key, first_line }.at(&element.id_place));
            }
            return;
        }
        if is_common_key(&entry.key) {
            let message = format!("'{}' cannot be set in a launch line: '!' joins nodes", entry.key);
            self.errors.push(Cause::Syntax(message).at(&entry.key_place));
            return;
        }
        let is_edge = INPUT_KEYS[1..].contains(&entry.key.as_str());
        let entries = if is_edge { &mut element.edge } else { &mut element.parameters };
        if entries.iter().any(|earlier| earlier.key == entry.key) {
            self.errors.push(Cause::Duplicate { key: entry.key, first_line: 1 }.at(&entry.key_place));
        } else {
            entries.push(entry);
        }
    }

    /// `key=value`
    fn parameter(&mut self, depth: usize) -> Result<Entry, GraphError> {
        let start = self.at;
        let key = self.word();
        if key.is_empty() {
            return Err(self.unexpected("KEY=VALUE or '!'"));
        }
        let key_place = self.place(start);
        if self.peek() != Some('=') {
            let message = format!("expected '=' and a value behind '{key}', or '!' before it");
            return Err(Cause::Syntax(message).at(&key_place));
        }
        self.at += 1;
        let value = match self.peek() {
            Some('[' | '{') => self.bracketed()?,
            _ => self.plain(depth)?,
        };
        Ok(Entry { key, key_place, value })
    }

    /// A list or map, read as YAML.
    fn bracketed(&mut self) -> Result<Located, GraphError> {
        let start = self.at;
        let mut open: usize = 0;
        while let Some(letter) = self.peek() {
            match letter {
                '"' | '\'' => self.quoted(letter).map(drop)?,
                '[' | '{' => open += 1,
                ']' | '}' => open = open.saturating_sub(1),
                _ => {}
            }
            if !matches!(letter, '"' | '\'') {
                self.at += letter.len_utf8();
            }
            if open == 0 {
                return yaml::read_argument(self.source, start..self.at, self.environment, self.errors);
            }
        }
        Err(Cause::Syntax("this bracket is not closed".to_owned()).at(&self.place(start)))
    }

    /// A word that ends at a blank, inside of branches also at `,` or `]`. Parts of it may stand in quotes; then it is
    /// a text, whatever it looks like.
    fn plain(&mut self, depth: usize) -> Result<Located, GraphError> {
        let start = self.at;
        let mut text = String::new();
        let mut is_text = false;
        while let Some(letter) = self.peek() {
            match letter {
                '"' | '\'' => {
                    text.push_str(&self.quoted(letter)?);
                    is_text = true;
                }
                ',' | ']' if depth > 0 => break,
                letter if letter.is_whitespace() => break,
                letter => {
                    text.push(letter);
                    self.at += letter.len_utf8();
                }
            }
        }
        let place = self.place(start);
        if !is_text {
            return yaml::read_argument(self.source, start..self.at, self.environment, self.errors);
        }
        let text = expand(&text, self.environment).map_err(|cause| cause.at(&place))?;
        Ok(Located { place, tree: Tree::Scalar { value: Value::String(text.clone()), text } })
    }

    /// What stands between two quotes. Between double ones `\` takes the next character as it is.
    fn quoted(&mut self, quote: char) -> Result<String, GraphError> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        while let Some(letter) = self.peek() {
            self.at += letter.len_utf8();
            if letter == quote {
                return Ok(text);
            }
            let escaped = if letter == '\\' && quote == '"' { self.peek() } else { None };
            self.at += escaped.map_or(0, char::len_utf8);
            text.push(escaped.unwrap_or(letter));
        }
        Err(Cause::Syntax("this quote is not closed".to_owned()).at(&self.place(start)))
    }

    /// The full name of a kind: `zmq` begins a line as `zmq_source` and ends one as `zmq_sink`.
    fn kind(&self, word: &str, is_first: bool) -> String {
        let long = format!("{word}_{}", if is_first { "source" } else { "sink" });
        let takes_long = self.registry.get(word).is_none() && self.registry.get(&long).is_some();
        if takes_long { long } else { word.to_owned() }
    }

    fn word(&mut self) -> String {
        let rest = &self.source.inner()[self.at..];
        let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
        let word = &rest[..rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())];
        self.at += word.len();
        word.to_owned()
    }

    fn skip_blanks(&mut self) {
        let rest = &self.source.inner()[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&self) -> Option<char> {
        self.source.inner()[self.at..].chars().next()
    }

    fn eat(&mut self, letter: char) -> bool {
        let found = self.peek() == Some(letter);
        self.at += if found { letter.len_utf8() } else { 0 };
        found
    }

    fn place(&self, start: usize) -> Place {
        Place::new(self.source, start..self.at)
    }

    fn unexpected(&self, expected: &str) -> GraphError {
        let found = self.peek().map_or("the end of the line".to_owned(), |letter| format!("'{letter}'"));
        Cause::Syntax(format!("expected {expected}, found {found}")).at(&self.place(self.at))
    }
}
