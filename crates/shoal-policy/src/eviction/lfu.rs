//! Evicts the least frequently used key.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

use super::ranked::Ranked;
use super::{Eviction, Ranking};

/// Evicts the key with the fewest uses since its insertion; among equals, the key that reached its count
/// first.
///
/// Counts are forgotten when a key leaves and never age, so a key that was popular once stays.
/// [`super::Lfuda`] fixes that.
#[derive(Debug)]
pub struct Lfu<K> {
    by_uses: Ranked<K, u64>,
}

impl<K> Default for Lfu<K> {
    fn default() -> Self {
        Self {
            by_uses: Ranked::default(),
        }
    }
}

impl<K: Copy + Eq + Hash> Eviction<K> for Lfu<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        self.by_uses.insert(key, bytes, 1);
    }

    fn touch(&mut self, key: &K) {
        self.by_uses.rerank(key, |uses| uses + 1);
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.by_uses.remove(key).map(|(bytes, _)| bytes)
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        self.by_uses
            .take_least(may_leave)
            .map(|(key, bytes, _)| (key, bytes))
    }

    fn contains(&self, key: &K) -> bool {
        self.by_uses.contains(key)
    }

    fn len(&self) -> usize {
        self.by_uses.len()
    }
}

impl<K: Copy + Eq + Hash + Debug> Ranking<K> for Lfu<K> {
    fn compare(&self, one: &K, other: &K) -> Ordering {
        self.by_uses.rank(one).cmp(&self.by_uses.rank(other))
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        self.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::{Eviction, Lfu};
    use crate::eviction::conformance::{holding, leaving_order};

    #[test]
    fn the_least_used_leaves_first_and_the_older_of_equals() {
        let mut policy = holding::<Lfu<_>>([1, 2, 3, 4]);
        for key in [1, 1, 4, 2] {
            policy.touch(&key);
        }
        assert_eq!(leaving_order(policy), [3, 4, 2, 1]);
    }

    #[test]
    fn a_key_that_returns_begins_anew() {
        let mut policy = holding::<Lfu<_>>([1, 2]);
        (0..9).for_each(|_| policy.touch(&1));
        policy.remove(&1);
        policy.touch(&2);
        policy.insert(1, 1);
        assert_eq!(leaving_order(policy), [1, 2]);
    }
}
