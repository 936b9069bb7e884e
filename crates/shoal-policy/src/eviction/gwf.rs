//! Evicts the block of least worth; the age by which worth is measured is common to all nodes.

mod decision;
mod weight;
mod worth;

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

pub use decision::{Action, Facts, Peer, Reading, decide};
pub use weight::Weight;
pub use worth::{Ageing, Worth};

use super::Eviction;
use super::structures::ranked::Ranked;

/// Globally weighted frequency, D4N's policy (dissertation 4.5.3, Algorithm 3): the part that a node computes
/// alone.
///
/// Each use on this node adds to a block's local weight. The block of least [`Worth`] is evicted, and its
/// rank becomes the age. The age is common to all nodes, so that ranks on different nodes are comparable:
/// [`Gwf::learn_age`] applies the ages that other nodes reached. [`Ageing`] decides how the age enters: as in
/// LFUDA, which this policy is on a single node, or as printed.
///
/// The cooperative part needs the directory and is a function: get a [`Gwf::candidate`], let [`decide`]
/// choose the actions, and carry them out. `evict` is for a node that cannot reach the directory.
///
/// A read of a block from another node's cache (D4N's `GetBlock`, lines 9–24) counts for that node: it adds
/// [`Gwf::use_weight`] to the global weight of the block in the directory. The new copy weighs nothing until
/// it is used again, and under the printed rule it is the first to leave.
#[derive(Debug)]
pub struct Gwf<K> {
    ageing: Ageing,
    by_worth: Ranked<K, Worth>,
    /// The sum of the ranks.
    sum: Weight,
    age: Weight,
}

/// The block that a node would evict first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<K> {
    /// Names the block.
    pub key: K,
    /// Its worth on this node, the least of the evictable blocks.
    pub local: Worth,
    /// Its size in bytes.
    pub bytes: u64,
    /// The least rank of the other evictable blocks; `None` if there is none.
    pub next_rank: Option<Weight>,
}

impl<K: Default> Default for Gwf<K> {
    fn default() -> Self {
        Self::new(Ageing::default())
    }
}

impl<K: Default> Gwf<K> {
    /// Creates an empty policy.
    pub fn new(ageing: Ageing) -> Self {
        Self {
            ageing,
            by_worth: Ranked::default(),
            sum: Weight::ZERO,
            // If it were 0, no use would ever count where ageing is compounded.
            age: Weight::from(1),
        }
    }
}

impl<K: Copy + Eq + Hash> Gwf<K> {
    /// The greatest rank of any victim that this node knows of, on any node.
    pub const fn age(&self) -> Weight {
        self.age
    }

    /// Records that another node, or a decision on this one, has reached `age`.
    pub fn learn_age(&mut self, age: Weight) {
        self.age = self.age.max(age);
    }

    /// The weight that a use adds now, here or in the directory.
    pub fn use_weight(&self) -> Weight {
        self.ageing.use_weight(self.age)
    }

    /// The worth of a block of `weight` that is used now.
    pub const fn worth_now(&self, weight: Weight) -> Worth {
        self.ageing.worth(weight, self.age)
    }

    /// The worth of a held block.
    pub fn worth(&self, key: &K) -> Option<Worth> {
        self.by_worth.rank(key)
    }

    /// The size of a held block in bytes.
    pub fn bytes(&self, key: &K) -> Option<u64> {
        self.by_worth.bytes(key)
    }

    /// Replaces the worth of a held block: a new copy, a last copy that stays, or a pushed block. An absent
    /// block is ignored.
    pub fn weigh(&mut self, key: &K, worth: Worth) {
        self.change(key, |_| worth);
    }

    /// The average rank of the held blocks; zero if there are none. A peer compares a block's rank with it
    /// before pushing the block to this node.
    pub fn average_rank(&self) -> Weight {
        self.sum.average(self.by_worth.len())
    }

