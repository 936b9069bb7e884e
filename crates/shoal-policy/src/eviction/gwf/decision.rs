//! Decides what to do with a node's least block, given the directory's record of it.

use super::{Weight, Worth};

/// How to read Algorithm 3 where its listing and the text around it differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// As the text has it. The last copy of a block stays if the sum of its two weights is no longer the
    /// least on the node. The local weight of a victim is added to the global weight for the remaining
    /// copies; if there are none, it is discarded with the last copy.
    #[default]
    Text,
    /// As the listing has it. The last copy always leaves; its weights only decide whether it is pushed. Its
    /// weight also stays in the directory (lines 28–38 have no else): if the block was pushed, the weight
    /// counts twice; if not, the directory remembers the weight of an uncached block.
    Listing,
}

/// The inputs of a decision: a node has to evict its block of least worth.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a, N> {
    /// The worth of the block on this node.
    pub local: Worth,
    /// Its weight in the directory.
    pub global_weight: Weight,
    /// True if no other node holds the block.
    pub is_last_copy: bool,
    /// The least rank among the other blocks of this node that may leave; `None` when there is none.
    pub next_rank: Option<Weight>,
    /// The age as this node knows it.
    pub age: Weight,
    /// The other nodes. Among peers of equal average rank the first is chosen.
    pub peers: &'a [Peer<N>],
}

/// A node to which a block could be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer<N> {
    /// The node's key.
    pub node: N,
    /// The average rank of its blocks.
    pub average_rank: Weight,
}

/// A step to carry out. A list of them ends with exactly one `Keep` or `Drop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<N> {
    /// The global weight in the facts was added to the local weight: subtract it in the directory.
    TakeGlobalWeight(Weight),
    /// Add to the global weight in the directory, for the copies on other nodes.
    AddGlobalWeight(Weight),
    /// Send the block to the peer whose blocks are worth least.
    Push {
        /// The peer with the lowest average rank.
        to: N,
        /// The worth of the block on that peer.
        local: Worth,
    },
    /// Raise the common age to at least this.
    RaiseAge(Weight),
    /// The block stays with a new worth. Choose another victim.
    Keep {
        /// Its new worth, which is no longer the least on this node.
        local: Worth,
    },
    /// The block leaves this node.
    Drop,
}

