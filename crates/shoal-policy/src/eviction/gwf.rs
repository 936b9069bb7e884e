//! What is worth least leaves first, where worth is shared between nodes and grows old with all of them.

mod decision;
mod weight;

use std::hash::Hash;

pub use decision::{Action, Facts, Gain, Peer, Reading, decide};
pub use weight::Weight;

use super::Eviction;
use super::ranked::Ranked;

/// Globally weighted frequency, D4N's policy (dissertation 4.5.3, Algorithm 3): the part a node plays by itself.
///
/// A block has a local weight, to which each use on this node adds the age; the least leaves, and its weight is the age from
/// then on. The age is common to all nodes, so that weights on different nodes compare: [`Gwf::learn_age`] takes in what others
/// reached. By itself this is LFU with dynamic ageing in the dissertation's words.
///
/// The part nodes play together needs the directory and is a function: ask for a [`Gwf::candidate`], let [`decide`] say what
/// becomes of it, carry that out. [`Gain::of`] says what a read adds to the weights. `evict` is for a node that cannot
/// reach the directory.
#[derive(Debug)]
pub struct Gwf<K> {
    by_weight: Ranked<K, Weight>,
    sum: Weight,
    age: Weight,
}

/// The block a node would part with first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<K> {
    /// Names it.
    pub key: K,
    /// Its local weight, the least of those that may leave.
    pub local_weight: Weight,
    /// The least local weight of the others that may leave; `None` when there is none.
    pub next_weight: Option<Weight>,
}

impl<K> Default for Gwf<K> {
    fn default() -> Self {
        Self {
            by_weight: Ranked::default(),
            sum: Weight::ZERO,
            // With an age of 0 no use would ever count.
            age: Weight::from(1),
        }
    }
}

impl<K: Copy + Eq + Hash> Gwf<K> {
    /// The greatest weight of a victim this node knows of, its own or another node's.
    pub const fn age(&self) -> Weight {
        self.age
    }

    /// Another node, or a decision on this one, has reached `age`.
    pub fn learn_age(&mut self, age: Weight) {
        self.age = self.age.max(age);
    }

    /// The local weight of a held block.
    pub fn weight(&self, key: &K) -> Option<Weight> {
        self.by_weight.rank(key)
    }

    /// Gives a held block another local weight: the gain of a copy, the sum for a last copy that stays, what a pushed block
    /// brought along. An absent block is ignored.
    pub fn weigh(&mut self, key: &K, weight: Weight) {
        self.change(key, |_| weight);
    }

    /// What a block weighs on average here: what a peer compares with before it pushes one. Nothing when there is none.
    pub fn average_weight(&self) -> Weight {
        self.sum.average(self.by_weight.len())
    }

    /// The block to part with first among those `may_leave` allows, and the weight of the one after it.
    pub fn candidate(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<Candidate<K>> {
        let mut least = self.by_weight.least_first(may_leave);
        least.next().map(|(key, local_weight)| Candidate {
            key,
            local_weight,
            next_weight: least.next().map(|(_, weight)| weight),
        })
    }

    fn change(&mut self, key: &K, next: impl FnOnce(Weight) -> Weight) {
        if let Some((before, after)) = self.by_weight.rank_anew(key, next) {
            self.sum = self.sum + after - before;
        }
    }

    fn left(&mut self, weight: Weight) {
        self.sum = if self.by_weight.len() == 0 {
            // Beyond 64 bits sums are rounded: an empty cache is where the error ends.
            Weight::ZERO
        } else {
            self.sum - weight
        };
    }
}

impl<K: Copy + Eq + Hash> Eviction<K> for Gwf<K> {
    /// The block came from the lake.
    fn insert(&mut self, key: K, bytes: u64) {
        self.by_weight.insert(key, bytes, self.age);
        self.sum = self.sum + self.age;
    }

    fn touch(&mut self, key: &K) {
        let age = self.age;
        self.change(key, |weight| weight + age);
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let (bytes, weight) = self.by_weight.remove(key)?;
        self.left(weight);
        Some(bytes)
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        let (key, bytes, weight) = self.by_weight.take_least(may_leave)?;
        self.left(weight);
        self.learn_age(weight);
        Some((key, bytes))
    }

