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
    /// Uses less than this apart are close to each other: `affinity_th` of Algorithm 1. The paper derives it
    /// from its workload and does not give it.
    pub affinity: Duration,
    /// The time by which uses are apart, and by which their number decays.
    pub clock: Clock,
}

/// The time of a [`Closeness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Six minutes pass while as many blocks come as the cache holds, which by Little's law is the mean time
    /// that a block stays. So a threshold of a minute is a sixth of that time, however fast the cache is
    /// read:
    ///
    /// `affinity_th = residence / 6`, `hitcount := 0.8 * hitcount` after each `residence / 6` unused.
    ///
    /// A fixed time fits one speed only. If blocks stay for less, all uses are close, and the order as
    /// printed is LRU; and a count that does not decay while blocks come and go keeps blocks that are no
    /// longer read.
    Exchange,
    /// The time of the caller, as published.
    Wall,
}

/// The time that passes while as many blocks come as the cache holds. In our simulation of the paper's case
/// study, with the middle one of its exponents, that takes 345 seconds.
const RESIDENCE: Duration = Duration::from_mins(6);

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
            // The time after which the paper lets the number of uses decay.
            affinity: Duration::from_mins(1),
            clock: Clock::Exchange,
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

    fn compare_uses(&self, one: Uses, other: Uses) -> Ordering {
        let Rule {
            reading, affinity, ..
        } = self.rule;
        compare(one, other, affinity, reading, self.now)
    }
}

impl<K: Copy + Eq + Hash + Debug> Eviction<K> for Closeness<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        if self.rule.clock == Clock::Exchange {
            self.now += RESIDENCE / u32::try_from(self.keys.len() + 1).unwrap_or(u32::MAX);
        }
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
        if self.rule.clock == Clock::Wall {
            self.now = now;
        }
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
    use super::{Clock, Closeness, Eviction, Rule};
    use crate::eviction::tests::leaving_order;

    #[test]
    fn the_comparator_decides() {
        for (apart_secs, reading, order) in [
            (10, Reading::Printed, [0, 4]),
            (10, Reading::Inverted, [4, 0]),
            (100, Reading::Printed, [4, 0]),
            (100, Reading::Inverted, [0, 4]),
        ] {
            let mut policy = Closeness::new(Rule {
                reading,
                clock: Clock::Wall,
                ..Rule::default()
            });
            policy.insert(0, 1);
            policy.touch(&0);
            policy.touch(&0);
            policy.advance(Duration::from_secs(apart_secs));
            policy.insert(4, 1);
            assert_eq!(leaving_order(policy), order, "{reading:?} {apart_secs}");
        }
    }

    /// The victim among 60 keys, after those behind key 0, which was used often, were all exchanged.
    fn victim_after_an_exchange(clock: Clock, pause: Duration) -> Option<u32> {
        let mut policy = Closeness::new(Rule {
            clock,
            ..Rule::default()
        });
        for key in (1_000..1_060).chain(0..60) {
            policy.advance(pause * (key % 1_000));
            policy.remove(&(key + 1_000));
            policy.insert(key, 1);
            if key == 0 {
                for _ in 0..9 {
                    policy.touch(&0);
                }
            }
        }
        policy.victim(&mut |_| true)
    }

    #[test]
    fn what_is_close_depends_on_the_exchange_of_blocks_and_not_on_time() {
        for pause_ms in [1, 1_000, 1_000_000] {
            let victim = victim_after_an_exchange(Clock::Exchange, Duration::from_millis(pause_ms));
            assert_ne!(victim, Some(0), "{pause_ms} ms");
        }
        let at_once = victim_after_an_exchange(Clock::Wall, Duration::from_millis(1));
        assert_eq!(at_once, Some(0), "all uses are within a minute");
    }

    #[test]
    fn a_block_that_was_popular_leaves_when_the_cache_was_exchanged_often_enough() {
        for (clock, stays) in [(Clock::Exchange, false), (Clock::Wall, true)] {
            let mut policy = Closeness::new(Rule {
                clock,
                affinity: Duration::ZERO,
                ..Rule::default()
            });
            policy.insert(0, 1);
            for _ in 0..20 {
                policy.touch(&0);
            }
            for key in 1..60 * 20 {
                policy.insert(key, 1);
                if policy.len() > 60 {
                    policy.evict(&mut |_| true);
                }
            }
            assert_eq!(policy.contains(&0), stays, "{clock:?}");
        }
    }
}
