//! Dataspaces, datatypes and attributes ("Disk Format: Level 2A", messages 0x01, 0x03 and 0x0C).

use super::bytes::{Cursor, text};
use super::heap::{FractalHeap, global_heap_object};
use super::object::{Object, message, shared_message};
use super::{Error, File, Result, btree};

/// Most dimensions by the specification.
pub(super) const MAX_RANK: usize = 32;

/// Extent of a dataset, slowest dimension first; `None` for no extent at all.
pub(super) struct Dataspace {
    pub(super) dims: Vec<u64>,
    /// Largest extents; `None` is unlimited.
    pub(super) max_dims: Vec<Option<u64>>,
    pub(super) is_null: bool,
}

impl Dataspace {
    pub(super) fn parse(file: &File, body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(body, "a dataspace");
        let version = cursor.u8()?;
        let rank = usize::from(cursor.u8()?);
        let flags = cursor.u8()?;
        let is_null = match version {
            1 => cursor.skip(5).map(|()| false)?,
            2 => cursor.u8()? == 2,
            _ => return Err(Error::Malformed("a dataspace")),
        };
        if rank > MAX_RANK {
            return Err(Error::Malformed("a dataspace"));
        }
        let dims = (0..rank).map(|_| cursor.uint(file.length_size)).collect::<Result<Vec<_>>>()?;
        let unlimited = u64::MAX >> (64 - 8 * file.length_size);
        let max_dims = if flags & 1 != 0 {
            let read = (0..rank).map(|_| cursor.uint(file.length_size)).collect::<Result<Vec<_>>>()?;
            read.into_iter().map(|max| (max != unlimited).then_some(max)).collect()
        } else {
            dims.iter().copied().map(Some).collect()
        };
        Ok(Self { dims, max_dims, is_null })
    }

    /// Number of elements, if it fits.
    pub(super) fn checked_len(&self) -> Option<u64> {
        if self.is_null {
            return Some(0);
        }
        self.dims.iter().try_fold(1_u64, |product, &dim| product.checked_mul(dim))
    }
}

/// A number as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) size: usize,
    pub(crate) class: NumberClass,
    pub(crate) big_endian: bool,
}

/// Kinds of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberClass {
    Unsigned,
    Signed,
    Float,
}

impl Number {
    /// The name in the manner of the element types, for example `u16`.
    pub(crate) fn name(self) -> String {
        let letter = match self.class {
            NumberClass::Unsigned => 'u',
            NumberClass::Signed => 'i',
            NumberClass::Float => 'f',
        };
        format!("{letter}{}", 8 * self.size)
    }

    /// The value of one stored number; integers beyond 2^53 are rounded.
    pub(crate) fn value(self, bytes: &[u8]) -> f64 {
        let mut little = [0_u8; 8];
        for (to, at) in little.iter_mut().zip(0..self.size) {
            *to = bytes[if self.big_endian { self.size - 1 - at } else { at }];
        }
        let raw = u64::from_le_bytes(little);
        match (self.class, self.size) {
            (NumberClass::Unsigned, _) => raw as f64,
            (NumberClass::Signed, size) => {
                let unused = 64 - 8 * size as u32;
                ((raw << unused) as i64 >> unused) as f64
            }
            (NumberClass::Float, 2) => half::f16::from_bits(raw as u16).to_f64(),
            (NumberClass::Float, 4) => f64::from(f32::from_bits(raw as u32)),
            (NumberClass::Float, _) => f64::from_bits(raw),
        }
    }
}

/// What the elements of a dataset or attribute are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Datatype {
    Number(Number),
    /// Text of a fixed number of bytes.
    FixedText(usize),
    /// Text of any length, kept in the global heap; the size of the reference in bytes.
    HeapText(usize),
    /// Compounds, references and what else scans do not use; class and size in bytes.
    Other(u8, usize),
}

impl Datatype {
    pub(super) fn parse(body: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(body, "a datatype");
        let class = cursor.u8()? & 0xf;
        let bits = cursor.uint(3)?;
        let size = cursor.u32()? as usize;
        if size == 0 {
            return Err(Error::Malformed("a datatype"));
        }
        let big_endian = bits & 1 != 0;
        // Numbers that do not fill their bytes are not numbers of any element type.
        let fills = |cursor: &mut Cursor<'_>| -> Result<bool> {
            Ok(cursor.u16()? == 0 && usize::from(cursor.u16()?) == 8 * size)
        };
        Ok(match class {
            0 if matches!(size, 1 | 2 | 4 | 8) && fills(&mut cursor)? => {
                let class = if bits & 8 != 0 { NumberClass::Signed } else { NumberClass::Unsigned };
                Self::Number(Number { size, class, big_endian })
            }
            1 if matches!(size, 2 | 4 | 8) && bits & 0x40 == 0 && fills(&mut cursor)? => {
                Self::Number(Number { size, class: NumberClass::Float, big_endian })
            }
            3 => Self::FixedText(size),
            9 if bits & 0xf == 1 => Self::HeapText(size),
            _ => Self::Other(class, size),
        })
    }

    /// Size of one element in bytes.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Number(number) => number.size,
            Self::FixedText(size) | Self::HeapText(size) | Self::Other(_, size) => size,
        }
    }

    /// The name for people, for example `u16` or `text`.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Number(number) => number.name(),
            Self::FixedText(_) | Self::HeapText(_) => "text".to_owned(),
            Self::Other(6, _) => "compound".to_owned(),
            Self::Other(8, _) => "enumeration".to_owned(),
            Self::Other(class, _) => format!("HDF5 class {class}"),
        }
    }
}

