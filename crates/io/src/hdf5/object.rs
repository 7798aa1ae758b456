//! Object headers: the messages that describe a group or a dataset ("Disk Format: Level 2A").

use super::bytes::Cursor;
use super::{Error, File, Result};

/// Types of the messages that are used here.
pub(super) mod message {
    pub(in super::super) const DATASPACE: u16 = 0x01;
    pub(in super::super) const LINK_INFO: u16 = 0x02;
    pub(in super::super) const DATATYPE: u16 = 0x03;
    pub(in super::super) const FILL_VALUE: u16 = 0x05;
    pub(in super::super) const LINK: u16 = 0x06;
    pub(in super::super) const EXTERNAL_FILES: u16 = 0x07;
    pub(in super::super) const LAYOUT: u16 = 0x08;
    pub(in super::super) const FILTERS: u16 = 0x0b;
    pub(in super::super) const ATTRIBUTE: u16 = 0x0c;
    pub(in super::super) const CONTINUATION: u16 = 0x10;
    pub(in super::super) const SYMBOL_TABLE: u16 = 0x11;
    pub(in super::super) const ATTRIBUTE_INFO: u16 = 0x15;
}

/// Most blocks of one header.
const MAX_BLOCKS: usize = 4096;
/// Most bytes of one header.
const MAX_HEADER_BYTES: usize = 16 << 20;
/// Flag of a message whose body is elsewhere.
const SHARED: u8 = 0x02;

/// One message of an object header.
pub(super) struct Message {
    pub(super) kind: u16,
    pub(super) flags: u8,
    pub(super) body: Vec<u8>,
}

/// The header of a group or dataset.
pub(crate) struct Object {
    pub(super) address: u64,
    pub(super) messages: Vec<Message>,
}

impl Object {
    pub(super) fn read(file: &File, address: u64) -> Result<Self> {
        let head = file.read_up_to(address, 64, "an object header")?;
        let mut object = Self { address, messages: Vec::new() };
        if head.starts_with(b"OHDR") {
            object.read_version_2(file, &head)?;
        } else {
            object.read_version_1(file, &head)?;
        }
        Ok(object)
    }

    /// The body of the first message of a kind.
    pub(super) fn message(&self, kind: u16) -> Option<&Message> {
        self.messages.iter().find(|m| m.kind == kind)
    }

    fn read_version_1(&mut self, file: &File, head: &[u8]) -> Result<()> {
        let mut cursor = Cursor::new(head, "an object header");
        if cursor.u8()? != 1 {
            return Err(Error::Malformed("an object header"));
        }
        cursor.skip(7)?;
        let size = cursor.u32()? as usize;
        let mut blocks = vec![(self.address + 16, size)];
        let mut bytes = 0;
        let mut next = 0;
        while let Some(&(address, size)) = blocks.get(next) {
            next += 1;
            bytes += size;
            check_limits(next, bytes)?;
            let block = file.read(address, size, "an object header")?;
            let mut cursor = Cursor::new(&block, "an object header");
            while cursor.rest().len() >= 8 {
                let kind = cursor.u16()?;
                let length = usize::from(cursor.u16()?);
                let flags = cursor.u8()?;
                cursor.skip(3)?;
                self.add(file, Message { kind, flags, body: cursor.take(length)?.to_vec() }, &mut blocks)?;
            }
        }
        Ok(())
    }

    fn read_version_2(&mut self, file: &File, head: &[u8]) -> Result<()> {
        let mut cursor = Cursor::new(head, "an object header");
        cursor.signature(b"OHDR\x02")?;
        let flags = cursor.u8()?;
        cursor.skip(if flags & 0x20 != 0 { 16 } else { 0 })?;
        cursor.skip(if flags & 0x10 != 0 { 4 } else { 0 })?;
        let size = cursor.uint(1 << (flags & 3))?;
        let size = usize::try_from(size).ok().ok_or(Error::Malformed("an object header"))?;
        let ordered = flags & 0x04 != 0;

        let first = self.address + cursor.position() as u64;
        let mut blocks = vec![(first, size)];
        let mut bytes = 0;
        let mut next = 0;
        while let Some(&(address, size)) = blocks.get(next) {
            bytes += size;
            check_limits(next, bytes)?;
            let block = file.read(address, size, "an object header")?;
            let mut messages = block.as_slice();
            if next > 0 {
                // A continuation has a signature in front and a checksum behind.
                messages = block
                    .strip_prefix(b"OCHK")
                    .and_then(|rest| rest.get(..rest.len().checked_sub(4)?))
                    .ok_or(Error::Malformed("an object header"))?;
            }
            next += 1;
            let mut cursor = Cursor::new(messages, "an object header");
            let prefix = if ordered { 6 } else { 4 };
            while cursor.rest().len() >= prefix {
                let kind = u16::from(cursor.u8()?);
                let length = usize::from(cursor.u16()?);
                let flags = cursor.u8()?;
                cursor.skip(prefix - 4)?;
                self.add(file, Message { kind, flags, body: cursor.take(length)?.to_vec() }, &mut blocks)?;
            }
        }
        Ok(())
    }

    /// Keeps a message, or notes where the header goes on.
    fn add(&mut self, file: &File, mut message: Message, blocks: &mut Vec<(u64, usize)>) -> Result<()> {
        if message.kind == message::CONTINUATION {
            let mut cursor = Cursor::new(&message.body, "an object header");
            let address = cursor.uint(file.offset_size)?;
            let size = usize::try_from(cursor.uint(file.length_size)?).unwrap_or(usize::MAX);
            blocks.push((address, size));
            return Ok(());
        }
        if message.flags & SHARED != 0 && message.kind == message::DATATYPE {
            message.body = shared_message(file, &message.body, message::DATATYPE, self.address)?;
        }
        self.messages.push(message);
        Ok(())
    }
}

/// The body of a message that is stored in another object's header, as that of a named datatype.
pub(super) fn shared_message(file: &File, reference: &[u8], kind: u16, holder: u64) -> Result<Vec<u8>> {
    let mut cursor = Cursor::new(reference, "a shared message");
    let version = cursor.u8()?;
    let place = cursor.u8()?;
    if version == 3 && place == 1 {
        return Err(Error::Unsupported("a message in the shared heap".to_owned()));
    }
    cursor.skip(if version == 1 { 6 } else { 0 })?;
    let address = cursor.uint(file.offset_size)?;
    if address == holder {
        return Err(Error::Malformed("a shared message"));
    }
    let head = file.read_up_to(address, 64, "a shared message")?;
    let mut object = Object { address, messages: Vec::new() };
    // A named datatype refers to no further one: its own messages are taken as they stand.
    if head.starts_with(b"OHDR") {
        object.read_version_2(file, &head)?;
    } else {
        object.read_version_1(file, &head)?;
    }
    object.message(kind).map(|m| m.body.clone()).ok_or(Error::Malformed("a shared message"))
}

fn check_limits(blocks: usize, bytes: usize) -> Result<()> {
    if blocks > MAX_BLOCKS || bytes > MAX_HEADER_BYTES {
        Err(Error::Malformed("an object header"))
    } else {
        Ok(())
    }
}
