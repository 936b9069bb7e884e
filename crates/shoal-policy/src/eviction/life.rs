//! Evicts blocks of incomplete objects before blocks of complete ones.

use std::cmp::Reverse;
use std::fmt::Debug;
use std::hash::Hash;

use super::Eviction;
use super::structures::grouped::{Grouped, WholeState};
use crate::PartOf;

/// LIFE of PACMan (Ananthanarayanan et al., NSDI 2012, 4.2): a job that reads all blocks of an input in
/// parallel is as fast as its slowest read, so an input is worth keeping only if all of it is cached. The
/// largest incomplete object is evicted first, then the largest complete one. Within an object the least
/// recently used block is evicted. O(log n) for n objects.
///
/// PACMan also evicts objects unused for longer than a time window before all others. Here there is no
/// window.
///
/// An object is complete when the number of its held blocks equals the number reported to
/// [`Eviction::observe`]; without a report it counts as incomplete. Only blocks on this node count, whereas
/// PACMan's coordinator tracks completeness across nodes.
#[derive(Debug, Default)]
pub struct Life<K: PartOf> {
    /// Each block with its bytes.
    blocks: Grouped<K, u64, Input>,
}

/// The number of blocks of an object; 0 if unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Input(u32);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Rank {
    is_complete: bool,
    blocks: Reverse<u32>,
}

impl WholeState<u64> for Input {
    type Rank = Rank;

    fn rank(&self, held: u32, _oldest: &u64) -> Rank {
        Rank {
            is_complete: self.0 != 0 && held >= self.0,
            blocks: Reverse(self.0.max(held)),
        }
    }
}

impl<K: Copy + Eq + Hash + Debug + PartOf> Eviction<K> for Life<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        self.blocks.insert(key, bytes);
    }

    fn touch(&mut self, key: &K) {
        self.blocks.touch(key, |_| ());
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.blocks.remove(key)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let parts = self.blocks.least_first().flat_map(|(_, parts)| parts);
        parts.map(|(key, _)| key).find(may_leave)
    }

    fn observe(&mut self, key: &K, blocks: u32) {
        self.blocks.change(&key.whole(), |input| *input = Input(blocks));
    }

    fn contains(&self, key: &K) -> bool {
        self.blocks.contains(key)
    }

    fn len(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Eviction, Life};
    use crate::eviction::tests::leaving_order;

    /// Holds blocks of objects of four keys each: 0 to 3 is the first, 4 to 7 the second.
    fn holding(keys: &[u32], blocks_of_objects: &[u32]) -> Life<u32> {
        let mut policy = Life::default();
        for &key in keys {
            policy.insert(key, 1);
        }
        for (object, &blocks) in (0..).zip(blocks_of_objects) {
            policy.observe(&(object * 4), blocks);
        }
        policy
    }

    #[test]
    fn incomplete_before_complete_and_large_before_small() {
        let policy = holding(&[0, 1, 4, 5, 8, 9, 10, 12], &[2, 4, 3, 3]);
        assert_eq!(leaving_order(policy), [4, 5, 12, 8, 9, 10, 0, 1]);
    }

    #[test]
    fn a_block_that_leaves_takes_its_object_along() {
        let mut policy = holding(&[0, 1, 4, 5, 6], &[2, 3]);
        policy.remove(&0);
        assert_eq!(
            leaving_order(policy),
            [1, 4, 5, 6],
            "half of an object helps nobody"
        );
    }

    #[test]
    fn an_object_of_unknown_size_is_incomplete() {
        assert_eq!(leaving_order(holding(&[0, 4, 5], &[1])), [4, 5, 0]);
    }
}
