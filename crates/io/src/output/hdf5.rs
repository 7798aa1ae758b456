//! HDF5 volumes: one contiguous dataset, and around it the few groups that NeXus readers look for.
//!
//! Written in the oldest form of the format, which every reader knows: superblock 0, object headers 1, and the
//! compact groups of HDF5 1.8. The structures have a fixed length whatever the number of slices, so that they
//! can be written last, in front of the data; how the data were made is told behind them.
//!
//! # Source
//! The HDF Group, "HDF5 File Format Specification Version 3.0"; NeXus application definition NXtomoproc.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use beamstream_core::{ElementType, Format};
use serde_json::Value;

use super::OutputSpec;
use super::stacked::Container;

/// The data begin at a multiple of this.
const ALIGNMENT: u64 = 4096;
const SUPERBLOCK_BYTES: u64 = 96;
const UNDEFINED: [u8; 8] = [0xff; 8];

/// The structures around the data.
pub(super) struct Hdf5 {
    root: Item,
    format: Format,
    data_offset: u64,
}

pub(super) enum Item {
    Group(Vec<(&'static str, Attribute)>, Vec<(&'static str, Item)>),
    /// A soft link to a path of the file.
    Link(&'static str),
    /// One byte a frame.
    Bytes(Vec<u8>),
    /// Numbers with their unit; one alone is a scalar.
    Numbers(Vec<f64>, &'static str),
    Text(&'static str),
    /// The account of how the data were made.
    Provenance,
    /// The blocks.
    Data,
}

pub(super) enum Attribute {
    Text(&'static str),
    Texts([&'static str; 3]),
}

impl Hdf5 {
    pub(super) fn new(spec: &OutputSpec) -> Self {
        let class = |name| ("NX_class", Attribute::Text(name));
        let axes = ("axes", Attribute::Texts(spec.axes()));
        let data = Item::Group(
            vec![class("NXdata"), ("signal", Attribute::Text("data")), axes],
            vec![("data", Item::Data)],
        );
        let process = Item::Group(
            vec![class("NXprocess")],
            vec![
                ("parameters", Item::Provenance),
                ("program", Item::Text(super::PROGRAM)),
                ("version", Item::Text(super::VERSION)),
            ],
        );
        let mut children = vec![("data", data), ("reconstruction", process)];
        if spec.is_volume() {
            children.push(("definition", Item::Text("NXtomoproc")));
        }
        let entry = Item::Group(vec![class("NXentry"), ("default", Attribute::Text("data"))], children);
        let root = Item::Group(
            vec![
                class("NXroot"),
                ("default", Attribute::Text("entry")),
                ("creator", Attribute::Text(super::PROGRAM)),
            ],
            vec![("entry", entry)],
        );
        Self::of(root, spec.format)
    }

    /// A file with that root, for blocks of that format.
    pub(super) fn of(root: Item, format: Format) -> Self {
        let mut hdf5 = Self { root, format, data_offset: 0 };
        hdf5.data_offset = (hdf5.structures(0, 0).len() as u64).next_multiple_of(ALIGNMENT);
        hdf5
    }

    /// Where the data of `count` blocks end.
    fn data_end(&self, count: u64) -> u64 {
        self.data_offset + count * self.format.bytes() as u64
    }

    /// Everything in front of the data, for a file of `count` blocks and a provenance of that many bytes.
    fn structures(&self, count: u64, provenance: u64) -> Vec<u8> {
        let mut bytes = vec![0; SUPERBLOCK_BYTES as usize];
        let root = self.add(&self.root, (count, provenance), &mut bytes);
        let end = self.data_end(count) + provenance;
        let mut superblock = b"\x89HDF\r\n\x1a\n".to_vec();
        // Versions, sizes of addresses and lengths, ranks of B-trees (unused), flags.
        superblock.extend([0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0]);
        superblock.extend(0_u64.to_le_bytes());
        superblock.extend(UNDEFINED);
        superblock.extend(end.to_le_bytes());
        superblock.extend(UNDEFINED);
        superblock.extend(0_u64.to_le_bytes());
        superblock.extend(root.to_le_bytes());
        superblock.resize(SUPERBLOCK_BYTES as usize, 0);
        bytes[..superblock.len()].copy_from_slice(&superblock);
        bytes
    }

    /// Appends an object and all below it; gives its address.
    fn add(&self, item: &Item, extents: (u64, u64), bytes: &mut Vec<u8>) -> u64 {
        let (count, provenance) = extents;
        let messages = match item {
            Item::Group(attributes, children) => {
                let place = |(name, child): &(&str, Item)| match child {
                    Item::Link(path) => soft_link(name, path),
                    child => link(name, self.add(child, extents, bytes)),
                };
                let links: Vec<Message> = children.iter().map(place).collect();
                let mut messages = vec![link_info(), (0x0a, vec![0, 0])];
                messages.extend(links);
                messages
                    .extend(attributes.iter().map(|(name, attribute)| attribute_message(name, attribute)));
                messages
            }
            // It has no object of its own: the group above holds it.
            Item::Link(_) => Vec::new(),
            Item::Bytes(values) => {
                let address = append(values, bytes);
                let size = values.len() as u64;
                dataset(&[size], number_type(ElementType::U8), address, size)
            }
            Item::Numbers(values, unit) => {
                let address =
                    append(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>(), bytes);
                let count = values.len() as u64;
                let dims: &[u64] = if count == 1 { &[] } else { &[count] };
                let mut messages = dataset(dims, double_type(), address, 8 * count);
                messages.push(attribute_message("units", &Attribute::Text(unit)));
                messages
            }
            Item::Text(text) => {
                let address = bytes.len() as u64;
                let length = text.len().max(1);
                bytes.extend(text.bytes());
                bytes.resize((address as usize + length).next_multiple_of(8), 0);
                dataset(&[], text_type(length), address, length as u64)
            }
            Item::Provenance => {
                dataset(&[], text_type(provenance as usize), self.data_end(count), provenance)
            }
            Item::Data => {
                let dims = [count, self.format.shape.rows as u64, self.format.shape.columns as u64];
                let size = count * self.format.bytes() as u64;
                dataset(&dims, number_type(self.format.element), self.data_offset, size)
            }
        };
        let address = bytes.len() as u64;
        let body: Vec<u8> = messages.iter().flat_map(|(kind, body)| message(*kind, body)).collect();
        bytes.extend([1, 0]);
        bytes.extend((messages.len() as u16).to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        address
    }
}

impl Container for Hdf5 {
    fn data_offset(&self) -> u64 {
        self.data_offset
    }

    fn seal(&self, file: &File, count: u64, provenance: &Value) -> io::Result<()> {
        let provenance = provenance.to_string();
        file.write_all_at(provenance.as_bytes(), self.data_end(count))?;
        file.write_all_at(&self.structures(count, provenance.len() as u64), 0)
    }
}

/// Type and body of a header message.
type Message = (u16, Vec<u8>);

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend((body.len().next_multiple_of(8) as u16).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn link_info() -> Message {
    (0x02, [&[0, 0][..], &UNDEFINED, &UNDEFINED].concat())
}

/// A hard link to the object at `address`.
fn link(name: &str, address: u64) -> Message {
    (0x06, [&[1, 0, name.len() as u8][..], name.as_bytes(), &address.to_le_bytes()].concat())
}

/// A link to whatever is at a path of the file.
fn soft_link(name: &str, path: &str) -> Message {
    const HAS_TYPE: u8 = 8;
    const SOFT: u8 = 1;
    let head = [1, HAS_TYPE, SOFT, name.len() as u8];
    (0x06, [&head[..], name.as_bytes(), &(path.len() as u16).to_le_bytes(), path.as_bytes()].concat())
}

/// Appends values in front of the objects that point to them; gives their address.
fn append(values: &[u8], bytes: &mut Vec<u8>) -> u64 {
    let address = bytes.len() as u64;
    bytes.extend(values);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    address
}

fn attribute_message(name: &str, attribute: &Attribute) -> Message {
    let texts = match attribute {
        Attribute::Text(text) => std::slice::from_ref(text),
        Attribute::Texts(texts) => texts.as_slice(),
    };
    let length = texts.iter().map(|text| text.len()).max().unwrap_or(0).max(1);
    let dims: &[u64] = if matches!(attribute, Attribute::Text(_)) { &[] } else { &[texts.len() as u64] };
    let (datatype, dataspace) = (text_type(length), dataspace(dims));
    let mut body = vec![1, 0];
    for size in [name.len() + 1, datatype.len(), dataspace.len()] {
        body.extend((size as u16).to_le_bytes());
    }
    for part in [[name.as_bytes(), &[0]].concat(), datatype, dataspace] {
        body.extend(part);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    for text in texts {
        body.extend(text.bytes());
        body.extend(std::iter::repeat_n(0, length - text.len()));
    }
    (0x0c, body)
}

/// The messages of a contiguous dataset.
fn dataset(dims: &[u64], datatype: Vec<u8>, address: u64, size: u64) -> Vec<Message> {
    /// Version 2, allocated early, fill value written if set, and none is.
    const NO_FILL_VALUE: [u8; 4] = [2, 1, 2, 0];
    let layout = [&[3, 1][..], &address.to_le_bytes(), &size.to_le_bytes()].concat();
    vec![(0x01, dataspace(dims)), (0x03, datatype), (0x05, NO_FILL_VALUE.to_vec()), (0x08, layout)]
}

fn dataspace(dims: &[u64]) -> Vec<u8> {
    let mut body = vec![1, dims.len() as u8, 0, 0, 0, 0, 0, 0];
    body.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
    body
}

/// Text in UTF-8 of a fixed length, padded with zeros.
fn text_type(length: usize) -> Vec<u8> {
    let mut body = vec![0x13, 0x11, 0, 0];
    body.extend((length as u32).to_le_bytes());
    body
}

/// A little-endian IEEE 754 number of 64 bits.
fn double_type() -> Vec<u8> {
    vec![0x11, 0x20, 63, 0, 8, 0, 0, 0, 0, 0, 64, 0, 52, 11, 0, 52, 0xff, 3, 0, 0]
}

/// A little-endian number.
fn number_type(element: ElementType) -> Vec<u8> {
    let bits = 8 * element.size() as u16;
    let size = (element.size() as u32).to_le_bytes();
    let is_signed = matches!(element, ElementType::I16 | ElementType::I32);
    let head = match element {
        // An implied leading bit in the mantissa, and the place of the sign.
        ElementType::F16 | ElementType::F32 => [0x11, 0x20, bits as u8 - 1, 0],
        _ => [0x10, if is_signed { 8 } else { 0 }, 0, 0],
    };
    let mut body = [&head[..], &size, &0_u16.to_le_bytes(), &bits.to_le_bytes()].concat();
    match element {
        // Place and size of exponent and mantissa, and the bias of the exponent.
        ElementType::F16 => body.extend([10, 5, 0, 10, 15, 0, 0, 0]),
        ElementType::F32 => body.extend([23, 8, 0, 23, 127, 0, 0, 0]),
        _ => {}
    }
    body
}
