//! Compares how many objects readers find whole if homes evict the blocks of an object together (C2P).

use serde::Serialize;
use shoal_policy::Found;
use shoal_policy::eviction::c2p::Completeness;
use shoal_policy::eviction::{self, C2p};

use crate::block::{Block, Granularity};
use crate::cache::Cache;
use crate::clock::Time;
use crate::cluster::{Arrival, Cooperation, Placement, Route, Solo, StorageC2p, Wanted};
use crate::policy::PolicyName;
use crate::sources::Volume;
use crate::trace::{Access, Operation};

/// The seed of the choice of homes.
const SEED: u64 = 1;

/// The policies to try: the default of nodes, without and with C2P.
const POLICIES: [eviction::PolicyName; 2] = [eviction::PolicyName::Duel, eviction::PolicyName::C2pDuel];

/// Minimum share of multi-block reads that must become whole for C2P to be recommended.
const WORTHWHILE: f64 = 0.01;

/// Increase of the lake's traffic beyond which readers wait longer overall; the choice is then the user's.
const MORE_OF_THE_LAKE: f64 = 0.05;

/// The pause between two reads of a trace without times.
const PAUSE_NS: u64 = 10_000_000;

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

/// Homes of blocks, and the result of the reads so far.
pub(super) struct WholeReads {
    homes: Box<dyn Cooperation>,
    nodes: u32,
    granularity: Granularity,
    outcome: WholeOutcome,
    reads: u64,
    events_at: Time,
}

impl WholeReads {
    /// Empty homes for each policy.
    pub(super) fn to_try(nodes: u32, node_bytes: u64, granularity: Granularity) -> [Self; 2] {
        POLICIES.map(|policy| Self {
            homes: homes(policy, nodes as usize, node_bytes),
            nodes,
            granularity,
            outcome: WholeOutcome {
                policy: PolicyName::OfStores(policy),
                found: [0; Found::ALL.len()],
                lake: Volume::default(),
            },
            reads: 0,
            events_at: Time::ZERO,
        })
    }

    /// Replays one request. A home fetches what it does not hold from the lake, at once.
    pub(super) fn replay(&mut self, access: &Access) {
        let object_blocks = self.granularity.count(access.object_bytes);
        if access.operation != Operation::Read {
            let object = access.object;
            (0..object_blocks).for_each(|index| self.homes.remove(Block { object, index }));
            return;
        }
        self.reads += 1;
        let now = if access.at == Time::ZERO {
            Time(self.reads * PAUSE_NS)
        } else {
            access.at
        };
        self.exchange_events(now);
        let (mut wanted_blocks, mut held) = (0, 0);
        for (block, bytes) in self.granularity.blocks_of(access) {
            let wanted = Wanted {
                node: self.homes.answering((access.client % self.nodes) as usize, block),
                block,
                bytes,
                object_blocks,
                now,
            };
            let route = self.homes.route(&wanted);
            wanted_blocks += 1;
            if route == Route::Local {
                held += 1;
                continue;
            }
            self.outcome.lake.requests += 1;
            self.outcome.lake.bytes += bytes;
            self.homes.landed(&Arrival { wanted, route, now });
        }
        let found = match held {
            _ if wanted_blocks < 2 => return,
            0 => Found::Nothing,
            held if held == wanted_blocks => Found::Complete,
            _ => Found::Partial,
        };
        self.outcome.found[found as usize] += 1;
    }

    fn exchange_events(&mut self, now: Time) {
        let Some(period) = self.homes.period() else {
            return;
        };
        if now >= self.events_at {
            self.events_at = now + period;
            self.homes.adapt(now);
        }
    }

    /// Result of the reads so far.
    pub(super) const fn outcome(&self) -> WholeOutcome {
        self.outcome
    }
}

fn homes(policy: eviction::PolicyName, nodes: usize, node_bytes: u64) -> Box<dyn Cooperation> {
    if policy.is_c2p() {
        let above = move || C2p::above(policy.build_below(), Completeness::Read);
        let placement = Placement::new(nodes, SEED);
        return Box::new(StorageC2p::new(nodes, placement, node_bytes, above, false));
    }
    let alone = || PolicyName::OfStores(policy).build();
    let caches = (0..nodes).map(|_| Cache::new(node_bytes, alone()));
    Box::new(Solo::with_storage(caches.collect(), SEED))
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
