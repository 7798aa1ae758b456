//! Reads YAML, and with it JSON, into values with places.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde_json::Value;

use crate::place::Source;
use crate::scalar::{Environment, expand, is_variable, typed};
use crate::tree::{Entry, Located, Tree};
use crate::{Cause, GraphError, Place};

/// Longest text that is read, in bytes.
const MAX_BYTES: usize = 256 << 10;
/// Most values that a text may hold; what an alias repeats counts each time.
const MAX_VALUES: usize = 20_000;
/// Most levels of lists and maps in each other.
const MAX_DEPTH: usize = 64;

/// Reads a text, or the stretch `bytes` of it, that holds one document.
///
/// Gives `None` for a text without content. Mistakes that leave the rest readable go to `errors`; the first one that
/// does not is the error.
pub(crate) fn read(
    source: &Source,
    bytes: Range<usize>,
    environment: Environment<'_>,
    errors: &mut Vec<GraphError>,
) -> Result<Option<Located>, GraphError> {
    let text = source.inner().get(bytes.clone()).unwrap_or_default();
    let start = Place::new(source, bytes.start..bytes.start);
    if text.len() > MAX_BYTES {
        return Err(Cause::Limit { what: "bytes", limit: MAX_BYTES }.at(&start));
    }
    if let Some((at, _)) = text.char_indices().find(|(_, letter)| unmask_letter(*letter) != *letter) {
        let place = Place::new(source, bytes.start + at..bytes.start + at);
        return Err(Cause::Syntax("this character has no meaning in a pipeline file".to_owned()).at(&place));
    }
    let masked = mask(text);
    let mut reader = Reader {
        parser: Parser::new_from_str(&masked),
        source,
        offsets: text.char_indices().map(|(at, _)| bytes.start + at).collect(),
        end: bytes.end,
        environment,
        anchors: BTreeMap::new(),
        values: 0,
        errors,
    };
    reader.document()
}

