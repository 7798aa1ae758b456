//! Where the chunks of a dataset are: the five ways of indexing them.

use std::collections::HashMap;

use super::btree::{TreeV2, visit_v1};
use super::bytes::Cursor;
use super::types::MAX_RANK;
use super::{Error, File, Result};

/// Most chunks of a dataset.
const MAX_CHUNKS: u64 = 16 << 20;

/// A chunk in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) address: u64,
    /// Stored bytes.
    pub(super) size: u64,
    /// Bit i is set if filter i was left out.
    pub(super) filter_mask: u32,
}

/// How the chunks are indexed, from the layout message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Index {
    BTreeV1,
    /// One chunk; its stored size and filter mask if it is filtered.
    Single(Option<(u64, u32)>),
    Implicit,
    FixedArray,
    ExtensibleArray,
    BTreeV2,
}

/// What is needed to find chunks.
pub(super) struct Grid<'a> {
    pub(super) dims: &'a [u64],
    pub(super) max_dims: &'a [Option<u64>],
    pub(super) chunk: &'a [u64],
    /// Bytes of a chunk without filters.
    pub(super) chunk_bytes: u64,
}

/// Chunks by their position in the grid of chunks.
pub(super) type ChunkMap = HashMap<Vec<u64>, Chunk>;

impl Grid<'_> {
    /// All chunks that are stored; those that were never written are left out.
    pub(super) fn find(&self, file: &File, index: Index, address: u64) -> Result<ChunkMap> {
        if file.is_undefined(address) {
            return Ok(ChunkMap::new());
        }
        let whole = |address| Chunk { address, size: self.chunk_bytes, filter_mask: 0 };
        match index {
            Index::BTreeV1 => self.by_btree_v1(file, address),
            Index::BTreeV2 => self.by_btree_v2(file, address),
            Index::Single(None) => Ok(HashMap::from([(vec![0; self.dims.len()], whole(address))])),
            Index::Single(Some((size, filter_mask))) => {
                Ok(HashMap::from([(vec![0; self.dims.len()], Chunk { address, size, filter_mask })]))
            }
            Index::Implicit => {
                let chunks = (0..self.count()?)
                    .map(|number| address.checked_add(number.saturating_mul(self.chunk_bytes)).map(whole));
                self.in_order(chunks.collect(), None)
            }
            Index::FixedArray => self.in_order(fixed_array(file, address, self)?, None),
            Index::ExtensibleArray => {
                let unlimited = self.max_dims.iter().position(Option::is_none);
                self.in_order(ExtensibleArray::open(file, address)?.chunks(file, self)?, unlimited)
            }
        }
    }

    fn by_btree_v1(&self, file: &File, root: u64) -> Result<ChunkMap> {
        let rank = self.dims.len();
        let mut found = ChunkMap::new();
        visit_v1(file, root, 1, 8 + 8 * (rank + 1), &mut |key, address| {
            let mut cursor = Cursor::new(key, "a chunk");
            let size = u64::from(cursor.u32()?);
            let filter_mask = cursor.u32()?;
            let mut position = Vec::with_capacity(rank);
            for edge in self.chunk {
                position.push(cursor.uint(8)? / edge);
            }
            found.insert(position, Chunk { address, size, filter_mask });
            Ok(())
        })?;
        Ok(found)
    }

    fn by_btree_v2(&self, file: &File, root: u64) -> Result<ChunkMap> {
        let rank = self.dims.len();
        let tree = TreeV2::open(file, root)?;
        let filtered = match tree.kind {
            10 => false,
            11 => true,
            _ => return Err(Error::Malformed("a chunk index")),
        };
        let fixed = file.offset_size + 8 * rank + if filtered { 4 } else { 0 };
        let size_bytes = tree.record_size.checked_sub(fixed).ok_or(Error::Malformed("a chunk index"))?;
        let mut found = ChunkMap::new();
        tree.visit(file, &mut |record| {
            let mut cursor = Cursor::new(record, "a chunk");
            let chunk = read_element(file, &mut cursor, filtered.then_some(size_bytes), self.chunk_bytes)?;
            let position = (0..rank).map(|_| cursor.uint(8)).collect::<Result<Vec<_>>>()?;
            found.extend(chunk.map(|chunk| (position, chunk)));
            Ok(())
        })?;
        Ok(found)
    }

    /// Chunks along each dimension, for the largest extent where there is one.
    fn counts(&self) -> Vec<u64> {
        let extents = self.dims.iter().zip(self.max_dims).map(|(dim, max)| max.unwrap_or(*dim));
        extents.zip(self.chunk).map(|(extent, edge)| extent.div_ceil(*edge)).collect()
    }

    /// Number of chunks, refused if absurd.
    fn count(&self) -> Result<u64> {
        let counts = self.counts();
        let count = counts.iter().try_fold(1_u64, |product, &count| product.checked_mul(count));
        count.filter(|count| *count <= MAX_CHUNKS).ok_or(Error::Malformed("a chunk index"))
    }

    /// Gives chunks that are stored in row-major order their positions; an unlimited dimension comes first.
    fn in_order(&self, chunks: Vec<Option<Chunk>>, unlimited: Option<usize>) -> Result<ChunkMap> {
        let rank = self.dims.len();
        if rank == 0 || rank > MAX_RANK {
            return Err(Error::Malformed("a chunk index"));
        }
        let mut order: Vec<usize> = (0..rank).collect();
        if let Some(first) = unlimited {
            order.remove(first);
            order.insert(0, first);
        }
        let counts = self.counts();
        let mut found = ChunkMap::new();
        for (number, chunk) in chunks.into_iter().enumerate() {
            let Some(chunk) = chunk else { continue };
            let mut rest = number as u64;
            let mut position = vec![0; rank];
            for &dim in order.iter().skip(1).rev() {
                position[dim] = rest % counts[dim].max(1);
                rest /= counts[dim].max(1);
            }
            position[order[0]] = rest;
            found.insert(position, chunk);
        }
        Ok(found)
    }
}