/// D4N's eviction (Algorithm 3, lines 26–42) for one candidate.
///
/// Ageing is one of the actions: take the block out of [`super::Gwf`] with `remove`, not `evict`, and report
/// [`Action::RaiseAge`] to the directory and to [`super::Gwf::learn_age`].
///
/// A node that makes room for a block pushed to it gives no peers, so a push ends where it arrives. A node
/// also omits peers to which its pushes in flight have reached their limit, because a block raises a peer's
/// average only once it has arrived. D4N does not cover this.
pub fn decide<N: Copy>(facts: &Facts<N>, reading: Reading) -> Vec<Action<N>> {
    let mut actions = Vec::new();
    let mut local = facts.local;
    if facts.is_last_copy {
        if facts.global_weight != Weight::ZERO {
            local = local.with(facts.global_weight);
            actions.push(Action::TakeGlobalWeight(facts.global_weight));
        }
        let is_least = facts.next_rank.is_none_or(|next| local.rank() <= next);
        if reading == Reading::Text && !is_least {
            actions.push(Action::Keep { local });
            return actions;
        }
        let least_valued = facts.peers.iter().min_by_key(|peer| peer.average_rank);
        if let Some(peer) = least_valued.filter(|peer| local.rank() > peer.average_rank) {
            actions.push(Action::Push { to: peer.node, local });
        }
    }
    if !facts.is_last_copy || reading == Reading::Listing {
        actions.push(Action::AddGlobalWeight(local.weight));
    }
    if local.rank() > facts.age {
        actions.push(Action::RaiseAge(local.rank()));
    }
    actions.push(Action::Drop);
    actions
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, proptest};

    use super::super::Ageing;
    use super::{Action, Facts, Peer, Reading, Weight, Worth, decide};
    use Action::{AddGlobalWeight, Drop, Keep, Push, RaiseAge, TakeGlobalWeight};
    use Reading::{Listing, Text};

    fn weight(number: u64) -> Weight {
        Weight::from(number)
    }

    fn worth(number: u64) -> Worth {
        Ageing::Compounded.worth(weight(number), Weight::ZERO)
    }

    const fn peer(node: char, average_rank: Weight) -> Peer<char> {
        Peer { node, average_rank }
    }

    /// (local, global, last copy?, next least, peers' averages) → actions, at age 10.
    fn decided(
        (local, global, is_last_copy, next): (u64, u64, bool, Option<u64>),
        averages: &[u64],
        reading: Reading,
    ) -> Vec<Action<char>> {
        let peers: Vec<_> = ('a'..)
            .zip(averages)
            .map(|(node, &average)| peer(node, weight(average)))
            .collect();
        let facts = Facts {
            local: worth(local),
            global_weight: weight(global),
            is_last_copy,
            next_rank: next.map(weight),
            age: weight(10),
            peers: &peers,
        };
        decide(&facts, reading)
    }

    #[test]
    fn a_block_with_copies_elsewhere_leaves_its_weight_to_them() {
        for reading in [Text, Listing] {
            assert_eq!(
                decided((7, 5, false, Some(9)), &[1], reading),
                [AddGlobalWeight(weight(7)), Drop],
                "neither pushed nor weighed together"
            );
        }
    }

    #[test]
    fn a_last_copy_stays_if_both_weights_together_are_not_the_least() {
        let taken = TakeGlobalWeight(weight(5));
        let local = worth(12);
        assert_eq!(
            decided((7, 5, true, Some(11)), &[1], Text),
            [taken, Keep { local }]
        );
        assert_eq!(
            decided((7, 5, true, Some(11)), &[1], Listing),
            [
                taken,
                Push { to: 'a', local },
                AddGlobalWeight(local.weight),
                RaiseAge(local.rank()),
                Drop
            ],
            "the listing evicts it all the same, and leaves its weight in two places"
        );
    }

    #[test]
    fn a_last_copy_that_is_still_the_least_leaves() {
        let taken = TakeGlobalWeight(weight(2));
        assert_eq!(decided((7, 2, true, Some(9)), &[], Text), [taken, Drop]);
        assert_eq!(decided((7, 2, true, None), &[], Text), [taken, Drop]);
        assert_eq!(decided((7, 0, true, Some(9)), &[], Text), [Drop]);
        assert_eq!(
            decided((7, 0, true, Some(9)), &[], Listing),
            [AddGlobalWeight(weight(7)), Drop]
        );
    }

    #[test]
    fn it_is_pushed_to_the_least_valued_peer_if_that_holds_lesser_blocks() {
        let push = |to| Push { to, local: worth(7) };
        for (averages, pushed) in [
            (&[9, 6, 3][..], Some('c')),
            (&[6, 3, 3], Some('b')),
            (&[7, 8], None),
            (&[], None),
        ] {
            let actions = decided((7, 0, true, Some(9)), averages, Text);
            let expected: Vec<_> = pushed.map(push).into_iter().chain([Drop]).collect();
            assert_eq!(actions, expected);
        }
    }

    #[test]
    fn the_age_rises_to_the_weight_of_the_victim_and_never_falls() {
        assert!(decided((11, 0, false, None), &[], Text).contains(&RaiseAge(weight(11))));
        assert!(
            !decided((10, 0, false, None), &[], Text)
                .iter()
                .any(|action| matches!(action, RaiseAge(_)))
        );
        assert!(decided((7, 5, true, Some(12)), &[], Text).contains(&RaiseAge(weight(12))));
    }

    /// Where the age is added, weights travel, ranks are compared, and the age becomes a rank.
    #[test]
    fn uses_go_and_the_age_of_a_copy_stays() {
        let local = Ageing::Added.worth(weight(2), weight(9));
        let peers = [peer('a', weight(13))];
        let facts = |is_last_copy, next| Facts {
            local,
            global_weight: weight(3),
            is_last_copy,
            next_rank: Some(weight(next)),
            age: weight(10),
            peers: &peers,
        };
        assert_eq!(
            decide(&facts(false, 20), Text),
            [AddGlobalWeight(weight(2)), RaiseAge(weight(11)), Drop]
        );
        let (taken, local) = (TakeGlobalWeight(weight(3)), local.with(weight(3)));
        assert_eq!(decide(&facts(true, 13), Text), [taken, Keep { local }]);
        let push = Push { to: 'a', local };
        assert_eq!(
            decide(&facts(true, 14), Text),
            [taken, push, RaiseAge(weight(14)), Drop]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// As the text has it, a block that survives, here or elsewhere, weighs the same before and after.
        #[test]
        fn weight_is_neither_made_nor_lost(
            local in 0..100u64, global in 0..100u64, is_last_copy in any::<bool>(), next in 0..200u64, average in 0..200u64
        ) {
            let actions = decided((local, global, is_last_copy, Some(next)), &[average], Text);
            let (mut here, mut directory, mut there) = (weight(local), weight(global), Weight::ZERO);
            for action in &actions {
                match *action {
                    TakeGlobalWeight(taken) => directory = directory - taken,
                    AddGlobalWeight(added) => directory = directory + added,
                    Push { local, .. } => there = local.weight,
                    RaiseAge(_) => {}
                    Keep { local } => here = local.weight,
                    Drop => here = Weight::ZERO,
                }
            }
            let is_lost = is_last_copy && actions.last() == Some(&Drop) && there == Weight::ZERO;
            let expected = if is_lost { 0 } else { local + global };
            assert_eq!(here + directory + there, weight(expected));
            assert_eq!(actions.iter().filter(|action| matches!(action, Drop | Keep { .. })).count(), 1);
        }
    }
}