    fn contains(&self, key: &K) -> bool {
        self.by_weight.contains(key)
    }

    fn len(&self) -> usize {
        self.by_weight.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Action, Candidate, Eviction, Facts, Gwf, Reading, Weight, decide};
    use crate::eviction::conformance::{holding, leaving_order};

    fn weights(policy: &Gwf<u32>, keys: impl IntoIterator<Item = u32>) -> Vec<Option<Weight>> {
        keys.into_iter().map(|key| policy.weight(&key)).collect()
    }

    #[test]
    fn a_use_adds_the_age_and_a_victim_is_the_age() {
        let mut policy = holding::<Gwf<_>>([1, 2]);
        policy.touch(&1);
        policy.touch(&2);
        assert_eq!(policy.evict(&mut |_| true), Some((1, 1)));
        policy.insert(3, 1);
        policy.touch(&3);
        assert_eq!(
            weights(&policy, [2, 3]),
            [2, 4].map(|number| Some(Weight::from(number)))
        );
        assert_eq!(leaving_order(policy), [2, 3]);
    }

    #[test]
    fn an_invalidation_does_not_age() {
        let mut policy = holding::<Gwf<_>>([1, 2]);
        policy.touch(&1);
        policy.remove(&1);
        assert_eq!(policy.age(), Weight::from(1));
    }

    #[test]
    fn the_age_of_others_counts_here_and_never_falls() {
        let mut policy = holding::<Gwf<_>>([1, 2]);
        policy.learn_age(Weight::from(5));
        policy.learn_age(Weight::from(3));
        policy.touch(&1);
        assert_eq!(policy.weight(&1), Some(Weight::from(6)));
    }

    #[test]
    fn the_average_follows_what_is_held() {
        let mut policy = holding::<Gwf<_>>(1..=4);
        policy.weigh(&1, Weight::from(9));
        policy.touch(&2);
        assert_eq!(policy.average_weight(), Weight::from((9 + 2 + 1 + 1) / 4));
        policy.remove(&1);
        policy.evict(&mut |_| true);
        assert_eq!(policy.average_weight(), Weight::from(u64::midpoint(2, 1)));
        while policy.evict(&mut |_| true).is_some() {}
        assert_eq!(policy.average_weight(), Weight::ZERO);
    }

    #[test]
    fn a_candidate_knows_its_successor() {
        let mut policy = holding::<Gwf<_>>([1, 2, 3]);
        policy.touch(&3);
        let candidate = |key, next| {
            Some(Candidate {
                key,
                local_weight: Weight::from(1),
                next_weight: next,
            })
        };
        assert_eq!(
            policy.candidate(&mut |_| true),
            candidate(1, Some(Weight::from(1)))
        );
        assert_eq!(
            policy.candidate(&mut |key| *key != 2),
            candidate(1, Some(Weight::from(2)))
        );
        assert_eq!(policy.candidate(&mut |key| *key == 2), candidate(2, None));
        assert_eq!(policy.candidate(&mut |_| false), None);
    }

    /// Makes room on a node that holds the last copies of all, with their global weights in `directory`.
    fn make_room(policy: &mut Gwf<u32>, directory: &mut [u64]) -> u32 {
        loop {
            let candidate = policy.candidate(&mut |_| true).unwrap();
            let facts = Facts::<()> {
                local_weight: candidate.local_weight,
                global_weight: Weight::from(std::mem::take(&mut directory[candidate.key as usize])),
                is_last_copy: true,
                next_weight: candidate.next_weight,
                age: policy.age(),
                peers: &[],
            };
            for action in decide(&facts, Reading::Text) {
                match action {
                    Action::Keep { local_weight } => policy.weigh(&candidate.key, local_weight),
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
    fn last_copies_that_others_use_outlive_those_nobody_uses() {
        let mut policy = holding::<Gwf<_>>([0, 1, 2]);
        let mut directory = [5, 0, 3];
        let left = [(); 3].map(|()| make_room(&mut policy, &mut directory));
        assert_eq!(left, [1, 2, 0]);
        assert_eq!(
            policy.age(),
            Weight::from(6),
            "the weights together are the age in the end"
        );
    }
}