/// The first text in the raw bytes of a text dataset or attribute.
pub(super) fn first_text(file: &File, datatype: Datatype, raw: &[u8]) -> Result<Option<String>> {
    match datatype {
        Datatype::FixedText(size) => Ok(raw.get(..size).map(text)),
        Datatype::HeapText(_) => {
            let mut cursor = Cursor::new(raw, "a text");
            let length = cursor.u32()? as usize;
            let address = cursor.uint(file.offset_size)?;
            let index = cursor.u32()?;
            if length == 0 {
                return Ok(Some(String::new()));
            }
            let stored = global_heap_object(file, address, index)?;
            Ok(stored.get(..length).map(text))
        }
        Datatype::Number(_) | Datatype::Other(..) => Ok(None),
    }
}

impl Object {
    /// The text of an attribute, if there is one of that name that holds text.
    pub(crate) fn text_attribute(&self, file: &File, name: &str) -> Result<Option<String>> {
        let stored = self.messages.iter().filter(|m| m.kind == message::ATTRIBUTE);
        for message in stored {
            let body = match message.flags & 0x02 {
                0 => message.body.clone(),
                _ => shared_message(file, &message.body, message::ATTRIBUTE, self.address)?,
            };
            if let Some((datatype, raw)) = parse_attribute(file, &body, name, self.address)? {
                return first_text(file, datatype, &raw);
            }
        }
        self.dense_text_attribute(file, name)
    }

    /// Attributes beyond eight or so are in a fractal heap, indexed by a B-tree.
    fn dense_text_attribute(&self, file: &File, name: &str) -> Result<Option<String>> {
        let Some(info) = self.message(message::ATTRIBUTE_INFO) else {
            return Ok(None);
        };
        let mut cursor = Cursor::new(&info.body, "attribute information");
        cursor.skip(1)?;
        let flags = cursor.u8()?;
        cursor.skip(if flags & 1 != 0 { 2 } else { 0 })?;
        let (heap, index) = (cursor.uint(file.offset_size)?, cursor.uint(file.offset_size)?);
        if file.is_undefined(heap) {
            return Ok(None);
        }
        let heap = FractalHeap::open(file, heap)?;
        let mut found = None;
        btree::TreeV2::open(file, index)?.visit(file, &mut |record| {
            let body = heap.object(file, record)?;
            if let Some((datatype, raw)) = parse_attribute(file, &body, name, self.address)? {
                found = first_text(file, datatype, &raw)?;
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Datatype and raw bytes of an attribute message if it has the name.
fn parse_attribute(file: &File, body: &[u8], name: &str, holder: u64) -> Result<Option<(Datatype, Vec<u8>)>> {
    let mut cursor = Cursor::new(body, "an attribute");
    let version = cursor.u8()?;
    let flags = cursor.u8()?;
    let name_size = usize::from(cursor.u16()?);
    let type_size = usize::from(cursor.u16()?);
    let space_size = usize::from(cursor.u16()?);
    cursor.skip(usize::from(version >= 3))?;
    let padded = |size: usize| {
        if version == 1 { size.next_multiple_of(8) } else { size }
    };
    if text(cursor.take(padded(name_size))?) != name {
        return Ok(None);
    }
    let datatype = cursor.take(padded(type_size))?;
    let datatype = if version >= 2 && flags & 1 != 0 {
        Datatype::parse(&shared_message(file, datatype, message::DATATYPE, holder)?)?
    } else {
        Datatype::parse(datatype)?
    };
    cursor.skip(padded(space_size))?;
    Ok(Some((datatype, cursor.rest().to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_numbers_have_their_value() {
        let number = |size, class, big_endian| Number { size, class, big_endian };
        assert_eq!(number(2, NumberClass::Unsigned, true).value(&[0x01, 0x02]), 258.0);
        assert_eq!(number(2, NumberClass::Signed, false).value(&[0xff, 0xff]), -1.0);
        assert_eq!(number(4, NumberClass::Float, false).value(&1.5_f32.to_le_bytes()), 1.5);
        assert_eq!(number(8, NumberClass::Float, true).value(&(-2.25_f64).to_be_bytes()), -2.25);
        assert_eq!(number(2, NumberClass::Float, false).value(&half::f16::from_f32(0.5).to_le_bytes()), 0.5);
    }

    #[test]
    fn a_number_with_padding_bits_is_no_number() {
        // 12 bits in two bytes.
        let body = [0x10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 12, 0];
        assert_eq!(Datatype::parse(&body).unwrap(), Datatype::Other(0, 2));
    }
}
