//! Evicts new keys that are not requested again first, and moves nothing on a hit.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

use crate::eviction::Eviction;
use crate::eviction::structures::slab::{List, Slab, Slot};

/// SIEVE (Zhang et al., NSDI 2024): a hand walks from the oldest key to the newest and takes the first key
/// that was not used since the hand last passed. A hit sets one bit. Every operation takes O(1); eviction is
/// amortised.
#[derive(Debug, Default)]
pub struct Sieve<K> {
    keys: Slab<K, Entry>,
    by_age: List,
    /// The position of the hand; `None` is before the oldest.
    hand: Option<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    is_used: bool,
}

impl<K: Copy + Eq + Hash + Debug> Eviction<K> for Sieve<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let is_used = false;
        let slot = self.keys.insert(key, Entry { bytes, is_used });
        self.keys.link_newest(&mut self.by_age, slot);
    }

    fn touch(&mut self, key: &K) {
        if let Some(slot) = self.keys.slot(key) {
            self.keys[slot].is_used = true;
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let slot = self.keys.slot(key)?;
        if self.hand == Some(slot) {
            self.hand = self.keys.newer(self.by_age, slot);
        }
        self.keys.unlink(&mut self.by_age, slot);
        Some(self.keys.remove(slot).1.bytes)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        // The first round clears every bit, the second finds an evictable key if there is one.
        for _ in 0..2 * self.keys.len() {
            let slot = self.hand.or(self.by_age.oldest())?;
            let (key, was_used) = (self.keys.key(slot), std::mem::take(&mut self.keys[slot].is_used));
            if !was_used && may_leave(&key) {
                self.hand = Some(slot);
                return Some(key);
            }
            self.hand = self.keys.newer(self.by_age, slot);
        }
        None
    }

    fn contains(&self, key: &K) -> bool {
        self.keys.contains(key)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn compare(&self, one: &K, other: &K) -> Ordering {
        let is_used = |key| self.keys.slot(key).map(|slot| self.keys[slot].is_used);
        is_used(one).cmp(&is_used(other))
    }
}

#[cfg(test)]
mod tests {
    use super::{Eviction, Sieve};
    use crate::eviction::tests::{holding, leaving_order};

    #[test]
    fn the_hand_goes_on_where_it_stopped() {
        // The example of the paper's figure: used keys are passed over and stay where they are.
        let mut policy = holding::<Sieve<_>>([1, 2, 3, 4]);
        for key in [1, 3] {
            policy.touch(&key);
        }
        assert_eq!(policy.evict(&mut |_| true), Some((2, 1)));
        policy.insert(5, 1);
        assert_eq!(
            policy.evict(&mut |_| true),
            Some((4, 1)),
            "3 was used, 1 is behind the hand"
        );
        assert_eq!(leaving_order(policy), [5, 1, 3]);
    }

    #[test]
    fn the_hand_survives_the_removal_of_where_it_stands() {
        let mut policy = holding::<Sieve<_>>([1, 2, 3]);
        policy.evict(&mut |_| true);
        policy.remove(&2);
        assert_eq!(leaving_order(policy), [3]);
    }
}
