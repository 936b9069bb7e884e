//! Runs two policies side by side; the one that would have missed less recently chooses the victims.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

use super::s3_fifo::S3FifoQueues;
use crate::eviction::structures::slab::{List, Slot};
use crate::eviction::{Eviction, Lru, S3Fifo};
use crate::hash::hash;

/// A duel between LRU, which is best where recency predicts use, and S3-FIFO, which is best where popularity
/// predicts use and where much is read once. `docs/explanation/default-policy.md` explains the choice of
/// these two.
///
/// Both keep all held keys in their order. One key in eight is sampled. Two shadows, each with an eighth of
/// the room and no data, measure how much each policy would have missed on its own. The policy that missed
/// fewer bytes recently decides for the whole cache. One number between two bounds sums up the misses, as in
/// set dueling (Qureshi et al., *Adaptive Insertion Policies for High Performance Caching*, ISCA 2007). Every
/// operation takes O(1); eviction is amortised.
///
/// S3-FIFO remembers only the keys that it chose to evict: while LRU decides, the S3-FIFO of the whole cache
/// gets no new ghosts, but its shadow does.
#[derive(Debug, Default)]
pub struct Duel<K> {
    /// The held keys in S3-FIFO's order and, in the second chain, in LRU's, so that a use takes one look-up
    /// for both.
    s3_fifo: S3FifoQueues<K, 2>,
    by_use: List<1>,
    held_bytes: u64,
    /// The bytes held at the last eviction, which is the room there is; 0 before the first.
    room_bytes: u64,
    lru_alone: Shadow<Lru<K>>,
    s3_fifo_alone: Shadow<S3Fifo<K>>,
    /// Bytes by which LRU alone missed more than S3-FIFO alone.
    balance_bytes: i64,
}

/// One key in this many is sampled.
const SAMPLE: u64 = 8;

/// The balance is bounded by a shadow's room divided by this. After a change of workload, the other policy
/// decides once it has won back that many bytes.
const BALANCE: u64 = 4;

/// The keys that one policy alone would hold.
#[derive(Debug, Default)]
struct Shadow<P> {
    policy: P,
    bytes: u64,
}

impl<K: Copy + Eq + Hash + Debug> Eviction<K> for Duel<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let slot = self.s3_fifo.add(key, bytes);
        self.s3_fifo.keys.link_newest(&mut self.by_use, slot);
        self.held_bytes += bytes;
        if is_sampled(&key) {
            self.compare(key, bytes);
        }
    }

    fn touch(&mut self, key: &K) {
        let Some(slot) = self.s3_fifo.keys.slot(key) else {
            return;
        };
        self.s3_fifo.used(slot);
        self.s3_fifo.keys.move_newest(&mut self.by_use, slot);
        if is_sampled(key) {
            self.compare(*key, self.s3_fifo.keys[slot].bytes);
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        if is_sampled(key) {
            self.lru_alone.remove(key);
            self.s3_fifo_alone.remove(key);
        }
        self.s3_fifo.forget_ghost(key);
        let slot = self.s3_fifo.keys.slot(key)?;
        self.leave(slot);
        Some(self.s3_fifo.remove_slot(slot))
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        // Room is short at this size, even if no key may leave.
        self.room_bytes = self.held_bytes;
        if self.balance_bytes > 0 {
            return self.s3_fifo.victim(may_leave);
        }
        let keys = &self.s3_fifo.keys;
        keys.oldest_first(self.by_use)
            .map(|slot| keys.key(slot))
            .find(may_leave)
    }

    fn contains(&self, key: &K) -> bool {
        self.s3_fifo.keys.contains(key)
    }

    fn len(&self) -> usize {
        self.s3_fifo.keys.len()
    }

    fn compare(&self, one: &K, other: &K) -> Ordering {
        if self.balance_bytes > 0 {
            self.s3_fifo.compare(one, other)
        } else {
            Ordering::Equal
        }
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        let slot = self.s3_fifo.keys.slot(key)?;
        self.room_bytes = self.held_bytes;
        self.leave(slot);
        Some(if self.balance_bytes > 0 {
            self.s3_fifo.evict_slot(slot)
        } else {
            self.s3_fifo.remove_slot(slot)
        })
    }
}

impl<K: Copy + Eq + Hash + Debug> Duel<K> {
    /// Records a use of a sampled key in both shadows and compares their misses.
    fn compare(&mut self, key: K, bytes: u64) {
        let room_bytes = self.room_bytes / SAMPLE;
        let lru_misses = self.lru_alone.misses(key, bytes, room_bytes);
        let s3_fifo_misses = self.s3_fifo_alone.misses(key, bytes, room_bytes);
        let bytes = bytes.cast_signed();
        let difference_bytes = match (lru_misses, s3_fifo_misses) {
            (true, false) => bytes,
            (false, true) => -bytes,
            _ => 0,
        };
        let bound_bytes = (room_bytes / BALANCE).cast_signed();
        self.balance_bytes = (self.balance_bytes + difference_bytes).clamp(-bound_bytes, bound_bytes);
    }

