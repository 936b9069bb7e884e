//! Nodes that share a directory of holders: a node fetches a block from any holder before it asks the lake.
//!
//! These are the two fixed rules with which D4N is compared (dissertation 6.4.2), named there after Alluxio's
//! settings.

use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::chance::Chance;
use shoal_policy::eviction::Named;
use shoal_policy::hash::KeyMap;

/// The maximum number of nodes in a directory.
pub const NODES_MAX: usize = 256;

/// The number of nodes in a group of [`Holders`]: the bits of its sets.
const GROUP_NODES: usize = 128;

/// The rule for a block fetched from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// All-1R: only the node that fetched the block from the lake keeps it.
    Never,
    /// All-AR: every node that reads it keeps it.
    Always,
}

/// Nodes with a directory and a fixed rule.
#[derive(Debug)]
pub struct Directory {
    caches: Vec<Cache<Named<Block>>>,
    replication: Replication,
    holders: Holders,
    claims: Claims,
    chance: Chance,
}

/// The holders of each block, as sets of bits: the first group has those among nodes 0 to 127, and so on.
///
/// A small cluster has one group and no unused bits.
#[derive(Clone, Debug)]
pub(super) struct Holders {
    groups: Vec<KeyMap<Block, u128>>,
}

impl Holders {
    /// No holders yet among `nodes`.
    ///
    /// # Panics
    ///
    /// If there are more nodes than [`NODES_MAX`].
    pub(super) fn new(nodes: usize) -> Self {
        assert!(nodes <= NODES_MAX, "a directory has room for {NODES_MAX} nodes");
        Self {
            groups: vec![KeyMap::default(); nodes.div_ceil(GROUP_NODES)],
        }
    }

    pub(super) fn add(&mut self, block: Block, node: NodeIndex) {
        let (group, bit) = place(node);
        *self.groups[group].entry(block).or_default() |= bit;
    }

    pub(super) fn remove(&mut self, block: Block, node: NodeIndex) {
        let (group, bit) = place(node);
        let group = &mut self.groups[group];
        if let Some(nodes) = group.get_mut(&block) {
            *nodes &= !bit;
            if *nodes == 0 {
                group.remove(&block);
            }
        }
    }

    /// Returns true if `node` is the only holder of `block`.
    pub(super) fn is_last(&self, block: Block, node: NodeIndex) -> bool {
        let (here, bit) = place(node);
        let mut groups = self.groups.iter().enumerate();
        groups.all(|(group, holders)| {
            let alone = if group == here { Some(&bit) } else { None };
            holders.get(&block) == alone
        })
    }

    /// A random holder of `block`, each equally likely (`rand` in dissertation Algorithm 3, line 17).
    pub(super) fn any(&self, block: Block, chance: &mut Chance) -> Option<NodeIndex> {
        let held = |group: &KeyMap<Block, u128>| group.get(&block).copied().unwrap_or(0);
        let holders: u32 = self.groups.iter().map(|group| held(group).count_ones()).sum();
        if holders == 0 {
            return None;
        }
        let mut skip = chance.below(u64::from(holders)) as u32;
        for (group, mut nodes) in self.groups.iter().map(held).enumerate() {
            if skip >= nodes.count_ones() {
                skip -= nodes.count_ones();
                continue;
            }
            for _ in 0..skip {
                nodes &= nodes - 1;
            }
            return Some(group * GROUP_NODES + nodes.trailing_zeros() as NodeIndex);
        }
        unreachable!("fewer holders are skipped than there are")
    }
}

/// The group of `node`, and its bit there.
const fn place(node: NodeIndex) -> (usize, u128) {
    (node / GROUP_NODES, 1 << (node % GROUP_NODES))
}

/// The node that fetches each block from the lake, if nodes claim the blocks that they fetch.
///
/// Without claims, nodes that miss a block together each fetch it, as in the dissertation. With them, a node
/// waits for the claimant and reads the block from it, as in Shoal
/// (`docs/decisions/0029-a-directory-of-soft-entries.md`).
#[derive(Clone, Debug)]
pub(super) struct Claims {
    claimants: Option<KeyMap<Block, NodeIndex>>,
}

impl Claims {
    /// Creates an empty set of claims. Without `enabled` it stays empty.
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            claimants: enabled.then(KeyMap::default),
        }
    }

    /// The route of a block that no node holds: through the node that is already fetching it, or from the
    /// lake, claimed by `node`.
    pub(super) fn route(&mut self, block: Block, node: NodeIndex) -> Route {
        let claimant = self
            .claimants
            .as_mut()
            .map(|claimants| *claimants.entry(block).or_insert(node));
        Route::Lake {
            through: claimant.filter(|&claimant| claimant != node),
        }
    }

    /// Ends the claim on a block that has arrived from the lake.
    pub(super) fn landed(&mut self, arrival: &Arrival) {
        if let (Some(claimants), Route::Lake { through: None }) = (&mut self.claimants, arrival.route) {
            claimants.remove(&arrival.wanted.block);
        }
    }
}

