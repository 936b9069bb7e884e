//! Three queues: a small one for new keys, a main one for keys that were used again, and ghosts of the
//! others.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

use crate::eviction::Eviction;
use crate::eviction::structures::slab::{List, Slab, Slot};

/// S3-FIFO (Yang et al., SOSP 2023). New keys enter a small queue. Keys used twice in it move to the main
/// queue; the others are evicted and remembered as ghosts. A ghost that returns enters the main queue at
/// once. The main queue reinserts a used key for another round. Every operation takes O(1); eviction is
/// amortised.
///
/// The paper gives the small queue a tenth of the capacity. A policy here does not know the capacity and
/// takes a tenth of the bytes held, which is the same when the cache is full. It keeps up to nine ghosts per
/// ten held keys.
pub type S3Fifo<K> = S3FifoQueues<K, 1>;

/// The queues of [`S3Fifo`]. An owner of the held keys, such as [`Duel`](crate::eviction::Duel), may keep
/// another order of them in a second chain.
#[derive(Debug, Default)]
pub struct S3FifoQueues<K, const CHAINS: usize> {
    pub(super) keys: Slab<K, Entry, CHAINS>,
    /// The small queue and the main one.
    queues: [Queue; 2],
    ghosts: Slab<K, ()>,
    by_departure: List,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) bytes: u64,
    uses: u8,
    is_in_main: bool,
}

#[derive(Debug, Default)]
struct Queue {
    list: List,
    bytes: u64,
}

/// The places of the two queues.
const SMALL: usize = 0;
const MAIN: usize = 1;

/// Uses beyond this number are not counted: two bits.
const USES_MAX: u8 = 3;

/// The number of uses in the small queue that lead to the main one.
const USES_PROVEN: u8 = 2;

impl<K: Copy + Eq + Hash + Debug, const CHAINS: usize> Eviction<K> for S3FifoQueues<K, CHAINS> {
    fn insert(&mut self, key: K, bytes: u64) {
        self.add(key, bytes);
    }