/// One element of a chunk index: an address, and for filtered chunks the stored size and the filter mask.
fn read_element(
    file: &File,
    cursor: &mut Cursor<'_>,
    size_bytes: Option<usize>,
    whole: u64,
) -> Result<Option<Chunk>> {
    let address = cursor.uint(file.offset_size)?;
    let (size, filter_mask) = match size_bytes {
        Some(bytes) => (cursor.uint(bytes)?, cursor.u32()?),
        None => (whole, 0),
    };
    Ok((!file.is_undefined(address)).then_some(Chunk { address, size, filter_mask }))
}

/// Bytes of the stored size within an element, `None` for chunks without filters.
fn size_bytes(file: &File, client: u8, element_size: usize) -> Result<Option<usize>> {
    match client {
        0 if element_size == file.offset_size => Ok(None),
        1 => {
            element_size.checked_sub(file.offset_size + 4).map(Some).ok_or(Error::Malformed("a chunk index"))
        }
        _ => Err(Error::Malformed("a chunk index")),
    }
}

fn read_elements(
    file: &File,
    cursor: &mut Cursor<'_>,
    count: u64,
    size_bytes: Option<usize>,
    whole: u64,
    found: &mut Vec<Option<Chunk>>,
) -> Result<()> {
    for _ in 0..count {
        found.push(read_element(file, cursor, size_bytes, whole)?);
    }
    Ok(())
}

