//! Selections of elements, as virtual datasets store them ("Disk Format: Level 2", dataspace selections).

use super::bytes::Cursor;
use super::types::MAX_RANK;
use super::{Error, Result};

/// Most blocks of an irregular selection.
const MAX_BLOCKS: usize = 1 << 20;
/// Stands for "as many as there are".
const UNLIMITED: u64 = u64::MAX;

/// Elements of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    /// A pattern along each dimension.
    Pattern(Vec<Pattern>),
}

/// Positions along a dimension: `count` blocks of `block` positions, their starts `stride` apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) start: u64,
    pub(super) stride: u64,
    pub(super) count: u64,
    pub(super) block: u64,
}

impl Pattern {
    pub(super) const fn all(extent: u64) -> Self {
        Self { start: 0, stride: 1, count: 1, block: extent }
    }

    /// The pattern within an extent: an unlimited one ends there; `None` if it reaches beyond.
    pub(super) fn within(self, extent: u64) -> Option<Self> {
        let room = extent.checked_sub(self.start)?;
        let mut pattern = Self { stride: self.stride.max(1), ..self };
        if pattern.block == UNLIMITED {
            pattern.block = room;
        }
        if pattern.count == UNLIMITED {
            let whole = room.checked_sub(pattern.block).map_or(0, |rest| rest / pattern.stride + 1);
            pattern.count = whole;
        }
        let end = pattern.count.checked_sub(1)?.checked_mul(pattern.stride)?.checked_add(pattern.block)?;
        (end <= room && (pattern.count == 1 || pattern.block <= pattern.stride)).then_some(pattern)
    }

    /// How many positions there are.
    pub(super) const fn len(self) -> u64 {
        self.count * self.block
    }

    /// Start and length, if there are no gaps.
    pub(super) fn as_range(self) -> Option<(u64, u64)> {
        (self.count == 1 || self.stride == self.block).then_some((self.start, self.len()))
    }

    /// The number of a position among those of the pattern.
    pub(super) fn number_of(self, position: u64) -> Option<u64> {
        let offset = position.checked_sub(self.start)?;
        let (block, within) =
            if self.count == 1 { (0, offset) } else { (offset / self.stride, offset % self.stride) };
        (block < self.count && within < self.block).then(|| block * self.block + within)
    }

    /// The position with a number.
    pub(super) const fn position_of(self, number: u64) -> u64 {
        self.start + number / self.block * self.stride + number % self.block
    }
}

impl Selection {
    /// Reads a selection; `None` for one without elements.
    pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Option<Self>> {
        let (kind, version) = (cursor.u32()?, cursor.u32()?);
        match (kind, version) {
            (0, _) => cursor.skip(8).map(|()| None),
            (3, _) => cursor.skip(8).map(|()| Some(Self::All)),
            (2, 1) => {
                cursor.skip(8)?;
                let (rank, blocks) = (rank(cursor)?, cursor.u32()? as usize);
                Self::of_blocks(cursor, rank, blocks, 4).map(Some)
            }
            (2, 2) => {
                cursor.skip(5)?;
                let rank = rank(cursor)?;
                Self::of_patterns(cursor, rank, 8).map(Some)
            }
            (2, 3) => {
                let flags = cursor.u8()?;
                let size = usize::from(cursor.u8()?);
                let rank = rank(cursor)?;
                if flags & 1 != 0 {
                    return Self::of_patterns(cursor, rank, size).map(Some);
                }
                let blocks = usize::try_from(cursor.uint(size)?).unwrap_or(usize::MAX);
                Self::of_blocks(cursor, rank, blocks, size).map(Some)
            }
            (1, _) => Err(Error::Unsupported("a virtual dataset of single points".to_owned())),
            _ => Err(Error::Malformed("a selection")),
        }
    }

    fn of_patterns(cursor: &mut Cursor<'_>, rank: usize, size: usize) -> Result<Self> {
        let unlimited = if size < 8 { (1 << (8 * size)) - 1 } else { UNLIMITED };
        let mut number = || cursor.uint(size).map(|value| if value == unlimited { UNLIMITED } else { value });
        let mut pattern =
            || Ok(Pattern { start: number()?, stride: number()?, count: number()?, block: number()? });
        (0..rank).map(|_| pattern()).collect::<Result<Vec<_>>>().map(Self::Pattern)
    }

