//! Keys with their sizes, each with a rank: the common part of LFU, LFUDA, GWF and Belady.

use std::hash::Hash;

use super::order::Order;
use super::slab::{Slab, Slot};

/// The held keys ordered by rank; keys of equal rank in the order in which they reached it. Changing a rank
/// and removing the least take O(log d) for d different ranks.
#[derive(Debug, Default)]
pub(crate) struct Ranked<K, R> {
    keys: Slab<K, Entry>,
    order: Order<R>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    /// The place of its rank in the order.
    place: Slot,
}

impl<K: Copy + Eq + Hash, R: Copy + Ord + Hash> Ranked<K, R> {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.keys.contains(key)
    }

    pub(crate) fn insert(&mut self, key: K, bytes: u64, rank: R) {
        let slot = self.keys.insert(key, Entry { bytes, place: 0 });
        self.keys[slot].place = self.order.insert(&mut self.keys, rank, slot);
    }

    pub(crate) fn rank(&self, key: &K) -> Option<R> {
        self.keys
            .slot(key)
            .map(|slot| self.order.rank(self.keys[slot].place))
    }

    pub(crate) fn bytes(&self, key: &K) -> Option<u64> {
        self.keys.slot(key).map(|slot| self.keys[slot].bytes)
    }

    /// Replaces the rank of a held key by `next(rank)`; returns the old and the new rank.
    pub(crate) fn rerank(&mut self, key: &K, next: impl FnOnce(R) -> R) -> Option<(R, R)> {
        let slot = self.keys.slot(key)?;
        let place = self.keys[slot].place;
        let before = self.order.rank(place);
        let after = next(before);
        self.order.remove(&mut self.keys, place, slot);
        self.keys[slot].place = self.order.insert(&mut self.keys, after, slot);
        Some((before, after))
    }

    /// Removes `key`; returns its size and its rank.
    pub(crate) fn remove(&mut self, key: &K) -> Option<(u64, R)> {
        let slot = self.keys.slot(key)?;
        let Entry { bytes, place } = self.keys[slot];
        let rank = self.order.rank(place);
        self.order.remove(&mut self.keys, place, slot);
        self.keys.remove(slot);
        Some((bytes, rank))
    }

    /// Returns the key of the least rank among those that `may_leave` allows.
    pub(crate) fn least(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let mut keys = self
            .order
            .least_first(&self.keys)
            .map(|(_, slot)| self.keys.key(slot));
        keys.find(may_leave)
    }

    /// The keys that `may_leave` allows, with their ranks and sizes, least rank first.
    pub(crate) fn least_first(
        &self,
        may_leave: &mut dyn FnMut(&K) -> bool,
    ) -> impl Iterator<Item = (K, R, u64)> {
        self.order
            .least_first(&self.keys)
            .map(|(rank, slot)| (self.keys.key(slot), rank, self.keys[slot].bytes))
            .filter(|(key, ..)| may_leave(key))
    }
}
