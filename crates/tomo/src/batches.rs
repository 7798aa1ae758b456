//! Projections in fixed batches by their number, whatever order they arrive in.
//!
//! Sums of floating-point numbers depend on their order. Because the batches are fixed and are added in
//! order, a volume has the same bits however its projections came.

use std::collections::BTreeMap;

use beamstream_buffer::Block;

/// Collects projections into batches and gives these out in order.
pub(crate) struct Batches {
    size: u64,
    /// Most projections that are held back for a batch that is not complete.
    window: usize,
    waiting: BTreeMap<u64, Vec<Block>>,
    held: usize,
    /// The next batch, where all before it were given out.
    next: u64,
    stragglers: u64,
}

impl Batches {
    /// Batches of `size` projections; at most `window` projections are held back.
    pub(crate) fn new(size: usize, window: usize) -> Self {
        Self { size: size.max(1) as u64, window, waiting: BTreeMap::new(), held: 0, next: 0, stragglers: 0 }
    }

    /// Adds a projection; gives the batches that are to be added now.
    pub(crate) fn add(&mut self, block: Block) -> Vec<Vec<Block>> {
        let batch = block.meta.projection / self.size;
        let mut ready = Vec::new();
        if batch < self.next {
            // Its batch was given up as incomplete: it is added by itself rather than lost.
            self.stragglers += 1;
            ready.push(vec![block]);
            return ready;
        }
        self.waiting.entry(batch).or_default().push(block);
        self.held += 1;
        while let Some(entry) = self.waiting.first_entry() {
            let first = *entry.key() == self.next;
            let complete = entry.get().len() as u64 >= self.size;
            if (first && complete) || self.held > self.window {
                self.next = *entry.key() + 1;
                let batch = sorted(entry.remove());
                self.held -= batch.len();
                ready.push(batch);
            } else {
                break;
            }
        }
        ready
    }

    /// Gives out all that is left, in order.
    pub(crate) fn finish(&mut self) -> Vec<Vec<Block>> {
        self.held = 0;
        std::mem::take(&mut self.waiting).into_values().map(sorted).collect()
    }

    /// Projections that wait for their batch.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Projections that came after their batch had been given up.
    pub(crate) fn stragglers(&self) -> u64 {
        self.stragglers
    }
}

fn sorted(mut batch: Vec<Block>) -> Vec<Block> {
    batch.sort_by_key(|block| block.meta.projection);
    batch
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamstream_buffer::Pool;
    use beamstream_core::{BlockMeta, ElementType, Format, FrameId, Role};

    fn run(numbers: &[u64], size: usize, window: usize) -> (Vec<Vec<u64>>, u64) {
        let format = Format::frame(ElementType::U8, 1, 1);
        let pool = Pool::host("p", 64, 1).unwrap();
        let mut batches = Batches::new(size, window);
        let mut given = Vec::new();
        for &number in numbers {
            let mut meta = BlockMeta::new(FrameId::new(number), Role::Projection);
            meta.projection = number;
            given.extend(batches.add(pool.lease(format).unwrap().freeze(meta)));
        }
        given.extend(batches.finish());
        let numbers =
            given.iter().map(|batch| batch.iter().map(|block| block.meta.projection).collect()).collect();
        (numbers, batches.stragglers())
    }

    #[test]
    fn the_order_of_arrival_does_not_matter() {
        let expected = (vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]], 0);
        assert_eq!(run(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 4, 16), expected);
        assert_eq!(run(&[9, 3, 4, 8, 1, 7, 6, 0, 5, 2], 4, 16), expected);
    }

    #[test]
    fn a_lost_projection_holds_nothing_up_for_long() {
        let (batches, stragglers) = run(&[0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1], 4, 6);
        assert_eq!(batches, [vec![0, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10, 11], vec![1]]);
        assert_eq!(stragglers, 1);
    }

    #[test]
    fn numbers_may_begin_anywhere() {
        let (batches, stragglers) = run(&[1000, 1001, 1002, 1003], 3, 64);
        assert_eq!(batches, [vec![1000, 1001], vec![1002, 1003]]);
        assert_eq!(stragglers, 0);
    }
}
