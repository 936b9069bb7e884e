//! Evicts blocks of incomplete objects before blocks of complete ones.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::Duration;

use super::Eviction;
use super::structures::grouped::{Grouped, WholeState};
use crate::PartOf;

/// LIFE of PACMan (Ananthanarayanan et al., NSDI 2012, 4.2): a job that reads all blocks of an input in
/// parallel is as fast as its slowest read, so an input is worth keeping only if all of it is cached. Objects
/// unused for longer than a time window are evicted first, the longest unused one before the others; then the
/// largest incomplete object; then the largest complete one. Within an object the least recently used block
/// is evicted. O(log n) for n objects.
///
/// An object is complete when the number of its held blocks equals the number reported to [`Life::observe`];
/// without a report it counts as incomplete. Only blocks on this node count, whereas PACMan's coordinator
/// tracks completeness across nodes.
#[derive(Debug)]
pub struct Life<K: PartOf> {
    /// Each block with its bytes.
    blocks: Grouped<K, u64, Input>,
    /// The uses of objects in time order. Only the last use of an object counts; outdated ones are dropped
    /// when they are the majority. Empty without a window.
    uses: VecDeque<(Duration, K::Whole)>,
    window: Duration,
    now: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Input {
    /// The number of blocks of the object; 0 if unknown.
    blocks: u32,
    used_at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Rank {
    is_complete: bool,
    blocks: Reverse<u32>,
}

impl WholeState<u64> for Input {
    type Rank = Rank;

    fn rank(&self, held: u32, _oldest: &u64) -> Rank {
        Rank {
            is_complete: self.blocks != 0 && held >= self.blocks,
            blocks: Reverse(self.blocks.max(held)),
        }
    }
}

impl<K: Copy + Eq + Hash + PartOf> Life<K> {
    /// Creates an empty policy. Objects unused for longer than `window` are evicted first, whatever their
    /// size; [`Duration::MAX`] disables the window.
    pub fn new(window: Duration) -> Self {
        Self {
            blocks: Grouped::default(),
            uses: VecDeque::new(),
            window,
            now: Duration::ZERO,
        }
    }

    /// Records that `whole` has `blocks` blocks in all. Ignored when none of its blocks is held.
    pub fn observe(&mut self, whole: &K::Whole, blocks: u32) {
        self.blocks.change(whole, |input, _| input.blocks = blocks);
    }

    /// Records that `whole` is used now; `before` is the time of its previous use, if any of it was held.
    fn used(&mut self, whole: K::Whole, before: Option<Duration>) {
        if before == Some(self.now) || self.window == Duration::MAX {
            return;
        }
        self.uses.push_back((self.now, whole));
        if self.uses.len() > USES_MIN + 2 * self.blocks.wholes() {
            let blocks = &self.blocks;
            self.uses.retain(|last_use| is_last(blocks, last_use));
        }
    }

    fn first_to_leave(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let unused = self
            .uses
            .iter()
            .take_while(|(used_at, _)| used_at.saturating_add(self.window) < self.now)
            .filter(|last_use| is_last(&self.blocks, last_use))
            .filter_map(|(_, whole)| self.blocks.slot(whole));
        unused
            .chain(self.blocks.least_first().map(|(_, whole)| whole))
            .flat_map(|whole| self.blocks.parts_of(whole))
            .map(|(block, _)| block)
            .find(|block| may_leave(block))
    }
}

/// Outdated uses are not searched for below this number of uses.
const USES_MIN: usize = 16;

/// Returns true if this was the last use of the object and a block of it is still held.
fn is_last<K: Copy + Eq + Hash + PartOf>(
    blocks: &Grouped<K, u64, Input>,
    (used_at, whole): &(Duration, K::Whole),
) -> bool {
    blocks.state(whole).is_some_and(|input| input.used_at == *used_at)
}

impl<K: Copy + Eq + Hash + PartOf> Eviction<K> for Life<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let (now, mut before) = (self.now, None);
        self.blocks.insert(key, bytes, |input, held| {
            let used_at = std::mem::replace(&mut input.used_at, now);
            before = (held > 1).then_some(used_at);
        });
        self.used(key.whole(), before);
    }

    fn touch(&mut self, key: &K) {
        let (now, mut before) = (self.now, None);
        self.blocks.touch(key, |_, input| {
            before = Some(std::mem::replace(&mut input.used_at, now));
        });
        if before.is_some() {
            self.used(key.whole(), before);
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.blocks.remove(key, |_, _| ())
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        let key = self.first_to_leave(may_leave)?;
        self.remove(&key).map(|bytes| (key, bytes))
    }

    fn advance(&mut self, now: Duration) {
        self.now = now;
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
    use std::time::Duration;

    use super::{Eviction, Life};
    use crate::eviction::tests::leaving_order;

    const WINDOW: Duration = Duration::from_mins(10);

    /// Holds blocks of objects of four keys each: 0 to 3 is the first, 4 to 7 the second.
    fn holding(keys: &[u32], blocks_of_objects: &[u32]) -> Life<u32> {
        let mut policy = Life::new(WINDOW);
        for &key in keys {
            policy.insert(key, 1);
        }
        for (object, &blocks) in (0..).zip(blocks_of_objects) {
            policy.observe(&object, blocks);
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
    fn a_block_unused_for_a_window_leaves_first() {
        let mut policy = holding(&[0, 4], &[1, 2]);
        policy.advance(WINDOW + Duration::from_secs(1));
        policy.touch(&4);
        assert_eq!(leaving_order(policy), [0, 4]);
        let mut policy = holding(&[0, 4], &[1, 2]);
        policy.advance(WINDOW);
        policy.touch(&4);
        assert_eq!(leaving_order(policy), [4, 0], "the window is not over yet");
    }

    #[test]
    fn an_object_of_unknown_size_is_incomplete() {
        assert_eq!(leaving_order(holding(&[0, 4, 5], &[1])), [4, 5, 0]);
    }
}