impl Directory {
    /// One node for each of `caches`, at most 256; `chance` chooses among holders. With `claims`, a block is
    /// fetched from the lake by one node at a time.
    pub fn new(
        caches: Vec<Cache<Named<Block>>>,
        replication: Replication,
        claims: bool,
        chance: Chance,
    ) -> Self {
        Self {
            holders: Holders::new(caches.len()),
            caches,
            replication,
            claims: Claims::new(claims),
            chance,
        }
    }
}

impl Cooperation for Directory {
    fn route(&mut self, wanted: &Wanted) -> Route {
        if self.caches[wanted.node].serve(wanted) {
            return Route::Local;
        }
        match self.holders.any(wanted.block, &mut self.chance) {
            Some(from) => {
                self.caches[from].serve(wanted);
                Route::Peer { from }
            }
            None => self.claims.route(wanted.block, wanted.node),
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        self.claims.landed(arrival);
        let keeps = match arrival.route {
            Route::Local => false,
            Route::Peer { .. } => self.replication == Replication::Always,
            Route::Lake { .. } => true,
        };
        let Wanted { node, block, .. } = arrival.wanted;
        if keeps && self.caches[node].keep(arrival, |victim| self.holders.remove(victim, node)) {
            self.holders.add(block, node);
        }
        Vec::new()
    }

    fn joined(&mut self, wanted: &Wanted) {
        self.caches[wanted.node].serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        for (node, cache) in self.caches.iter_mut().enumerate() {
            if cache.remove(block) {
                self.holders.remove(block, node);
            }
        }
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.caches[node].room()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arrival, Route, Wanted};
    use super::{Claims, Holders, NODES_MAX};
    use crate::block::Block;
    use crate::chance::Chance;
    use crate::clock::Time;

    const BLOCK: Block = Block { object: 1, index: 2 };

    #[test]
    fn every_holder_is_named_equally_often_whichever_group_it_is_in() {
        let holding = [0, 5, 127, 128, 200, NODES_MAX - 1];
        let (mut holders, mut chance) = (Holders::new(NODES_MAX), Chance::new(1));
        assert_eq!(holders.any(BLOCK, &mut chance), None);
        for node in holding {
            holders.add(BLOCK, node);
        }
        let mut named = [0; NODES_MAX];
        for _ in 0..6_000 {
            named[holders.any(BLOCK, &mut chance).unwrap()] += 1;
        }
        for (node, times) in named.into_iter().enumerate() {
            let expected = if holding.contains(&node) { 900..1_100 } else { 0..1 };
            assert!(expected.contains(&times), "node {node}: {times} of 6,000");
        }
    }

    #[test]
    fn the_last_holder_is_known_across_groups() {
        let mut holders = Holders::new(NODES_MAX);
        // Nodes 3 and 131 have the same bit in different groups.
        for node in [3, 131] {
            holders.add(BLOCK, node);
            assert_eq!(holders.is_last(BLOCK, node), node == 3);
        }
        holders.remove(BLOCK, 3);
        assert!(holders.is_last(BLOCK, 131) && !holders.is_last(BLOCK, 3));
        holders.remove(BLOCK, 131);
        assert!(!holders.is_last(BLOCK, 131));
        assert_eq!(holders.any(BLOCK, &mut Chance::new(1)), None);
    }

    #[test]
    fn a_claim_lasts_until_the_block_has_come_from_the_lake() {
        let mut claims = Claims::new(true);
        let lake = |through| Route::Lake { through };
        assert_eq!(claims.route(BLOCK, 0), lake(None));
        assert_eq!(claims.route(BLOCK, 1), lake(Some(0)));
        let arrival = |node, route| Arrival {
            wanted: Wanted {
                node,
                block: BLOCK,
                bytes: 1,
                object_blocks: 3,
                now: Time::ZERO,
            },
            route,
            now: Time::ZERO,
        };
        claims.landed(&arrival(1, Route::Peer { from: 2 }));
        assert_eq!(
            claims.route(BLOCK, 1),
            lake(Some(0)),
            "that was from another node"
        );
        claims.landed(&arrival(0, lake(None)));
        assert_eq!(
            claims.route(BLOCK, 1),
            lake(None),
            "the block has left node 0 since"
        );
        let mut none = Claims::new(false);
        assert_eq!([0, 1].map(|node| none.route(BLOCK, node)), [lake(None); 2]);
    }
}