/// "Disk Format: Level 1G - Fixed Array".
fn fixed_array(file: &File, address: u64, grid: &Grid<'_>) -> Result<Vec<Option<Chunk>>> {
    let header = file.read(address, 8 + file.length_size + file.offset_size, "a chunk index")?;
    let mut cursor = Cursor::new(&header, "a chunk index");
    cursor.signature(b"FAHD\0")?;
    let client = cursor.u8()?;
    let element_size = usize::from(cursor.u8()?);
    let page_bits = cursor.u8()?;
    let count = cursor.uint(file.length_size)?;
    let block = cursor.uint(file.offset_size)?;
    let size_bytes = size_bytes(file, client, element_size)?;
    if count > MAX_CHUNKS || page_bits > 32 {
        return Err(Error::Malformed("a chunk index"));
    }
    let mut found = Vec::new();
    if file.is_undefined(block) {
        return Ok(found);
    }
    let page = 1_u64 << page_bits;
    let prefix = 6 + file.offset_size;
    if count <= page {
        let bytes = file.read(block, prefix + count as usize * element_size, "a chunk index")?;
        let mut cursor = Cursor::new(&bytes, "a chunk index");
        cursor.signature(b"FADB")?;
        cursor.skip(prefix - 4)?;
        read_elements(file, &mut cursor, count, size_bytes, grid.chunk_bytes, &mut found)?;
        return Ok(found);
    }
    let pages = count.div_ceil(page) as usize;
    let bitmap = file.read(block, prefix + pages.div_ceil(8), "a chunk index")?;
    let mut at = block + (bitmap.len() + 4) as u64;
    let written = bitmap.get(prefix..).unwrap_or_default();
    for number in 0..pages {
        let elements = page.min(count - number as u64 * page);
        if is_set(written, number) {
            let bytes = file.read(at, elements as usize * element_size, "a chunk index")?;
            let mut cursor = Cursor::new(&bytes, "a chunk index");
            read_elements(file, &mut cursor, elements, size_bytes, grid.chunk_bytes, &mut found)?;
        } else {
            found.extend((0..elements).map(|_| None));
        }
        at += elements * element_size as u64 + 4;
    }
    Ok(found)
}

/// Whether a page was written; bits are counted from the most significant one.
fn is_set(bitmap: &[u8], number: usize) -> bool {
    bitmap.get(number / 8).is_some_and(|byte| byte & (0x80 >> (number % 8)) != 0)
}

/// "Disk Format: Level 1H - Extensible Array": data blocks that double in size every second super block.
struct ExtensibleArray {
    size_bytes: Option<usize>,
    element_size: usize,
    index_bits: u32,
    index_elements: u64,
    min_block_elements: u64,
    min_pointers: u64,
    page_elements: u64,
    index_block: u64,
}

impl ExtensibleArray {
    fn open(file: &File, address: u64) -> Result<Self> {
        let header = file.read(address, 12 + 6 * file.length_size + file.offset_size, "a chunk index")?;
        let mut cursor = Cursor::new(&header, "a chunk index");
        cursor.signature(b"EAHD\0")?;
        let client = cursor.u8()?;
        let element_size = usize::from(cursor.u8()?);
        let index_bits = u32::from(cursor.u8()?);
        let index_elements = u64::from(cursor.u8()?);
        let min_block_elements = u64::from(cursor.u8()?);
        let min_pointers = u64::from(cursor.u8()?);
        let page_bits = cursor.u8()?;
        cursor.skip(6 * file.length_size)?;
        let index_block = cursor.uint(file.offset_size)?;
        let sane = min_block_elements.is_power_of_two() && min_pointers.is_power_of_two() && min_pointers > 1;
        if !sane || page_bits > 32 || index_bits > 64 || index_bits < min_block_elements.ilog2() {
            return Err(Error::Malformed("a chunk index"));
        }
        Ok(Self {
            size_bytes: size_bytes(file, client, element_size)?,
            element_size,
            index_bits,
            index_elements,
            min_block_elements,
            min_pointers,
            page_elements: 1 << page_bits,
            index_block,
        })
    }

