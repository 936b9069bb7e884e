//! Evicts the least recently used key.

use std::fmt::Debug;
use std::hash::Hash;

use crate::eviction::Eviction;
use crate::eviction::structures::slab::{List, Slab};

/// Least recently used, every operation in O(1).
#[derive(Debug)]
pub struct Lru<K> {
    /// Each key with its bytes.
    keys: Slab<K, u64>,
    by_use: List,
}

impl<K> Default for Lru<K> {
    fn default() -> Self {
        Self {
            keys: Slab::default(),
            by_use: List::default(),
        }
    }
}

impl<K: Copy + Eq + Hash> Lru<K> {
    /// All keys, least recently used first.
    pub fn oldest_first(&self) -> impl Iterator<Item = K> {
        self.keys
            .oldest_first(self.by_use)
            .map(|slot| self.keys.key(slot))
    }
}

impl<K: Copy + Eq + Hash + Debug> Eviction<K> for Lru<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let slot = self.keys.insert(key, bytes);
        self.keys.link_newest(&mut self.by_use, slot);
    }

    fn touch(&mut self, key: &K) {
        if let Some(slot) = self.keys.slot(key) {
            self.keys.move_newest(&mut self.by_use, slot);
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let slot = self.keys.slot(key)?;
        self.keys.unlink(&mut self.by_use, slot);
        Some(self.keys.remove(slot).1)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        self.oldest_first().find(may_leave)
    }

    fn contains(&self, key: &K) -> bool {
        self.keys.contains(key)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Eviction, Lru};
    use crate::eviction::tests::{holding, leaving_order};

    #[test]
    fn untouched_keys_leave_in_the_order_they_came() {
        assert_eq!(leaving_order(holding::<Lru<_>>([3, 1, 2])), [3, 1, 2]);
    }

    #[test]
    fn keys_are_listed_in_the_order_in_which_they_would_leave() {
        let mut policy = holding::<Lru<_>>([1, 2, 3]);
        policy.touch(&1);
        let listed: Vec<_> = policy.oldest_first().collect();
        assert_eq!(listed, [2, 3, 1]);
        assert_eq!(leaving_order(policy), listed);
    }

    #[test]
    fn a_touched_key_leaves_last_wherever_it_stood() {
        for (touched, order) in [(1, [2, 3, 1]), (2, [1, 3, 2]), (3, [1, 2, 3])] {
            let mut policy = holding::<Lru<_>>([1, 2, 3]);
            policy.touch(&touched);
            assert_eq!(leaving_order(policy), order);
        }
    }

    #[test]
    fn a_key_that_may_not_leave_keeps_its_place() {
        let mut policy = holding::<Lru<_>>([1, 2, 3]);
        assert_eq!(policy.evict(&mut |&key| key != 1), Some((2, 1)));
        assert_eq!(leaving_order(policy), [1, 3]);
    }
}
