//! Groups and their links: hard, soft and external; the way from a path to an object.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::{Cursor, text};
use super::heap::{FractalHeap, local_heap};
use super::object::{Object, message};
use super::{Dataset, Error, File, Result, btree};

/// Most links that are followed from a path to its object.
const MAX_LINKS_FOLLOWED: usize = 32;
/// Most objects that a walk looks at.
const MAX_OBJECTS: usize = 20_000;
/// Deepest group that a walk looks at.
const MAX_DEPTH: usize = 12;

/// Where a name in a group leads.
#[derive(Debug, Clone)]
pub(super) enum Link {
    /// To the object at an address.
    Hard(u64),
    /// To a path of the same file.
    Soft(String),
    /// To a path of another file.
    External(PathBuf, String),
}

/// The links of a group in the order of the file, with their names.
pub(super) fn links(file: &File, group: &Object) -> Result<Vec<(String, Link)>> {
    let mut found = Vec::new();
    if let Some(table) = group.message(message::SYMBOL_TABLE) {
        symbol_table(file, &table.body, &mut found)?;
    }
    for link in group.messages.iter().filter(|m| m.kind == message::LINK) {
        found.push(parse_link(file, &link.body)?);
    }
    if let Some(info) = group.message(message::LINK_INFO) {
        dense_links(file, &info.body, &mut found)?;
    }
    Ok(found)
}

/// "Disk Format: Level 1B - Symbol Table Nodes": the groups of old files.
fn symbol_table(file: &File, body: &[u8], found: &mut Vec<(String, Link)>) -> Result<()> {
    let mut cursor = Cursor::new(body, "a symbol table");
    let (tree, heap) = (cursor.uint(file.offset_size)?, cursor.uint(file.offset_size)?);
    let names = local_heap(file, heap)?;
    let name_at = |offset: u64| {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        names.get(start..).map(text).ok_or(Error::Malformed("a symbol table"))
    };
    btree::visit_v1(file, tree, 0, file.length_size, &mut |_, node| {
        let head = file.read(node, 8, "a symbol table")?;
        let mut cursor = Cursor::new(&head, "a symbol table");
        cursor.signature(b"SNOD")?;
        cursor.skip(2)?;
        let count = usize::from(cursor.u16()?);
        let entries = file.read(node + 8, count * (2 * file.offset_size + 24), "a symbol table")?;
        let mut cursor = Cursor::new(&entries, "a symbol table");
        for _ in 0..count {
            let name = name_at(cursor.uint(file.offset_size)?)?;
            let address = cursor.uint(file.offset_size)?;
            let cache_type = cursor.u32()?;
            cursor.skip(4)?;
            let scratch = u64::from(cursor.u32()?);
            cursor.skip(12)?;
            let link = if cache_type == 2 { Link::Soft(name_at(scratch)?) } else { Link::Hard(address) };
            found.push((name, link));
        }
        Ok(())
    })
}

/// The links of large groups are in a fractal heap, indexed by a B-tree.
fn dense_links(file: &File, body: &[u8], found: &mut Vec<(String, Link)>) -> Result<()> {
    /// A record holds the hash of the name in front of the heap id.
    const HASH_BYTES: usize = 4;
    let mut cursor = Cursor::new(body, "link information");
    cursor.skip(1)?;
    let flags = cursor.u8()?;
    cursor.skip(if flags & 1 != 0 { 8 } else { 0 })?;
    let (heap, index) = (cursor.uint(file.offset_size)?, cursor.uint(file.offset_size)?);
    if file.is_undefined(heap) {
        return Ok(());
    }
    let heap = FractalHeap::open(file, heap)?;
    btree::TreeV2::open(file, index)?.visit(file, &mut |record| {
        let id = record.get(HASH_BYTES..).ok_or(Error::Malformed("link information"))?;
        found.push(parse_link(file, &heap.object(file, id)?)?);
        Ok(())
    })
}

/// Message 0x06, a link.
fn parse_link(file: &File, body: &[u8]) -> Result<(String, Link)> {
    let mut cursor = Cursor::new(body, "a link");
    cursor.skip(1)?;
    let flags = cursor.u8()?;
    let kind = if flags & 0x08 != 0 { cursor.u8()? } else { 0 };
    cursor.skip(if flags & 0x04 != 0 { 8 } else { 0 })?;
    cursor.skip(usize::from(flags & 0x10 != 0))?;
    let name_size = usize::try_from(cursor.uint(1 << (flags & 3))?).unwrap_or(usize::MAX);
    let name = String::from_utf8_lossy(cursor.take(name_size)?).into_owned();
    let link = match kind {
        0 => Link::Hard(cursor.uint(file.offset_size)?),
        1 => {
            let size = usize::from(cursor.u16()?);
            Link::Soft(text(cursor.take(size)?))
        }
        64 => {
            cursor.skip(3)?;
            let target = PathBuf::from(text(cursor.until_zero()?));
            Link::External(target, text(cursor.until_zero()?))
        }
        _ => return Err(Error::Unsupported(format!("the link {name} of a foreign kind"))),
    };
    Ok((name, link))
}