    /// The elements in order, as far as the dataset reaches.
    fn chunks(&self, file: &File, grid: &Grid<'_>) -> Result<Vec<Option<Chunk>>> {
        let wanted = grid.count()?;
        let mut found = Vec::new();
        if file.is_undefined(self.index_block) {
            return Ok(found);
        }
        let super_blocks = 1 + self.index_bits - self.min_block_elements.ilog2();
        // The data blocks of the first super blocks are listed in the index block itself.
        let listed = 2 * self.min_pointers.ilog2();
        let direct = 2 * (self.min_pointers - 1);
        let pointers = direct + u64::from(super_blocks.saturating_sub(listed));
        let prefix = 6 + file.offset_size;
        let size =
            prefix + self.index_elements as usize * self.element_size + pointers as usize * file.offset_size;
        let block = file.read(self.index_block, size, "a chunk index")?;
        let mut cursor = Cursor::new(&block, "a chunk index");
        cursor.signature(b"EAIB")?;
        cursor.skip(prefix - 4)?;
        read_elements(file, &mut cursor, self.index_elements, self.size_bytes, grid.chunk_bytes, &mut found)?;

        for number in 0..super_blocks {
            let blocks = 1_u64 << (number / 2);
            let elements = self.min_block_elements << number.div_ceil(2);
            if found.len() as u64 >= wanted {
                break;
            }
            let (addresses, written) = if number < listed {
                let addresses =
                    (0..blocks).map(|_| cursor.uint(file.offset_size)).collect::<Result<Vec<_>>>()?;
                (addresses, Vec::new())
            } else {
                let address = cursor.uint(file.offset_size)?;
                self.super_block(file, address, blocks, elements)?
            };
            for (at, address) in addresses.into_iter().enumerate() {
                let elements = elements.min(wanted.saturating_sub(found.len() as u64));
                if file.is_undefined(address) {
                    found.extend((0..elements).map(|_| None));
                } else {
                    let pages = self.pages(self.min_block_elements << number.div_ceil(2));
                    let written = |page| is_set(&written, at * pages as usize + page);
                    self.data_block(
                        file,
                        address,
                        (elements, pages),
                        grid.chunk_bytes,
                        &written,
                        &mut found,
                    )?;
                }
            }
        }
        found.truncate(wanted as usize);
        Ok(found)
    }

    /// Pages of a data block; 0 for a block that is not divided.
    fn pages(&self, elements: u64) -> u64 {
        if elements > self.page_elements { elements / self.page_elements } else { 0 }
    }

    /// Signature, version, client, header address and position, in front of super and data blocks.
    fn prefix(&self, file: &File) -> usize {
        6 + file.offset_size + self.index_bits.div_ceil(8) as usize
    }

    /// Addresses of the data blocks of a super block, and which of their pages were written.
    fn super_block(
        &self,
        file: &File,
        address: u64,
        blocks: u64,
        elements: u64,
    ) -> Result<(Vec<u64>, Vec<u8>)> {
        if file.is_undefined(address) {
            return Ok((vec![u64::MAX >> (64 - 8 * file.offset_size); blocks as usize], Vec::new()));
        }
        let prefix = self.prefix(file);
        let bitmap = blocks as usize * self.pages(elements).div_ceil(8) as usize;
        let size = prefix + bitmap + blocks as usize * file.offset_size;
        let block = file.read(address, size, "a chunk index")?;
        let mut cursor = Cursor::new(&block, "a chunk index");
        cursor.signature(b"EASB")?;
        cursor.skip(prefix - 4)?;
        let written = cursor.take(bitmap)?.to_vec();
        let addresses = (0..blocks).map(|_| cursor.uint(file.offset_size)).collect::<Result<Vec<_>>>()?;
        Ok((addresses, written))
    }

    /// The first `elements` elements of a data block.
    fn data_block(
        &self,
        file: &File,
        address: u64,
        (elements, pages): (u64, u64),
        whole: u64,
        written: &dyn Fn(usize) -> bool,
        found: &mut Vec<Option<Chunk>>,
    ) -> Result<()> {
        let prefix = self.prefix(file);
        let head = file.read(address, prefix, "a chunk index")?;
        Cursor::new(&head, "a chunk index").signature(b"EADB")?;
        let read = |at: u64, count: u64, found: &mut Vec<Option<Chunk>>| -> Result<()> {
            let bytes = file.read(at, count as usize * self.element_size, "a chunk index")?;
            let mut cursor = Cursor::new(&bytes, "a chunk index");
            read_elements(file, &mut cursor, count, self.size_bytes, whole, found)
        };
        if pages == 0 {
            return read(address + prefix as u64, elements, found);
        }
        // Pages follow the checksum of the block and end with one of their own.
        let page_bytes = self.page_elements * self.element_size as u64 + 4;
        let first = address + prefix as u64 + 4;
        let mut left = elements;
        for page in 0..pages as usize {
            let count = self.page_elements.min(left);
            if written(page) {
                read(first + page as u64 * page_bytes, count, found)?;
            } else {
                found.extend((0..count).map(|_| None));
            }
            left -= count;
        }
        Ok(())
    }
}
