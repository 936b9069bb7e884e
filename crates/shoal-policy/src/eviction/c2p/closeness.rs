//! C2P's own ranking of blocks: by time or by number of uses, depending on the closeness rule.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use super::compare::{Reading, Uses, compare};
use crate::eviction::Eviction;
use crate::eviction::structures::slab::{List, Slab};

/// The paper's LRU (Algorithm 1, see [`compare()`]): the policy of its nodes without co-operation, and that
/// of C2P among objects of equal completeness.
///
/// The paper sorts all blocks for each victim. Here the victim is chosen among the [`CANDIDATES`] least
/// recently used blocks; in the paper's set-up these are all blocks.
#[derive(Debug)]
pub struct Closeness<K> {
    keys: Slab<K, Entry>,
    by_use: List,
    rule: Rule,
    now: Duration,
}

/// The maximum number of keys compared for one victim.
pub const CANDIDATES: usize = 128;

/// How uses are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How to read the comparator.
    pub reading: Reading,
    /// Uses less than this apart are close to each other.
    pub affinity: Affinity,
}

/// The threshold below which two uses are close, *affinity_th* of Algorithm 1. The paper derives it from its
/// workload and does not give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// A quarter of the cache's age: uses a and b are close if `|a − b| < age / 4`, where the age is the time
    /// since the least recently used block was used. So decisions hardly depend on how fast blocks come and
    /// go: a fixed time that suits a cache which exchanges its blocks in minutes is the whole age of one that
    /// needs seconds, and no time for one that needs days.
    ShareOfAge,
    /// This time, however fast blocks come and go. If it exceeds the age, all uses are close, and the order
    /// as printed is LRU.
    Fixed(Duration),
}

/// The threshold is one part of the age in this many.
///
/// In our simulation of the paper's case study LRU's caches are 185 to 266 seconds old, depending on the
/// exponent of the power law: a quarter is about a minute, the only time that the paper names for uses to
/// count as recent. There C2P finds as many objects whole and in part with a third or a sixteenth of the age.
const AGE_SHARE: u32 = 4;

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    uses: Uses,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            // The printed reading gained more than its inversion in the paper's case study, which
            // tests/c2p.rs repeats.
            reading: Reading::Printed,
            affinity: Affinity::ShareOfAge,
        }
    }
}

impl<K> Default for Closeness<K> {
    fn default() -> Self {
        Self::new(Rule::default())
    }
}

impl<K> Closeness<K> {
    /// An empty policy.
    pub fn new(rule: Rule) -> Self {
        Self {
            keys: Slab::default(),
            by_use: List::default(),
            rule,
            now: Duration::ZERO,
        }
    }

    /// The threshold now.
    fn affinity(&self) -> Duration {
        match self.rule.affinity {
            Affinity::ShareOfAge => self.age() / AGE_SHARE,
            Affinity::Fixed(affinity) => affinity,
        }
    }

    /// The time since the least recently used block was used; zero without blocks.
    fn age(&self) -> Duration {
        let oldest = self.by_use.oldest();
        oldest.map_or(Duration::ZERO, |slot| {
            self.now.saturating_sub(self.keys[slot].uses.at)
        })
    }

    fn compare_uses(&self, one: Uses, other: Uses) -> Ordering {
        compare(one, other, self.affinity(), self.rule.reading, self.now)
    }
}

impl<K: Copy + Eq + Hash + Debug> Eviction<K> for Closeness<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let uses = Uses::first(self.now);
        let slot = self.keys.insert(key, Entry { bytes, uses });
        self.keys.link_newest(&mut self.by_use, slot);
    }

    fn touch(&mut self, key: &K) {
        if let Some(slot) = self.keys.slot(key) {
            self.keys[slot].uses = self.keys[slot].uses.again(self.now);
            self.keys.move_newest(&mut self.by_use, slot);
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let slot = self.keys.slot(key)?;
        self.keys.unlink(&mut self.by_use, slot);
        Some(self.keys.remove(slot).1.bytes)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let keys = &self.keys;
        // Start from the least recently used, because the comparator is not transitive, see its
        // documentation.
        let victim = keys
            .oldest_first(self.by_use)
            .filter(|&slot| may_leave(&keys.key(slot)))
            .take(CANDIDATES)
            .min_by(|&one, &other| self.compare_uses(keys[one].uses, keys[other].uses));
        victim.map(|slot| keys.key(slot))
    }

    fn advance(&mut self, now: Duration) {
        self.now = now;
    }

    fn contains(&self, key: &K) -> bool {
        self.keys.contains(key)
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn compare(&self, one: &K, other: &K) -> Ordering {
        match (self.keys.slot(one), self.keys.slot(other)) {
            (Some(one), Some(other)) => self.compare_uses(self.keys[one].uses, self.keys[other].uses),
            _ => Ordering::Equal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::compare::Reading;
    use super::{Affinity, Closeness, Eviction, Rule};
    use crate::eviction::tests::leaving_order;

    const MINUTE: Affinity = Affinity::Fixed(Duration::from_mins(1));

    #[test]
    fn the_comparator_decides() {
        for (apart_secs, reading, order) in [
            (10, Reading::Printed, [0, 4]),
            (10, Reading::Inverted, [4, 0]),
            (100, Reading::Printed, [4, 0]),
            (100, Reading::Inverted, [0, 4]),
        ] {
            let affinity = MINUTE;
            let mut policy = Closeness::new(Rule { reading, affinity });
            policy.insert(0, 1);
            policy.touch(&0);
            policy.touch(&0);
            policy.advance(Duration::from_secs(apart_secs));
            policy.insert(4, 1);
            assert_eq!(leaving_order(policy), order, "{reading:?} {apart_secs}");
        }
    }

    /// Key 0 is used three times, key 1 a moment later, key 2 ten moments later.
    #[test]
    fn the_threshold_follows_the_age_of_the_cache() {
        for (affinity, moment_ms, first) in [
            (Affinity::ShareOfAge, 10, 2),
            (Affinity::ShareOfAge, 1_000, 2),
            (Affinity::ShareOfAge, 5_000, 2),
            (MINUTE, 1_000, 0),
            (MINUTE, 10_000, 2),
            (Affinity::Fixed(Duration::ZERO), 1_000, 1),
        ] {
            let reading = Reading::Printed;
            let mut policy = Closeness::new(Rule { reading, affinity });
            policy.insert(0, 1);
            policy.touch(&0);
            policy.touch(&0);
            for (key, moments) in [(1, 1), (2, 10)] {
                policy.advance(Duration::from_millis(moments * moment_ms));
                policy.insert(key, 1);
            }
            let victim = policy.victim(&mut |_| true);
            assert_eq!(victim, Some(first), "{affinity:?}, {moment_ms} ms");
        }
    }
}