    /// Blocks by their first and last elements; only those that form a pattern along one dimension are of use.
    fn of_blocks(cursor: &mut Cursor<'_>, rank: usize, blocks: usize, size: usize) -> Result<Self> {
        let irregular = || Error::Unsupported("a virtual dataset of an irregular selection".to_owned());
        let mut patterns: Vec<Pattern> = Vec::new();
        if blocks == 0 || blocks > MAX_BLOCKS {
            return Err(Error::Malformed("a selection"));
        }
        for number in 0..blocks as u64 {
            let starts = (0..rank).map(|_| cursor.uint(size)).collect::<Result<Vec<_>>>()?;
            let ends = (0..rank).map(|_| cursor.uint(size)).collect::<Result<Vec<_>>>()?;
            for (dim, (start, end)) in starts.into_iter().zip(ends).enumerate() {
                let block =
                    end.checked_sub(start).and_then(|len| len.checked_add(1)).ok_or_else(irregular)?;
                let Some(pattern) = patterns.get_mut(dim) else {
                    patterns.push(Pattern { start, stride: block, count: 1, block });
                    continue;
                };
                if pattern.start == start && pattern.count == 1 && pattern.block == block {
                    continue;
                }
                if pattern.count == 1 {
                    pattern.stride = start.checked_sub(pattern.start).ok_or_else(irregular)?;
                }
                let expected =
                    pattern.stride.checked_mul(number).and_then(|at| at.checked_add(pattern.start));
                if pattern.count != number || expected != Some(start) || pattern.block != block {
                    return Err(irregular());
                }
                pattern.count += 1;
            }
        }
        // Blocks that move along two dimensions at once are a diagonal.
        if patterns.iter().filter(|pattern| pattern.count > 1).count() > 1 {
            return Err(irregular());
        }
        Ok(Self::Pattern(patterns))
    }
}

fn rank(cursor: &mut Cursor<'_>) -> Result<usize> {
    let rank = cursor.u32()? as usize;
    if rank == 0 || rank > MAX_RANK { Err(Error::Malformed("a selection")) } else { Ok(rank) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn parse(bytes: &[u8]) -> Result<Option<Selection>> {
        Selection::parse(&mut Cursor::new(bytes, "a test"))
    }

    #[test]
    fn blocks_that_follow_a_stride_are_a_pattern() {
        // Frames 1, 3 and 5 of a table.
        let bytes = words(&[2, 1, 0, 0, 1, 3, 1, 1, 3, 3, 5, 5]);
        let pattern = Pattern { start: 1, stride: 2, count: 3, block: 1 };
        assert_eq!(parse(&bytes).unwrap(), Some(Selection::Pattern(vec![pattern])));
        assert_eq!(
            [0, 1, 2, 3, 5, 7].map(|at| pattern.number_of(at)),
            [None, Some(0), None, Some(1), Some(2), None]
        );
        assert_eq!([0, 1, 2].map(|number| pattern.position_of(number)), [1, 3, 5]);
        assert_eq!(pattern.within(6), Some(pattern));
        assert_eq!(pattern.within(5), None);
        assert!(parse(&words(&[2, 1, 0, 0, 1, 3, 1, 1, 3, 3, 6, 6])).is_err());
        assert!(parse(&words(&[2, 1, 0, 0, 1, u32::MAX, 1, 1])).is_err());
        assert!(parse(&words(&[2, 1, 0, 0, 99, 1])).is_err());
    }

    #[test]
    fn unlimited_patterns_end_with_the_dataset() {
        let growing = Pattern { start: 2, stride: 4, count: UNLIMITED, block: 1 };
        assert_eq!(growing.within(11).map(Pattern::len), Some(3));
        assert_eq!(growing.within(2).map(Pattern::len), None);
        assert_eq!(Pattern { start: 0, stride: u64::MAX, count: u64::MAX - 1, block: 9 }.within(10), None);
    }
}