    /// Unlinks a slot that is about to be removed from LRU's order.
    fn leave(&mut self, slot: Slot) {
        self.held_bytes -= self.s3_fifo.keys[slot].bytes;
        self.s3_fifo.keys.unlink(&mut self.by_use, slot);
    }
}

impl<P> Shadow<P> {
    /// Records a use of a key and returns whether it would have been missed. Before the first eviction there
    /// is room for all keys.
    fn misses<K: Copy>(&mut self, key: K, bytes: u64, room_bytes: u64) -> bool
    where
        P: Eviction<K>,
    {
        if self.policy.contains(&key) {
            self.policy.touch(&key);
            return false;
        }
        while room_bytes > 0
            && self.bytes + bytes > room_bytes
            && let Some((_, bytes)) = self.policy.evict(&mut |_| true)
        {
            self.bytes -= bytes;
        }
        self.policy.insert(key, bytes);
        self.bytes += bytes;
        true
    }

    fn remove<K>(&mut self, key: &K)
    where
        P: Eviction<K>,
    {
        self.bytes -= self.policy.remove(key).unwrap_or_default();
    }
}

fn is_sampled(key: &impl Hash) -> bool {
    // Other bits than those by which slabs find keys.
    (hash(key) >> 32).is_multiple_of(SAMPLE)
}

#[cfg(test)]
mod tests {
    use super::{Duel, Eviction};
    use crate::eviction::tests::misses;
    use crate::eviction::{Lru, S3Fifo};

    const CAPACITY: usize = 800;

    /// 200 keys are used twice in turn, then come 650 that are never used again, and so on.
    fn scans(first: u32) -> Vec<u32> {
        let key = move |n| if n < 400 { n % 200 } else { first + n };
        let round = |round: u32| (0..1_050).map(move |n| key(n) + if n < 400 { 0 } else { 1_050 * round });
        (0..60).flat_map(round).collect()
    }

    /// 600 keys are used five times each in turn, then 600 others, and so on.
    fn moves_on(first: u32) -> Vec<u32> {
        let phase = |phase: u32| (0..3_000).map(move |n| first + 600 * phase + n % 600);
        (0..40).flat_map(phase).collect()
    }

    fn misses_of_each(trace: &[u32]) -> [u32; 3] {
        [
            misses(Lru::default(), trace, CAPACITY),
            misses(S3Fifo::default(), trace, CAPACITY),
            misses(Duel::default(), trace, CAPACITY),
        ]
    }

    #[test]
    fn where_much_is_read_once_it_does_what_s3_fifo_does() {
        let [lru, s3_fifo, duel] = misses_of_each(&scans(1_000_000));
        assert!(
            s3_fifo * 10 < lru * 9,
            "the trace tells them apart: {lru}, {s3_fifo}"
        );
        assert!(duel - s3_fifo < (lru - s3_fifo) / 5, "{lru}, {s3_fifo}, {duel}");
    }

    #[test]
    fn where_what_is_used_changes_often_it_does_what_lru_does() {
        let [lru, s3_fifo, duel] = misses_of_each(&moves_on(0));
        assert!(
            lru * 10 < s3_fifo * 9,
            "the trace tells them apart: {lru}, {s3_fifo}"
        );
        assert!(duel - lru < (s3_fifo - lru) / 5, "{lru}, {s3_fifo}, {duel}");
    }

    #[test]
    fn when_the_workload_changes_the_other_takes_over() {
        for (one, other) in [
            (scans(1_000_000), moves_on(2_000_000)),
            (moves_on(2_000_000), scans(1_000_000)),
        ] {
            let both = misses_of_each(&[one, other].concat());
            let [lru, s3_fifo, duel] = both;
            assert!(duel < lru.min(s3_fifo), "better than either alone: {both:?}");
        }
    }

    #[test]
    fn an_invalidated_key_is_forgotten_by_the_shadows_too() {
        let mut policy = Duel::default();
        (0..1_000u32).for_each(|key| policy.insert(key, 7));
        assert!(policy.lru_alone.bytes > 0 && policy.lru_alone.bytes == policy.s3_fifo_alone.bytes);
        (0..1_000).for_each(|key| assert_eq!(policy.remove(&key), Some(7)));
        assert_eq!((policy.held_bytes, policy.len()), (0, 0));
        assert_eq!((policy.lru_alone.bytes, policy.s3_fifo_alone.bytes), (0, 0));
    }
}
