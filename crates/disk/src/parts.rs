//! Pieces cut into requests.

/// Bytes of a request: with 16 at once the fastest of 128 KiB to 8 MiB on a virtual disk.
const PART_BYTES: usize = 1 << 20;

/// One request: a stretch of the file and the memory for it.
pub(crate) struct Part<'a> {
    /// Around the page cache.
    pub(crate) direct: bool,
    pub(crate) offset: u64,
    pub(crate) bytes: &'a mut [u8],
    /// Bytes that are there already.
    pub(crate) done: usize,
}

impl Part<'_> {
    pub(crate) fn is_done(&self) -> bool {
        self.done == self.bytes.len()
    }

    /// What a read that gave `found` bytes means: whether it went on, or met the end of the file.
    ///
    /// What is left of a short read need not be aligned any more.
    pub(crate) fn advance(&mut self, found: usize) -> bool {
        self.done = self.bytes.len().min(self.done + found);
        self.direct &= self.is_done();
        found > 0 || self.is_done()
    }
}

/// Cuts a piece; with an alignment its aligned middle goes around the page cache, if memory and file are aligned alike.
pub(crate) fn cut<'a>(offset: u64, bytes: &'a mut [u8], alignment: Option<usize>, parts: &mut Vec<Part<'a>>) {
    let address = bytes.as_ptr() as usize;
    let (head, middle) =
        alignment.map_or((bytes.len(), 0), |unit| middle(offset, address, bytes.len(), unit));
    let (head, rest) = bytes.split_at_mut(head);
    let (middle, tail) = rest.split_at_mut(middle);
    let mut at = offset;
    for (direct, stretch) in [(false, head), (true, middle), (false, tail)] {
        for bytes in stretch.chunks_mut(PART_BYTES) {
            let offset = at;
            at = at.saturating_add(bytes.len() as u64);
            parts.push(Part { direct, offset, bytes, done: 0 });
        }
    }
}

/// Bytes before the aligned middle of a piece, and of the middle.
fn middle(offset: u64, address: usize, len: usize, unit: usize) -> (usize, usize) {
    let beyond = (offset % unit as u64) as usize;
    let head = (unit - beyond) % unit;
    if address % unit != beyond || head >= len {
        return (len, 0);
    }
    (head, (len - head) / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_aligned_in_file_and_memory() {
        assert_eq!(middle(0, 8192, 10_000, 4096), (0, 8192));
        assert_eq!(middle(100, 4196, 10_000, 4096), (3996, 4096));
        assert_eq!(middle(2048, 4096, 8192, 512), (0, 8192));
        assert_eq!(middle(2048, 4096, 8192, 4096), (8192, 0), "memory and file do not fit");
        assert_eq!(middle(100, 4196, 1000, 4096), (1000, 0), "nothing of it is aligned");
    }

    #[test]
    fn parts_cover_a_piece_in_order() {
        let mut bytes = vec![0; 3 * PART_BYTES + 77];
        let len = bytes.len();
        for alignment in [None, Some(1), Some(512)] {
            let mut parts = Vec::new();
            cut(5, &mut bytes, alignment, &mut parts);
            let mut at = 5;
            for part in &parts {
                assert_eq!(part.offset, at);
                at += part.bytes.len() as u64;
            }
            assert_eq!(at, 5 + len as u64);
        }
    }
}