    /// The block to evict first among those that `may_leave` allows, with the rank of the next one.
    pub fn candidate(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<Candidate<K>> {
        let mut least = self.by_worth.least_first(may_leave);
        least.next().map(|(key, local, bytes)| Candidate {
            key,
            local,
            bytes,
            next_rank: least.next().map(|(_, next, _)| next.rank()),
        })
    }

    /// The blocks that `may_leave` allows with their worth and size, least worth first.
    pub fn least_first(
        &self,
        may_leave: &mut dyn FnMut(&K) -> bool,
    ) -> impl Iterator<Item = (K, Worth, u64)> {
        self.by_worth.least_first(may_leave)
    }

    fn change(&mut self, key: &K, next: impl FnOnce(Worth) -> Worth) {
        if let Some((before, after)) = self.by_worth.rerank(key, next) {
            self.sum = self.sum + after.rank() - before.rank();
        }
    }

    fn left(&mut self, rank: Weight) {
        self.sum = if self.by_worth.len() == 0 {
            // Beyond 64 bits sums are rounded: the error ends when the cache is empty.
            Weight::ZERO
        } else {
            self.sum - rank
        };
    }
}

impl<K: Copy + Eq + Hash + Debug> Eviction<K> for Gwf<K> {
    /// Adds a block that came from the lake.
    fn insert(&mut self, key: K, bytes: u64) {
        let worth = self.worth_now(self.use_weight());
        self.by_worth.insert(key, bytes, worth);
        self.sum = self.sum + worth.rank();
    }

    fn touch(&mut self, key: &K) {
        let (ageing, age) = (self.ageing, self.age);
        self.change(key, |worth| {
            ageing.worth(worth.weight + ageing.use_weight(age), age)
        });
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let (bytes, worth) = self.by_worth.remove(key)?;
        self.left(worth.rank());
        Some(bytes)
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        self.by_worth.least(may_leave)
    }

    fn contains(&self, key: &K) -> bool {
        self.by_worth.contains(key)
    }

    fn len(&self) -> usize {
        self.by_worth.len()
    }

    fn compare(&self, one: &K, other: &K) -> Ordering {
        self.worth(one).cmp(&self.worth(other))
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        let (bytes, worth) = self.by_worth.remove(key)?;
        self.left(worth.rank());
        self.learn_age(worth.rank());
        Some(bytes)
    }

    fn gwf(&self) -> Option<&Self> {
        Some(self)
    }

    fn gwf_mut(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Ageing, Candidate, Eviction, Facts, Gwf, Reading, Weight, decide};
    use crate::eviction::tests::leaving_order;

    fn holding(ageing: Ageing, keys: impl IntoIterator<Item = u32>) -> Gwf<u32> {
        let mut policy = Gwf::new(ageing);
        keys.into_iter().for_each(|key| policy.insert(key, 1));
        policy
    }

    fn ranks(policy: &Gwf<u32>, keys: impl IntoIterator<Item = u32>) -> Vec<Weight> {
        keys.into_iter()
            .map(|key| policy.worth(&key).unwrap().rank())
            .collect()
    }

    /// Two keys used twice, one of them a victim, and a third used twice.
    fn after_a_victim(ageing: Ageing) -> Gwf<u32> {
        let mut policy = holding(ageing, [1, 2]);
        policy.touch(&1);
        policy.touch(&2);
        assert_eq!(policy.evict(&mut |_| true), Some((1, 1)));
        policy.insert(3, 1);
        policy.touch(&3);
        policy
    }

    #[test]
    fn a_victim_is_the_age_and_a_use_counts_from_it_or_adds_it() {
        let policy = after_a_victim(Ageing::Added);
        assert_eq!(policy.age(), Weight::from(3));
        assert_eq!(ranks(&policy, [2, 3]), [3, 5].map(Weight::from));
        assert_eq!(policy.worth(&3).unwrap().weight, Weight::from(2), "uses alone");
        assert_eq!(leaving_order(policy), [2, 3]);

        let policy = after_a_victim(Ageing::Compounded);
        assert_eq!(policy.age(), Weight::from(2));
        assert_eq!(ranks(&policy, [2, 3]), [2, 4].map(Weight::from));
        assert_eq!(leaving_order(policy), [2, 3]);
    }

