//! B-trees: the index of groups, attributes and chunks ("Disk Format: Level 1A").

use super::bytes::Cursor;
use super::{Error, File, Result};

/// Most entries that one tree may have.
const MAX_ENTRIES: usize = 64 << 20;
/// Deepest tree.
const MAX_DEPTH: u16 = 32;

/// Calls `leaf` with the key and the child address of every entry of a version-1 tree.
///
/// `key_size` is the size of the keys in bytes; `kind` is 0 for groups and 1 for chunks.
pub(super) fn visit_v1(
    file: &File,
    root: u64,
    kind: u8,
    key_size: usize,
    leaf: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let mut open = vec![(root, None)];
    let mut entries = 0;
    while let Some((address, expected_level)) = open.pop() {
        let header = file.read(address, 8 + 2 * file.offset_size, "a B-tree")?;
        let mut cursor = Cursor::new(&header, "a B-tree");
        cursor.signature(b"TREE")?;
        let found_kind = cursor.u8()?;
        let level = cursor.u8()?;
        let used = usize::from(cursor.u16()?);
        // Levels fall from node to child, so that a tree cannot lead back into itself.
        if found_kind != kind || expected_level.is_some_and(|expected| expected != level) {
            return Err(Error::Malformed("a B-tree"));
        }
        entries += used;
        if entries > MAX_ENTRIES {
            return Err(Error::Malformed("a B-tree"));
        }
        let body =
            file.read(address + header.len() as u64, used * (key_size + file.offset_size), "a B-tree")?;
        let mut cursor = Cursor::new(&body, "a B-tree");
        let mut children = Vec::new();
        for _ in 0..used {
            let key = cursor.take(key_size)?;
            let child = cursor.uint(file.offset_size)?;
            if level == 0 {
                leaf(key, child)?;
            } else {
                children.push((child, Some(level - 1)));
            }
        }
        open.extend(children.into_iter().rev());
    }
    Ok(())
}

/// A version-2 tree, as its header describes it.
pub(super) struct TreeV2 {
    pub(super) record_size: usize,
    pub(super) kind: u8,
    node_size: usize,
    depth: u16,
    root: u64,
    root_records: usize,
}

impl TreeV2 {
    pub(super) fn open(file: &File, address: u64) -> Result<Self> {
        let header = file.read(address, 16 + file.offset_size + 2 + file.length_size, "a B-tree")?;
        let mut cursor = Cursor::new(&header, "a B-tree");
        cursor.signature(b"BTHD\0")?;
        let kind = cursor.u8()?;
        let node_size = cursor.u32()? as usize;
        let record_size = usize::from(cursor.u16()?);
        let depth = cursor.u16()?;
        cursor.skip(2)?;
        let root = cursor.uint(file.offset_size)?;
        let root_records = usize::from(cursor.u16()?);
        if record_size == 0 || depth > MAX_DEPTH || node_size < 16 + record_size {
            return Err(Error::Malformed("a B-tree"));
        }
        Ok(Self { record_size, kind, node_size, depth, root, root_records })
    }

    /// Calls `visit` with every record.
    pub(super) fn visit(&self, file: &File, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if file.is_undefined(self.root) {
            return Ok(());
        }
        let sizes = self.pointer_sizes(file);
        let mut open = vec![(self.root, self.depth, self.root_records)];
        let mut entries = 0;
        while let Some((address, depth, records)) = open.pop() {
            entries += records;
            if entries > MAX_ENTRIES {
                return Err(Error::Malformed("a B-tree"));
            }
            let node = file.read_up_to(address, self.node_size, "a B-tree")?;
            let mut cursor = Cursor::new(&node, "a B-tree");
            cursor.signature(if depth == 0 { b"BTLF\0" } else { b"BTIN\0" })?;
            cursor.skip(1)?;
            for _ in 0..records {
                visit(cursor.take(self.record_size)?)?;
            }
            if depth == 0 {
                continue;
            }
            let (count_size, total_size) =
                sizes.get(usize::from(depth)).copied().ok_or(Error::Malformed("a B-tree"))?;
            for _ in 0..=records {
                let child = cursor.uint(file.offset_size)?;
                let child_records = usize::try_from(cursor.uint(count_size)?).unwrap_or(usize::MAX);
                cursor.skip(total_size)?;
                if child_records > self.node_size / self.record_size {
                    return Err(Error::Malformed("a B-tree"));
                }
                open.push((child, depth - 1, child_records));
            }
        }
        Ok(())
    }

    /// For each depth, the bytes of a child's count of records and of its total of records.
    fn pointer_sizes(&self, file: &File) -> Vec<(usize, usize)> {
        /// Signature, version, type and checksum of a node.
        const OVERHEAD: usize = 10;
        let leaf_most = ((self.node_size - OVERHEAD) / self.record_size) as u64;
        let count_size = bytes_for(leaf_most);
        let mut most = leaf_most;
        let mut sizes = vec![(0, 0)];
        for depth in 1..=self.depth {
            let total_size = if depth == 1 { 0 } else { bytes_for(most) };
            sizes.push((count_size, total_size));
            let pointer = file.offset_size + count_size + total_size;
            let records =
                (self.node_size.saturating_sub(OVERHEAD + pointer) / (self.record_size + pointer)) as u64;
            most = (records + 1).saturating_mul(most).saturating_add(records);
        }
        sizes
    }
}

/// Bytes that hold the integers up to `limit`.
fn bytes_for(limit: u64) -> usize {
    (limit.max(1).ilog2() / 8 + 1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_hold_a_limit() {
        let sizes: Vec<usize> = [0, 1, 255, 256, 65_535, 65_536].into_iter().map(bytes_for).collect();
        assert_eq!(sizes, [1, 1, 1, 2, 2, 3]);
    }
}