    fn touch(&mut self, key: &K) {
        if let Some(slot) = self.keys.slot(key) {
            self.used(slot);
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.forget_ghost(key);
        let slot = self.keys.slot(key)?;
        Some(self.remove_slot(slot))
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        self.least(may_leave).map(|slot| self.keys.key(slot))
    }

    fn contains(&self, key: &K) -> bool {
        self.keys.contains(key)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    /// Orders unproven keys before proven ones, and then by number of uses.
    fn compare(&self, one: &K, other: &K) -> Ordering {
        let rank = |key| {
            let entry = self.keys[self.keys.slot(key)?];
            Some((entry.is_in_main || entry.uses >= USES_PROVEN, entry.uses))
        };
        rank(one).cmp(&rank(other))
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        let slot = self.keys.slot(key)?;
        Some(self.evict_slot(slot))
    }
}

impl<K: Copy + Eq + Hash, const CHAINS: usize> S3FifoQueues<K, CHAINS> {
    /// Adds an absent key.
    pub(super) fn add(&mut self, key: K, bytes: u64) -> Slot {
        let is_in_main = self.forget_ghost(&key);
        let entry = Entry {
            bytes,
            uses: 0,
            is_in_main,
        };
        let slot = self.keys.insert(key, entry);
        self.enter(slot);
        slot
    }

    pub(super) fn used(&mut self, slot: Slot) {
        let uses = &mut self.keys[slot].uses;
        *uses = USES_MAX.min(*uses + 1);
    }

    /// The slot of the next victim, among the keys that may leave.
    pub(super) fn least(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<Slot> {
        let [small, main] = &self.queues;
        let small_is_due = small.bytes >= (small.bytes + main.bytes) / 10;
        (!small_is_due)
            .then(|| self.least_of_main(may_leave))
            .flatten()
            .or_else(|| self.least_of_small(may_leave))
            .or_else(|| self.least_of_main(may_leave))
    }

    /// Removes the key of `slot`, and keeps a ghost of it if it was unproven.
    pub(super) fn evict_slot(&mut self, slot: Slot) -> u64 {
        let ghosts_max = self.keys.len() * 9 / 10;
        let (key, is_in_main) = (self.keys.key(slot), self.keys[slot].is_in_main);
        let bytes = self.remove_slot(slot);
        if !is_in_main {
            self.remember_ghost(key, ghosts_max);
        }
        bytes
    }

    /// Removes the key of `slot` without leaving a ghost.
    pub(super) fn remove_slot(&mut self, slot: Slot) -> u64 {
        self.leave(slot);
        self.keys.remove(slot).1.bytes
    }

    /// Removes the ghost of `key`; returns true if it had one, that is, if it was evicted unproven.
    pub(super) fn forget_ghost(&mut self, key: &K) -> bool {
        let Some(slot) = self.ghosts.slot(key) else {
            return false;
        };
        self.ghosts.unlink(&mut self.by_departure, slot);
        self.ghosts.remove(slot);
        true
    }

    /// The oldest key of the small queue that may leave. Moves proven keys on the way to the main queue.
    fn least_of_small(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<Slot> {
        let mut next = self.queues[SMALL].list.oldest();
        while let Some(slot) = next {
            next = self.keys.newer(self.queues[SMALL].list, slot);
            if self.keys[slot].uses >= USES_PROVEN {
                self.leave(slot);
                self.keys[slot].uses = 0;
                self.keys[slot].is_in_main = true;
                self.enter(slot);
            } else if may_leave(&self.keys.key(slot)) {
                return Some(slot);
            }
        }
        None
    }

    /// The oldest unused key of the main queue that may leave. Used keys on the way are reinserted with one
    /// use less, so the walk meets them again.
    fn least_of_main(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<Slot> {
        let mut next = self.queues[MAIN].list.oldest();
        while let Some(slot) = next {
            if self.keys[slot].uses > 0 {
                self.keys[slot].uses -= 1;
                next = self.keys.newer(self.queues[MAIN].list, slot).or(Some(slot));
                self.keys.move_newest(&mut self.queues[MAIN].list, slot);
            } else if may_leave(&self.keys.key(slot)) {
                return Some(slot);
            } else {
                next = self.keys.newer(self.queues[MAIN].list, slot);
            }
        }
        None
    }

    fn enter(&mut self, slot: Slot) {
        let queue = &mut self.queues[usize::from(self.keys[slot].is_in_main)];
        queue.bytes += self.keys[slot].bytes;
        self.keys.link_newest(&mut queue.list, slot);
    }

    fn leave(&mut self, slot: Slot) {
        let queue = &mut self.queues[usize::from(self.keys[slot].is_in_main)];
        queue.bytes -= self.keys[slot].bytes;
        self.keys.unlink(&mut queue.list, slot);
    }

    fn remember_ghost(&mut self, key: K, ghosts_max: usize) {
        let slot = self.ghosts.insert(key, ());
        self.ghosts.link_newest(&mut self.by_departure, slot);
        while self.ghosts.len() > ghosts_max {
            let oldest = self
                .by_departure
                .oldest()
                .expect("a ghost too many has an oldest");
            self.ghosts.unlink(&mut self.by_departure, oldest);
            self.ghosts.remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Eviction, S3Fifo};
    use crate::eviction::tests::holding;

    fn evict(policy: &mut S3Fifo<u32>) -> u32 {
        policy.evict(&mut |_| true).expect("somebody is there").0
    }

    #[test]
    fn two_uses_prove_a_key_and_one_does_not() {
        let mut policy = holding::<S3Fifo<_>>(0..10);
        for key in [0, 0, 1] {
            policy.touch(&key);
        }
        assert_eq!(evict(&mut policy), 1);
        assert!(policy.contains(&0) && policy.keys[policy.keys.slot(&0).unwrap()].is_in_main);
    }

    #[test]
    fn a_ghost_that_returns_outlives_newcomers() {
        let mut policy = holding::<S3Fifo<_>>(0..10);
        assert_eq!(evict(&mut policy), 0);
        policy.insert(0, 1);
        policy.insert(10, 1);
        let left: Vec<_> = (0..11).map(|_| evict(&mut policy)).collect();
        assert_eq!(left, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0]);
    }

    #[test]
    fn an_invalidated_key_leaves_no_ghost() {
        let mut policy = holding::<S3Fifo<_>>(0..10);
        assert_eq!(evict(&mut policy), 0);
        policy.remove(&0);
        policy.insert(0, 1);
        policy.insert(10, 1);
        let left: Vec<_> = (0..11).map(|_| evict(&mut policy)).collect();
        assert_eq!(left, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 10]);
    }

    #[test]
    fn the_main_queue_gives_way_when_the_small_one_is_small() {
        let mut policy = holding::<S3Fifo<_>>(0..20);
        (0..19).chain(0..19).for_each(|key| policy.touch(&key));
        assert_eq!(evict(&mut policy), 19, "the others have moved on");
        policy.insert(20, 1);
        assert_eq!(evict(&mut policy), 0, "one of twenty is not a tenth");
    }
}
