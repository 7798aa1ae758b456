//! What a node is fed with, and how the edge behaves.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use serde_json::Value;

use crate::scalar::bytes;
use crate::tree::{Entry, Located, Tree};
use crate::{Cause, GraphError, nearest};

/// The port by which every kind takes its blocks.
pub const INPUT_PORT: &str = "in";
/// The port by which every kind hands its blocks on.
pub const OUTPUT_PORT: &str = "out";

/// Keys of an input that is written as a map. All but the first may also stand behind a kind in a launch line.
pub(crate) const INPUT_KEYS: [&str; 6] =
    ["from", "capacity_blocks", "capacity_bytes", "when_full", "spill_dir", "spill_bytes"];

/// What happens to a block when its edge is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The sender waits.
    #[default]
    Block,
    /// The oldest block is dropped and counted; the sender never waits.
    Latest,
    /// The block goes to disk and comes back in order.
    Spill,
}

impl WhenFull {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Block, Self::Latest, Self::Spill];

    /// The spelling in pipeline files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Latest => "latest",
            Self::Spill => "spill",
        }
    }
}

/// One input of a node: where its blocks come from, and what the edge holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSpec {
    /// The port that is fed.
    pub port: String,
    /// The node that feeds it.
    pub from_node: String,
    /// The port of that node.
    pub from_port: String,
    /// Most blocks on the edge, if the file says.
    pub capacity_blocks: Option<NonZeroUsize>,
    /// Most bytes on the edge, if the file says.
    pub capacity_bytes: Option<NonZeroUsize>,
    /// What happens when either is reached.
    pub when_full: WhenFull,
    /// The folder for blocks that go to disk; without one it is a temporary folder.
    pub spill_dir: Option<PathBuf>,
    /// Most bytes on disk, if the file says.
    pub spill_bytes: Option<NonZeroU64>,
}

/// Reads one input: `NODE`, `NODE.PORT` or a map with `from`.
pub(crate) fn read(port: &str, value: &Located, errors: &mut Vec<GraphError>) -> Option<InputSpec> {
    if let Tree::Map(entries) = &value.tree {
        return read_map(port, value, entries, errors);
    }
    let (from_node, from_port) = read_from("an input", value, errors)?;
    Some(InputSpec {
        port: port.to_owned(),
        from_node,
        from_port,
        capacity_blocks: None,
        capacity_bytes: None,
        when_full: WhenFull::default(),
        spill_dir: None,
        spill_bytes: None,
    })
}

fn read_map(
    port: &str,
    value: &Located,
    entries: &[Entry],
    errors: &mut Vec<GraphError>,
) -> Option<InputSpec> {
    for entry in entries.iter().filter(|entry| !INPUT_KEYS.contains(&entry.key.as_str())) {
        let cause = Cause::UnknownKey { key: entry.key.clone(), inside: "an input" };
        errors.push(cause.at(&entry.key_place).or(nearest(&entry.key, INPUT_KEYS)));
    }
    let capacity_blocks = value.child("capacity_blocks").and_then(|blocks| read_blocks(blocks, errors));
    let capacity_bytes =
        value.child("capacity_bytes").and_then(|size| read_bytes("capacity_bytes", size, errors));
    let when_full = value.child("when_full").and_then(|policy| read_policy(policy, errors));
    let spill_dir = value.child("spill_dir").and_then(|folder| read_folder(folder, errors));
    let spill_bytes = value.child("spill_bytes").and_then(|size| read_bytes("spill_bytes", size, errors));
    let spill_bytes = spill_bytes.and_then(|size| NonZeroU64::new(size.get() as u64));
    let when_full_is_readable = when_full.is_some() || value.child("when_full").is_none();
    let when_full = when_full.unwrap_or_default();
    for key in ["spill_dir", "spill_bytes"] {
        if let Some(entry) =
            value.entry(key).filter(|_| when_full_is_readable && when_full != WhenFull::Spill)
        {
            errors.push(Cause::Spill { key, when_full: when_full.name() }.at(&entry.key_place));
        }
    }
    let Some(from) = value.child("from") else {
        errors.push(Cause::Missing { key: "from", inside: "an input".to_owned() }.at(&value.place));
        return None;
    };
    let (from_node, from_port) = read_from("'from'", from, errors)?;
    let port = port.to_owned();
    Some(InputSpec {
        port,
        from_node,
        from_port,
        capacity_blocks,
        capacity_bytes,
        when_full,
        spill_dir,
        spill_bytes,
    })
}

fn read_from(what: &str, value: &Located, errors: &mut Vec<GraphError>) -> Option<(String, String)> {
    let Some(text) = value.as_text() else {
        errors.push(expected(what, "the id of a node", value));
        return None;
    };
    let (node, port) = text.split_once('.').unwrap_or((text, OUTPUT_PORT));
    if port != OUTPUT_PORT {
        let cause = Cause::UnknownPort { port: port.to_owned(), expected: OUTPUT_PORT };
        errors.push(cause.at(&value.place));
    }
    Some((node.to_owned(), OUTPUT_PORT.to_owned()))
}

fn read_blocks(value: &Located, errors: &mut Vec<GraphError>) -> Option<NonZeroUsize> {
    let blocks = value.as_scalar().and_then(Value::as_u64).and_then(|blocks| usize::try_from(blocks).ok());
    let blocks = blocks.and_then(NonZeroUsize::new);
    if blocks.is_none() {
        errors.push(expected("'capacity_blocks'", "a whole number from 1 on", value));
    }
    blocks
}

fn read_bytes(key: &str, value: &Located, errors: &mut Vec<GraphError>) -> Option<NonZeroUsize> {
    let size = value.as_scalar().and_then(bytes).and_then(NonZeroUsize::new);
    if size.is_none() {
        errors.push(expected(
            &format!("'{key}'"),
            "a size from 1 byte on, such as 1048576 or \"256 MiB\"",
            value,
        ));
    }
    size
}

fn read_policy(value: &Located, errors: &mut Vec<GraphError>) -> Option<WhenFull> {
    let word = value.as_text().unwrap_or_default();
    let policy = WhenFull::ALL.into_iter().find(|policy| policy.name() == word);
    if policy.is_none() {
        let error = expected("'when_full'", "block, latest or spill", value);
        errors.push(error.or(nearest(word, WhenFull::ALL.map(WhenFull::name))));
    }
    policy
}

fn read_folder(value: &Located, errors: &mut Vec<GraphError>) -> Option<PathBuf> {
    let folder = value.as_text().map(PathBuf::from);
    if folder.is_none() {
        errors.push(expected("'spill_dir'", "a folder", value));
    }
    folder
}

/// Another sort of value was expected.
pub(crate) fn expected(what: &str, expected: &'static str, value: &Located) -> GraphError {
    Cause::Expected { what: what.to_owned(), expected, found: value.found() }.at(&value.place)
}
