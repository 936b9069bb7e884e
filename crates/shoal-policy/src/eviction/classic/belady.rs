//! Evicts the key whose next use is farthest away: the bound for policies, which requires knowledge of the
//! future.

use std::cmp::Reverse;
use std::fmt::Debug;
use std::hash::Hash;

use crate::eviction::Eviction;
use crate::eviction::structures::ranked::Ranked;
use crate::eviction::structures::slab::Slab;

/// Belady's MIN: evicts the key whose next use is farthest away. It needs all future uses, so it is for
/// simulation only.
///
/// If all keys have the same size, MIN misses least among all policies that admit every miss. With different
/// sizes the problem is NP-hard and MIN is no bound: one large key that is used soon may keep out many small
/// keys that are used a little later.
#[derive(Debug)]
pub struct Belady<K> {
    by_next_use: Ranked<K, Reverse<u32>>,
    /// For each future key, the position of its first use that is not known to have passed.
    uses: Slab<K, u32>,
    /// For each position of the future, the position of the same key's next use.
    next: Vec<u32>,
    /// Every position before this one has passed.
    now: u32,
}

/// The position of a use that never comes.
const NEVER: u32 = u32::MAX;

impl<K: Copy + Default + Eq + Hash> Belady<K> {
    /// Creates a policy for the given sequence of future uses. `insert` or `touch` announces each use. Uses
    /// that are not announced (a key refused admission) are skipped when a later one is announced.
    pub fn new(future: impl IntoIterator<Item = K>) -> Self {
        let (mut next, mut first) = (Vec::new(), Slab::default());
        let mut last: Slab<K, u32> = Slab::default();
        for key in future {
            let position = u32::try_from(next.len()).expect("fewer than four billion uses are foretold");
            next.push(NEVER);
            if let Some(slot) = last.slot(&key) {
                next[std::mem::replace(&mut last[slot], position) as usize] = position;
            } else {
                first.insert(key, position);
                last.insert(key, position);
            }
        }
        Self {
            by_next_use: Ranked::default(),
            uses: first,
            next,
            now: 0,
        }
    }

    /// Records that `key` is used now and returns the position of its next use.
    fn use_after_this(&mut self, key: &K) -> u32 {
        let Some(slot) = self.uses.slot(key) else {
            return NEVER;
        };
        let mut position = self.uses[slot];
        while position < self.now {
            position = self.next[position as usize];
        }
        if position != NEVER {
            self.now = position + 1;
            position = self.next[position as usize];
        }
        self.uses[slot] = position;
        position
    }
}

impl<K: Copy + Default + Eq + Hash + Debug> Eviction<K> for Belady<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let next_use = self.use_after_this(&key);
        self.by_next_use.insert(key, bytes, Reverse(next_use));
    }

    fn touch(&mut self, key: &K) {
        if self.contains(key) {
            let next_use = self.use_after_this(key);
            self.by_next_use.rerank(key, |_| Reverse(next_use));
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.by_next_use.remove(key).map(|(bytes, _)| bytes)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        self.by_next_use.least(may_leave)
    }

    fn contains(&self, key: &K) -> bool {
        self.by_next_use.contains(key)
    }

    fn len(&self) -> usize {
        self.by_next_use.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};

    use super::{Belady, Eviction};
    use crate::eviction::tests::{leaving_order, misses};
    use crate::eviction::{Lru, Sieve};

    #[test]
    fn the_farthest_leaves_first_and_the_never_used_before_it() {
        let mut policy = Belady::new([1, 2, 3, 3, 1]);
        for key in [1, 2, 3] {
            policy.insert(key, 1);
        }
        assert_eq!(leaving_order(policy), [2, 1, 3]);
    }

    #[test]
    fn a_use_that_was_not_announced_is_over() {
        let mut policy = Belady::new([1, 9, 2, 9, 1, 9]);
        policy.insert(1, 1);
        policy.insert(2, 1);
        policy.insert(9, 1);
        assert_eq!(
            leaving_order(policy),
            [2, 9, 1],
            "9 was at its second use, not its first"
        );
    }

    /// The fewest misses that any choice of victims leads to.
    fn optimum(trace: &[u32], held: &mut Vec<u32>, capacity: usize) -> u32 {
        let Some((key, rest)) = trace.split_first() else {
            return 0;
        };
        if held.contains(key) {
            return optimum(rest, held, capacity);
        }
        let choices = if held.len() < capacity { 1 } else { held.len() };
        let after_each = (0..choices).map(|victim| {
            let mut held = held.clone();
            if held.len() == capacity {
                held.swap_remove(victim);
            }
            held.push(*key);
            optimum(rest, &mut held, capacity)
        });
        1 + after_each.min().expect("there is a choice")
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_policy_misses_less(trace in vec(0..6u32, 0..12), capacity in 1..4usize) {
            let least = misses(Belady::new(trace.iter().copied()), &trace, capacity);
            assert_eq!(least, optimum(&trace, &mut Vec::new(), capacity));
            assert!(least <= misses(Lru::default(), &trace, capacity));
            assert!(least <= misses(Sieve::default(), &trace, capacity));
        }
    }
}
