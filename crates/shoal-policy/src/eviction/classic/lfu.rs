//! Evicts the least frequently used key, with or without ageing of keys that were popular once.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

use crate::eviction::Eviction;
use crate::eviction::structures::ranked::Ranked;

/// Evicts the key with the fewest uses since its insertion; among equals, the key that reached its count
/// first.
///
/// Counts are forgotten when a key leaves and never age, so a key that was popular once stays. [`Lfuda`]
/// fixes that.
pub type Lfu<K> = LeastUsed<K, false>;

/// LFU with dynamic ageing: a key ranks by its uses plus the age of the cache at its last use; the age is the
/// rank of the last victim (Arlitt et al., *Evaluating Content Management Techniques for Web Proxy Caches*,
/// 2000, with all costs 1).
///
/// The dissertation on D4N (4.5.3) and libCacheSim read it differently: they add the age itself at each use,
/// so ranks grow geometrically. That reading is [`crate::eviction::Gwf`] on a single node.
pub type Lfuda<K> = LeastUsed<K, true>;

/// [`Lfu`], or [`Lfuda`] if the cache `AGES`. Without ageing the age stays 0, so keys rank by uses alone.
#[derive(Debug, Default)]
pub struct LeastUsed<K, const AGES: bool> {
    by_rank: Ranked<K, Rank>,
    age: u64,
}

/// Of two keys with the same sum, the one with fewer uses leaves first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Rank {
    uses_plus_age: u64,
    uses: u64,
}

impl Rank {
    const fn new(uses: u64, age: u64) -> Self {
        Self {
            uses_plus_age: uses + age,
            uses,
        }
    }
}

impl<K: Copy + Eq + Hash + Debug, const AGES: bool> Eviction<K> for LeastUsed<K, AGES> {
    fn insert(&mut self, key: K, bytes: u64) {
        self.by_rank.insert(key, bytes, Rank::new(1, self.age));
    }

    fn touch(&mut self, key: &K) {
        let age = self.age;
        self.by_rank.rerank(key, |rank| Rank::new(rank.uses + 1, age));
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.by_rank.remove(key).map(|(bytes, _)| bytes)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        self.by_rank.least(may_leave)
    }

    fn contains(&self, key: &K) -> bool {
        self.by_rank.contains(key)
    }

    fn len(&self) -> usize {
        self.by_rank.len()
    }

    fn compare(&self, one: &K, other: &K) -> Ordering {
        self.by_rank.rank(one).cmp(&self.by_rank.rank(other))
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        let (bytes, rank) = self.by_rank.remove(key)?;
        if AGES {
            // Victims need not come in rank order: `may_leave` may have excluded lesser keys earlier.
            self.age = self.age.max(rank.uses_plus_age);
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};

    use super::{Eviction, Lfu, Lfuda};
    use crate::eviction::tests::{holding, leaving_order, misses};

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

    /// A key used ten times and then never again, and a flow of keys used twice each through the second
    /// place.
    fn left_before_the_old_favourite(mut policy: impl Eviction<u32>) -> Option<u32> {
        policy.insert(0, 1);
        (0..9).for_each(|_| policy.touch(&0));
        (1..100).find(|&key| {
            policy.insert(key, 1);
            policy.touch(&key);
            policy.len() > 1 && policy.evict(&mut |_| true) == Some((0, 1))
        })
    }

    #[test]
    fn a_key_that_was_popular_once_leaves_in_the_end() {
        // The age grows by two with each key that goes by; the fifth ranks with the favourite's ten uses, the
        // sixth above.
        assert_eq!(left_before_the_old_favourite(Lfuda::default()), Some(6));
        assert_eq!(left_before_the_old_favourite(Lfu::default()), None);
    }

    #[test]
    fn an_invalidation_does_not_age() {
        let mut policy = holding::<Lfuda<_>>([1, 2]);
        (0..9).for_each(|_| policy.touch(&1));
        policy.remove(&1);
        policy.insert(3, 1);
        assert_eq!(
            leaving_order(policy),
            [2, 3],
            "had the age risen, 3 would rank with it and 2 still be first"
        );
    }

    /// Misses counted by the definition: ranks in a vector, in the order they were given, and the first least
    /// of them leaves.
    fn misses_by_definition(trace: &[u32], capacity: usize) -> u32 {
        let (mut held, mut age, mut misses) = (Vec::<(u32, u32, u32)>::new(), 0, 0);
        for &key in trace {
            let place = held.iter().position(|&(_, _, other)| other == key);
            let uses = place.map_or(0, |place| held.remove(place).1);
            if uses == 0 {
                misses += 1;
                if held.len() == capacity {
                    let (place, least) = held
                        .iter()
                        .enumerate()
                        .min_by_key(|(_, (rank, uses, _))| (*rank, *uses))
                        .map(|(place, (rank, ..))| (place, *rank))
                        .unwrap();
                    age = least;
                    held.remove(place);
                }
            }
            held.push((uses + 1 + age, uses + 1, key));
        }
        misses
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_misses_what_the_definition_misses(trace in vec(0..12u32, 0..200), capacity in 1..8usize) {
            assert_eq!(misses(Lfuda::default(), &trace, capacity), misses_by_definition(&trace, capacity));
        }
    }
}
