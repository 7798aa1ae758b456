//! Heaps: names of old groups, texts of any length, links and attributes of large objects.

use super::bytes::Cursor;
use super::{Error, File, Result};

/// The names of a version-1 group ("Disk Format: Level 1D - Local Heaps").
pub(super) fn local_heap(file: &File, address: u64) -> Result<Vec<u8>> {
    let header = file.read(address, 8 + 2 * file.length_size + file.offset_size, "a local heap")?;
    let mut cursor = Cursor::new(&header, "a local heap");
    cursor.signature(b"HEAP")?;
    cursor.skip(4)?;
    let size = usize::try_from(cursor.uint(file.length_size)?).unwrap_or(usize::MAX);
    cursor.skip(file.length_size)?;
    let data = cursor.uint(file.offset_size)?;
    file.read(data, size, "a local heap")
}

/// An object of the global heap, where texts of any length are ("Disk Format: Level 1E - Global Heap").
pub(super) fn global_heap_object(file: &File, address: u64, index: u32) -> Result<Vec<u8>> {
    let head_size = 8 + file.length_size;
    let head = file.read(address, head_size, "the global heap")?;
    let mut cursor = Cursor::new(&head, "the global heap");
    cursor.signature(b"GCOL")?;
    cursor.skip(4)?;
    let size = usize::try_from(cursor.uint(file.length_size)?).unwrap_or(usize::MAX);
    let collection = file.read(address, size, "the global heap")?;
    let mut cursor = Cursor::new(&collection, "the global heap");
    cursor.skip(head_size)?;
    while cursor.rest().len() >= head_size {
        let found = u32::from(cursor.u16()?);
        cursor.skip(6)?;
        let length = usize::try_from(cursor.uint(file.length_size)?).unwrap_or(usize::MAX);
        if found == 0 {
            break;
        }
        let data = cursor.take(length)?;
        if found == index {
            return Ok(data.to_vec());
        }
        cursor.skip(length.next_multiple_of(8) - length)?;
    }
    Err(Error::Malformed("the global heap"))
}

/// A fractal heap, where the links and attributes of large objects are ("Disk Format: Level 1F").
pub(super) struct FractalHeap {
    id_length: usize,
    table_width: u64,
    start_size: u64,
    max_direct_size: u64,
    max_managed_size: u64,
    heap_bits: u32,
    root: u64,
    root_rows: u16,
}

impl FractalHeap {
    pub(super) fn open(file: &File, address: u64) -> Result<Self> {
        let (o, l) = (file.offset_size, file.length_size);
        let header = file.read(address, 22 + 12 * l + 3 * o, "a fractal heap")?;
        let mut cursor = Cursor::new(&header, "a fractal heap");
        cursor.signature(b"FRHP\0")?;
        let id_length = usize::from(cursor.u16()?);
        if cursor.u16()? != 0 {
            return Err(Error::Unsupported("a compressed fractal heap".to_owned()));
        }
        cursor.skip(1)?;
        let max_managed_size = u64::from(cursor.u32()?);
        cursor.skip(10 * l + 2 * o)?;
        let table_width = u64::from(cursor.u16()?);
        let start_size = cursor.uint(l)?;
        let max_direct_size = cursor.uint(l)?;
        let heap_bits = u32::from(cursor.u16()?);
        cursor.skip(2)?;
        let root = cursor.uint(o)?;
        let root_rows = cursor.u16()?;
        let sane = start_size.is_power_of_two()
            && max_direct_size.is_power_of_two()
            && table_width.is_power_of_two();
        if !sane
            || start_size > max_direct_size
            || heap_bits > 64
            || table_width > 1 << 12
            || max_managed_size == 0
        {
            return Err(Error::Malformed("a fractal heap"));
        }
        Ok(Self {
            id_length,
            table_width,
            start_size,
            max_direct_size,
            max_managed_size,
            heap_bits,
            root,
            root_rows,
        })
    }

    /// The object with a heap id.
    pub(super) fn object(&self, file: &File, id: &[u8]) -> Result<Vec<u8>> {
        let mut cursor = Cursor::new(id, "a heap id");
        let flags = cursor.u8()?;
        match flags >> 4 & 3 {
            0 => {
                let offset = cursor.uint(self.offset_bytes())?;
                let length_bytes =
                    self.max_direct_size.ilog2().div_ceil(8).min(self.max_managed_size.ilog2() / 8 + 1);
                let length = cursor.uint(length_bytes as usize)?;
                let address = self.locate(file, offset)?;
                file.read(address, usize::try_from(length).unwrap_or(usize::MAX), "a fractal heap")
            }
            2 if self.id_length <= 17 => Ok(cursor.take(usize::from(flags & 0xf) + 1)?.to_vec()),
            _ => Err(Error::Unsupported("a huge object of a fractal heap".to_owned())),
        }
    }

    fn offset_bytes(&self) -> usize {
        self.heap_bits.div_ceil(8) as usize
    }

    /// The address of a managed object: its blocks double in size from row to row.
    fn locate(&self, file: &File, offset: u64) -> Result<u64> {
        if self.root_rows == 0 {
            return self.root.checked_add(offset).ok_or(Error::Malformed("a fractal heap"));
        }
        let direct_rows = u64::from((self.max_direct_size / self.start_size).ilog2()) + 2;
        let entries_at = (5 + file.offset_size + self.offset_bytes()) as u64;
        let (mut block, mut offset) = (self.root, offset);
        // Each step down at least halves the range, so 64 steps are enough.
        for _ in 0..64 {
            let first_row = self.start_size.saturating_mul(self.table_width);
            let row = if offset < first_row { 0 } else { u64::from((offset / first_row).ilog2()) + 1 };
            let (row_start, block_size) = match row {
                0 => (0, self.start_size),
                _ => (first_row << (row - 1), self.start_size << (row - 1)),
            };
            let column = (offset - row_start) / block_size;
            let entry = entries_at + (row * self.table_width + column) * file.offset_size as u64;
            let pointer = file.read(block.saturating_add(entry), file.offset_size, "a fractal heap")?;
            let child = Cursor::new(&pointer, "a fractal heap").uint(file.offset_size)?;
            offset -= row_start + column * block_size;
            if row < direct_rows {
                return child.checked_add(offset).ok_or(Error::Malformed("a fractal heap"));
            }
            block = child;
        }
        Err(Error::Malformed("a fractal heap"))
    }
}