    #[test]
    fn an_invalidation_does_not_age() {
        let mut policy = holding(Ageing::Added, [1, 2]);
        policy.touch(&1);
        policy.remove(&1);
        assert_eq!(policy.age(), Weight::from(1));
    }

    #[test]
    fn the_age_of_others_counts_here_and_never_falls() {
        let mut policy = holding(Ageing::Added, [1, 2]);
        policy.learn_age(Weight::from(5));
        policy.learn_age(Weight::from(3));
        policy.touch(&1);
        assert_eq!(ranks(&policy, [1, 2]), [7, 2].map(Weight::from));
    }

    #[test]
    fn the_average_follows_what_is_held() {
        let mut policy = holding(Ageing::Added, 1..=4);
        let worth = policy.worth_now(Weight::from(9));
        policy.weigh(&1, worth);
        policy.touch(&2);
        assert_eq!(policy.average_rank(), Weight::from((10 + 3 + 2 + 2) / 4));
        policy.remove(&1);
        policy.evict(&mut |_| true);
        assert_eq!(policy.average_rank(), Weight::from(u64::midpoint(3, 2)));
        while policy.evict(&mut |_| true).is_some() {}
        assert_eq!(policy.average_rank(), Weight::ZERO);
    }

    #[test]
    fn a_candidate_knows_its_successor() {
        let mut policy = holding(Ageing::Added, [1, 2, 3]);
        policy.touch(&3);
        let local = policy.worth_now(Weight::from(1));
        let candidate = |key, next: Option<u64>| {
            Some(Candidate {
                key,
                local,
                bytes: 1,
                next_rank: next.map(Weight::from),
            })
        };
        assert_eq!(policy.candidate(&mut |_| true), candidate(1, Some(2)));
        assert_eq!(policy.candidate(&mut |key| *key != 2), candidate(1, Some(3)));
        assert_eq!(policy.candidate(&mut |key| *key == 2), candidate(2, None));
        assert_eq!(policy.candidate(&mut |_| false), None);
    }

    /// Makes room on a node that holds the last copies of all blocks, with their global weights in
    /// `directory`.
    fn make_room(policy: &mut Gwf<u32>, directory: &mut [u64]) -> u32 {
        loop {
            let candidate = policy.candidate(&mut |_| true).unwrap();
            let facts = Facts::<()> {
                local: candidate.local,
                global_weight: Weight::from(std::mem::take(&mut directory[candidate.key as usize])),
                is_last_copy: true,
                next_rank: candidate.next_rank,
                age: policy.age(),
                peers: &[],
            };
            for action in decide(&facts, Reading::Text) {
                match action {
                    Action::Keep { local } => policy.weigh(&candidate.key, local),
                    Action::RaiseAge(age) => policy.learn_age(age),
                    Action::Drop => {
                        policy.remove(&candidate.key);
                        return candidate.key;
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn last_copies_that_others_use_outlive_unused_ones() {
        for (ageing, age) in [(Ageing::Added, 7), (Ageing::Compounded, 6)] {
            let mut policy = holding(ageing, [0, 1, 2]);
            let mut directory = [5, 0, 3];
            let left = [(); 3].map(|()| make_room(&mut policy, &mut directory));
            assert_eq!(left, [1, 2, 0]);
            let rank = "the rank of the weights together is the age in the end";
            assert_eq!(policy.age(), Weight::from(age), "{rank}");
        }
    }

    /// As printed the copy is the first to leave, however young; with the age added it stays while it is
    /// younger than others.
    #[test]
    fn a_copy_of_a_peers_block_weighs_nothing_until_it_is_used() {
        for (ageing, order) in [(Ageing::Added, [1, 2, 3]), (Ageing::Compounded, [3, 1, 2])] {
            let mut policy = holding(ageing, [1, 2]);
            policy.learn_age(Weight::from(9));
            policy.insert(3, 1);
            let copy = policy.worth_now(Weight::ZERO);
            policy.weigh(&3, copy);
            assert_eq!(leaving_order(policy), order);
        }
    }
}