/// Reads one value of a command line: with brackets, braces or quotes as YAML, else the whole stretch as one word.
pub(crate) fn read_argument(
    source: &Source,
    bytes: Range<usize>,
    environment: Environment<'_>,
    errors: &mut Vec<GraphError>,
) -> Result<Located, GraphError> {
    let place = Place::new(source, bytes.clone());
    let text = source.inner().get(bytes.clone()).unwrap_or_default();
    if text.starts_with(['[', '{', '"', '\'']) {
        let nothing = Located { place, tree: Tree::Scalar { text: String::new(), value: Value::Null } };
        return Ok(read(source, bytes, environment, errors)?.unwrap_or(nothing));
    }
    let text = expand(text, environment).map_err(|cause| cause.at(&place))?;
    let value = typed(&text);
    Ok(Located { place, tree: Tree::Scalar { text, value } })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    source: &'a Source,
    /// Where each character begins, in bytes: the parser counts characters.
    offsets: Vec<usize>,
    end: usize,
    environment: Environment<'a>,
    anchors: BTreeMap<usize, Located>,
    values: usize,
    errors: &'a mut Vec<GraphError>,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Option<Located>, GraphError> {
        let mut document = None;
        loop {
            let (event, place) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(document),
                Event::DocumentStart(_) if document.is_some() => {
                    return Err(Cause::Syntax("a second document begins here: one was expected".to_owned())
                        .at(&place));
                }
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => {}
                event => document = Some(self.value(event, place, 0)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Place), GraphError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, self.place(span))),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Err(Cause::Syntax("the text ends too early".to_owned()).at(&self.at(usize::MAX))),
        }
    }

    fn syntax(&self, error: &saphyr_parser::ScanError) -> GraphError {
        let place = self.at(error.marker().index());
        let line = place.text().lines().nth(place.line() - 1).unwrap_or_default();
        let indent = &line[..line.len() - line.trim_start().len()];
        let hint =
            if indent.contains('\t') { "; indent with spaces, tabs are not allowed in YAML" } else { "" };
        Cause::Syntax(format!("{}{hint}", error.info())).at(&place)
    }

    fn value(&mut self, event: Event<'a>, place: Place, depth: usize) -> Result<Located, GraphError> {
        self.count(1, &place)?;
        if depth > MAX_DEPTH {
            return Err(Cause::Limit { what: "levels of lists and maps", limit: MAX_DEPTH }.at(&place));
        }
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = self.is_text(style, tag.as_deref(), &place);
                let scalar = self.scalar(&text, is_text, place);
                self.remember(anchor, scalar)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &place);
                let list = self.list(place, depth)?;
                self.remember(anchor, list)
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &place);
                let map = self.map(&place, depth)?;
                self.remember(anchor, map)
            }
            Event::Alias(anchor) => self.alias(anchor, place),
            _ => Err(Cause::Syntax("a value was expected here".to_owned()).at(&place)),
        }
    }

    fn list(&mut self, place: Place, depth: usize) -> Result<Located, GraphError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => {
                    return Ok(Located { place, tree: Tree::List(items) });
                }
                (event, place) => items.push(self.value(event, place, depth + 1)?),
            }
        }
    }

    fn map(&mut self, place: &Place, depth: usize) -> Result<Located, GraphError> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut places: HashMap<String, Place> = HashMap::new();
        loop {
            let (key, key_place) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Located::map(entries, place)),
                (Event::Scalar(key, ..), place) => (unmask(&key), place),
                (_, place) => return Err(Cause::Syntax("a key must be one word".to_owned()).at(&place)),
            };
            let (event, place) = self.next()?;
            let value = self.value(event, place, depth + 1)?;
            if let Some(first) = places.get(&key) {
                let first_line = first.line();
                self.errors.push(Cause::Duplicate { key, first_line }.at(&key_place));
            } else {
                places.insert(key.clone(), key_place.clone());
                entries.push(Entry { key, key_place, value });
            }
        }
    }

    fn scalar(&mut self, text: &str, is_text: bool, place: Place) -> Located {
        let text = unmask(text);
        let (text, value) = match expand(&text, self.environment) {
            Ok(text) if is_text => (text.clone(), Value::String(text)),
            Ok(text) => (text.clone(), typed(&text)),
            Err(cause) => {
                self.errors.push(cause.at(&place));
                (text.clone(), Value::String(text))
            }
        };
        Located { place, tree: Tree::Scalar { text, value } }
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<Located, GraphError> {
        let Some(value) = self.anchors.get(&anchor) else {
            return Err(Cause::Syntax("this alias stands inside of what it repeats".to_owned()).at(&place));
        };
        let tree = value.tree.clone();
        let values = value.count();
        self.count(values, &place)?;
        Ok(Located { place, tree })
    }

    fn remember(&mut self, anchor: usize, value: Located) -> Result<Located, GraphError> {
        // The parser numbers anchors from 1; 0 says that there is none.
        if anchor > 0 {
            self.count(value.count(), &value.place)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn count(&mut self, values: usize, place: &Place) -> Result<(), GraphError> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return Err(Cause::Limit { what: "values", limit: MAX_VALUES }.at(place));
        }
        Ok(())
    }

    /// Whether a scalar is a text whatever it looks like: by its quotes or by the tag `!!str`.
    fn is_text(&mut self, style: ScalarStyle, tag: Option<&Tag>, place: &Place) -> bool {
        let tagged = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
        if !tagged {
            self.refuse_tag(tag, place);
        }
        tagged || style != ScalarStyle::Plain
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, place: &Place) {
        if let Some(tag) = tag {
            let message = format!("tag '{tag}' has no meaning in a pipeline file");
            self.errors.push(Cause::Syntax(message).at(place));
        }
    }

    fn place(&self, span: Span) -> Place {
        let start = self.byte(span.start.index());
        Place::new(self.source, start..self.byte(span.end.index()).max(start))
    }

    fn at(&self, index: usize) -> Place {
        let start = self.byte(index);
        Place::new(self.source, start..start)
    }

    fn byte(&self, index: usize) -> usize {
        self.offsets.get(index).copied().unwrap_or(self.end)
    }
}

/// First of the 128 characters, reserved for private use by Unicode, that stand in for ASCII.
const MASK: u32 = 0x0010_FF00;

/// Hides what YAML would take for its own in `${NAME}` and `${NAME:-default}`: in `{ size: ${SIZE:-32} }` the inner
/// braces are no map. Characters are replaced one by one, so that places stay right.
fn mask(text: &str) -> Cow<'_, str> {
    if !text.contains("${") {
        return Cow::Borrowed(text);
    }
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        masked.push_str(before);
        let length = reference_bytes(reference);
        let (reference, after) = reference.split_at(length.unwrap_or("${".len()));
        if length.is_some() {
            masked.extend(reference.chars().map(mask_letter));
        } else {
            masked.push_str(reference);
        }
        rest = after;
    }
    masked.push_str(rest);
    Cow::Owned(masked)
}