/// Follows a path, through soft and external links, to the file and the object where it ends.
pub(crate) fn resolve(file: &Arc<File>, path: &str) -> Result<(Arc<File>, Object)> {
    let mut file = file.clone();
    let mut object = Object::read(&file, file.root)?;
    // Names still to be followed, the next one last, and the path of the group that is reached.
    let mut names = parts(path);
    let mut here = String::new();
    let mut followed = 0;
    while let Some(name) = names.pop() {
        let link = links(&file, &object)?.into_iter().find(|(known, _)| *known == name);
        let (_, link) = link.ok_or_else(|| Error::NotFound(format!("{here}/{name}")))?;
        followed += usize::from(!matches!(link, Link::Hard(_)));
        if followed > MAX_LINKS_FOLLOWED {
            return Err(Error::LinkCircle(path.to_owned()));
        }
        match link {
            Link::Hard(address) => {
                object = Object::read(&file, address)?;
                here = format!("{here}/{name}");
            }
            Link::Soft(target) => {
                let absolute = if target.starts_with('/') { target } else { format!("{here}/{target}") };
                names.extend(parts(&absolute));
                object = Object::read(&file, file.root)?;
                here.clear();
            }
            Link::External(target, inside) => {
                file = open_linked(&file, &format!("{here}/{name}"), &target)?;
                names.extend(parts(&inside));
                object = Object::read(&file, file.root)?;
                here.clear();
            }
        }
    }
    Ok((file, object))
}

fn open_linked(file: &File, link: &str, target: &Path) -> Result<Arc<File>> {
    file.linked_file(target)
        .ok_or_else(|| Error::BrokenLink { link: link.to_owned(), target: target.to_owned() })
}

/// The names of a path, last one first.
fn parts(path: &str) -> Vec<String> {
    path.split('/').rev().filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect()
}

/// An object that a walk has found.
pub(crate) struct Node {
    /// Its path from the root of the file where the walk began.
    pub(crate) path: String,
    /// What is there.
    pub(crate) kind: NodeKind,
}

/// What a walk finds at a path.
pub(crate) enum NodeKind {
    Group,
    Dataset(Box<Dataset>),
    /// A link that leads nowhere, or an object that cannot be read.
    Broken,
}

impl Node {
    /// The last name of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The path of the group that holds the object.
    pub(crate) fn parent(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    pub(crate) fn dataset(&self) -> Option<&Dataset> {
        match &self.kind {
            NodeKind::Dataset(dataset) => Some(dataset),
            NodeKind::Group | NodeKind::Broken => None,
        }
    }
}

/// All objects of a file, also those behind external links; each group once.
///
/// Fails only if the root group cannot be read: what is damaged further down is listed as broken.
pub(crate) fn walk(file: &Arc<File>) -> Result<Vec<Node>> {
    let root = Object::read(file, file.root)?;
    let mut seen = HashSet::from([(file.path().to_owned(), root.address)]);
    let mut found = Vec::new();
    let top = Reached { file: file.clone(), object: root, inside: String::new() };
    let mut open = vec![(top, String::new(), 0)];
    while let Some((group, path, depth)) = open.pop() {
        let links = match links(&group.file, &group.object) {
            Ok(links) => links,
            Err(error) if path.is_empty() => return Err(error),
            Err(_) => {
                found.push(Node { path, kind: NodeKind::Broken });
                continue;
            }
        };
        let mut inner = Vec::new();
        for (name, link) in links {
            if found.len() + open.len() >= MAX_OBJECTS {
                return Ok(found);
            }
            let child_path = format!("{path}/{name}");
            let is_soft = matches!(link, Link::Soft(_));
            let kind = match group.follow(&name, link) {
                Err(_) => NodeKind::Broken,
                Ok(child) if Dataset::is_dataset(&child.object) => {
                    match Dataset::open(&child.file, &child.object) {
                        Ok(dataset) => NodeKind::Dataset(Box::new(dataset)),
                        Err(_) => NodeKind::Broken,
                    }
                }
                Ok(child) => {
                    // Behind a soft link is what has a path of its own.
                    let place = (child.file.path().to_owned(), child.object.address);
                    if !is_soft && depth < MAX_DEPTH && seen.insert(place) {
                        inner.push((child, child_path.clone(), depth + 1));
                    }
                    NodeKind::Group
                }
            };
            found.push(Node { path: child_path, kind });
        }
        open.extend(inner.into_iter().rev());
    }
    Ok(found)
}

/// An object that a walk has reached.
struct Reached {
    file: Arc<File>,
    object: Object,
    /// Its path in its own file, from which relative links count.
    inside: String,
}

impl Reached {
    /// The object behind a link of this group.
    fn follow(&self, name: &str, link: Link) -> Result<Self> {
        let path = format!("{}/{name}", self.inside);
        let resolved = |(file, object), inside| Self { file, object, inside };
        Ok(match link {
            Link::Hard(address) if address == self.object.address => return Err(Error::LinkCircle(path)),
            Link::Hard(address) => resolved((self.file.clone(), Object::read(&self.file, address)?), path),
            Link::Soft(target) => {
                let target =
                    if target.starts_with('/') { target } else { format!("{}/{target}", self.inside) };
                resolved(resolve(&self.file, &target)?, target)
            }
            Link::External(target, inside) => {
                resolved(resolve(&open_linked(&self.file, &path, &target)?, &inside)?, inside)
            }
        })
    }
}
