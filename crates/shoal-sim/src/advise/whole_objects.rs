//! Compares how many objects readers find whole if homes evict the blocks of an object together (C2P).

use serde::Serialize;
use shoal_policy::Found;
use shoal_policy::eviction::c2p::Completeness;
use shoal_policy::eviction::{self, C2p};

use super::replay::{Replay, Trial};
use crate::cache::Cache;
use crate::cluster::{Placement, Solo, StorageC2p};
use crate::policy::PolicyName;
use crate::sources::Volume;

/// The seed of the choice of homes.
const SEED: u64 = 1;

/// The policies to try: the default of nodes, without and with C2P.
const POLICIES: [eviction::PolicyName; 2] = [eviction::PolicyName::Duel, eviction::PolicyName::C2pDuel];

/// Minimum share of multi-block reads that must become whole for C2P to be recommended.
const WORTHWHILE: f64 = 0.01;

/// Increase of the lake's traffic beyond which readers wait longer overall; the choice is then the user's.
const MORE_OF_THE_LAKE: f64 = 0.05;

/// Result of the reads under one policy, if each block has one home.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WholeOutcome {
    /// The policy of the homes.
    pub policy: PolicyName,
    /// Reads of several blocks that found all of them, some, and none.
    pub found: [u64; Found::ALL.len()],
    /// Blocks from the lake, for all reads.
    pub lake: Volume,
}

/// The recommendation for or against C2P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WholeChoice {
    /// More reads find all of their blocks, and the lake sends hardly more.
    Take,
    /// More reads find all, and the lake sends more.
    Weigh,
    /// No more, or hardly more, reads find all.
    Keep,
    /// No read covers several blocks.
    NoneWanted,
}

impl WholeOutcome {
    /// The reads of several blocks.
    pub const fn reads(&self) -> u64 {
        let [complete, partial, nothing] = self.found;
        complete + partial + nothing
    }

    /// The share of these reads.
    pub fn share(&self, found: Found) -> f64 {
        self.found[found as usize] as f64 / self.reads().max(1) as f64
    }
}

/// Chooses between the outcomes without and with C2P.
pub(super) fn choose([alone, above]: [WholeOutcome; 2]) -> WholeChoice {
    let more_found = above.share(Found::Complete) - alone.share(Found::Complete);
    let more_read = above.lake.bytes as f64 > alone.lake.bytes as f64 * (1.0 + MORE_OF_THE_LAKE);
    if alone.reads() == 0 {
        WholeChoice::NoneWanted
    } else if more_found < WORTHWHILE {
        WholeChoice::Keep
    } else if more_read {
        WholeChoice::Weigh
    } else {
        WholeChoice::Take
    }
}

impl WholeOutcome {
    /// The outcome of a replay on homes that evict by `policy`.
    pub(super) fn new(policy: eviction::PolicyName, replay: &Replay) -> Self {
        Self {
            policy: PolicyName::OfStores(policy),
            found: replay.found,
            lake: replay.sources.lake,
        }
    }
}

/// Empty homes for each policy. A home fetches what it does not hold from the lake.
pub(super) fn homes(trial: Trial) -> [(eviction::PolicyName, Replay); 2] {
    let (nodes, bytes) = (trial.nodes as usize, trial.node_bytes);
    POLICIES.map(|policy| {
        let placement = Placement::new(nodes, SEED);
        let homes = if policy.is_c2p() {
            let above = move || C2p::above(policy.build_below(), Completeness::Read);
            trial.on(StorageC2p::new(nodes, placement, bytes, above))
        } else {
            let caches = (0..nodes).map(|_| Cache::new(bytes, PolicyName::OfStores(policy).build()));
            trial.on(Solo::new(caches.collect(), Some(placement)))
        };
        (policy, homes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_that_nodes_follow_is_tried_alone_and_below_c2p() {
        assert_eq!(PolicyName::OfStores(POLICIES[0]), PolicyName::of_nodes());
        assert!(POLICIES[1].is_c2p());
        assert_eq!(POLICIES[1].alone(), POLICIES[0]);
    }

    #[test]
    fn c2p_is_taken_for_more_whole_reads_unless_the_lake_pays_for_them() {
        let outcome = |policy, found, bytes| WholeOutcome {
            policy: PolicyName::OfStores(policy),
            found,
            lake: Volume { requests: 1, bytes },
        };
        let choice = |found, bytes| {
            choose([
                outcome(POLICIES[0], [500, 100, 400], 1_000),
                outcome(POLICIES[1], found, bytes),
            ])
        };
        assert_eq!(choice([560, 10, 430], 1_040), WholeChoice::Take);
        assert_eq!(choice([560, 10, 430], 1_100), WholeChoice::Weigh);
        assert_eq!(choice([505, 10, 485], 900), WholeChoice::Keep);
        assert_eq!(choice([400, 300, 300], 900), WholeChoice::Keep);
        let none = outcome(POLICIES[0], [0; 3], 7);
        assert_eq!(choose([none; 2]), WholeChoice::NoneWanted);
    }
}