/// Length in bytes of the reference with which a text begins, if it is one that quotes and escapes leave alone.
fn reference_bytes(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let reference = &text["${".len()..end];
    let (name, default) = reference.split_once(":-").unwrap_or((reference, ""));
    let is_whole = is_variable(name) && !default.contains(['"', '\'', '\\', '\n', '\r']);
    is_whole.then_some(end + 1)
}

fn mask_letter(letter: char) -> char {
    if !letter.is_ascii() || letter.is_ascii_alphanumeric() {
        return letter;
    }
    char::from_u32(MASK + letter as u32).unwrap_or(letter)
}

fn unmask_letter(letter: char) -> char {
    (letter as u32).checked_sub(MASK).and_then(char::from_u32).filter(char::is_ascii).unwrap_or(letter)
}

fn unmask(text: &str) -> String {
    text.chars().map(unmask_letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::source;
    use proptest::prelude::*;
    use serde_json::json;

    fn read_text(text: &str) -> Result<Value, Vec<String>> {
        let source = source("f", text);
        let environment = |name: &str| (name == "SIZE").then(|| "64".to_owned());
        let mut errors = Vec::new();
        let value = match read(&source, 0..text.len(), &environment, &mut errors) {
            Ok(value) => value.map_or(Value::Null, |value| value.to_json()),
            Err(error) => return Err(vec![error.to_string()]),
        };
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        if errors.is_empty() { Ok(value) } else { Err(errors) }
    }

    #[test]
    fn yaml_and_json_are_read_alike() {
        let value = json!({"a": 1, "b": {"c": [true, null, "x", "5"]}});
        assert_eq!(read_text("a: 1\nb:\n  c: [true, ~, x, '5']\n"), Ok(value.clone()));
        assert_eq!(read_text(&value.to_string()), Ok(value.clone()));
        assert_eq!(read_text(&serde_json::to_string_pretty(&value).unwrap()), Ok(value.clone()));
        assert_eq!(read_text("{\n\t\"a\": 1,\n\t\"b\": {\"c\": [true, null, \"x\", \"5\"]}\n}"), Ok(value));
    }

    #[test]
    fn variables_stand_in_braces_and_quotes() {
        let value = json!({"a": 64, "b": 32, "c": "64", "d": "x64:y", "e": "${SIZE}", "f": "p, [q]"});
        let text =
            "{a: ${SIZE}, b: ${NONE:-32}, c: '${SIZE}', d: 'x${SIZE}:y', e: $${SIZE}, f: ${NONE:-p, [q]}}";
        assert_eq!(read_text(text), Ok(value));
    }

    #[test]
    fn mistakes_are_placed() {
        let error = |text: &str| read_text(text).unwrap_err().join("\n");
        assert_eq!(error("a: 1\nb: 2\na: 3\n"), "f:3:1: 'a' stands here twice, first in line 1");
        assert!(error("a: ${NONE}").starts_with("f:1:4: environment variable 'NONE' is not set"));
        assert!(error("a:\n\tb: 1\n").contains("indent with spaces"), "{}", error("a:\n\tb: 1\n"));
        assert!(error("a: 1\n---\nb: 2\n").starts_with("f:2:1: a second document"));
        assert!(error("a: !secret 1").starts_with("f:1:"), "{}", error("a: !secret 1"));
        assert!(error("? [a, b]\n: 1\n").contains("a key must be one word"));
        assert!(error("µ: ${A}\nb: \u{10FF41}").starts_with("f:2:4: this character"));
    }

    #[test]
    fn aliases_repeat_but_do_not_explode() {
        assert_eq!(read_text("a: &x [1, 2]\nb: *x\n"), Ok(json!({"a": [1, 2], "b": [1, 2]})));
        assert!(read_text("a: &x [*x]").is_err());
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let ten = vec![format!("*a{}", level - 1); 10].join(", ");
            laughs = format!("{laughs}a{level}: &a{level} [{ten}]\n");
        }
        assert!(read_text(&laughs).unwrap_err()[0].contains("at most 20000 values"));
    }

    #[test]
    fn depth_is_bounded() {
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let text = format!("{}{}", open.repeat(5000), close.repeat(5000));
            assert!(read_text(&text).is_err());
        }
        assert!(read_text(&"- ".repeat(5000)).is_err());
        assert!(read_text(&" ".repeat(MAX_BYTES + 1)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            drop(read_text(&text));
        }

        #[test]
        fn anything_like_yaml_is_read_or_refused(text in "[-a:{}\\[\\],\"'$&*!|>#%?~ \\\\\t\r\n0µ\u{feff}]{0,60}") {
            drop(read_text(&text));
        }
    }
}
