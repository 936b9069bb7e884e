//! Nodes that share a directory of holders: a node fetches a block from any holder before it asks the lake.
//!
//! These are the two fixed rules with which D4N is compared (dissertation 6.4.2), named there after Alluxio's
//! settings.

use super::{Arrival, Cooperation, NodeIndex, Push, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::chance::Chance;
use shoal_policy::eviction::Named;
use shoal_policy::hash::KeyMap;

/// The maximum number of nodes in a directory: the number of one takes a byte.
pub const NODES_MAX: usize = 1 << u8::BITS;

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
    /// The cache of each node.
    pub caches: Vec<Cache<Named<Block>>>,
    replication: Replication,
    holders: Holders,
    chance: Chance,
}

/// The holders of each block, in the order of their numbers.
#[derive(Clone, Debug)]
pub(super) struct Holders(KeyMap<Block, Vec<u8>>);

impl Holders {
    /// No holders yet among `nodes`.
    ///
    /// # Panics
    ///
    /// If there are more nodes than [`NODES_MAX`].
    pub(super) fn new(nodes: usize) -> Self {
        assert!(nodes <= NODES_MAX, "a directory has room for {NODES_MAX} nodes");
        Self(KeyMap::default())
    }

    pub(super) fn add(&mut self, block: Block, node: NodeIndex) {
        let (holders, node) = (self.0.entry(block).or_default(), node as u8);
        if let Err(place) = holders.binary_search(&node) {
            holders.insert(place, node);
        }
    }

    pub(super) fn remove(&mut self, block: Block, node: NodeIndex) {
        if let Some(holders) = self.0.get_mut(&block) {
            holders.retain(|holder| *holder != node as u8);
            if holders.is_empty() {
                self.0.remove(&block);
            }
        }
    }

    /// Returns true if `node` is the only holder of `block`.
    pub(super) fn is_last(&self, block: Block, node: NodeIndex) -> bool {
        self.0.get(&block).is_some_and(|holders| *holders == [node as u8])
    }

    /// A random holder of `block`, each equally likely (`rand` in dissertation Algorithm 3, line 17).
    pub(super) fn any(&self, block: Block, chance: &mut Chance) -> Option<NodeIndex> {
        let holders = self.0.get(&block)?;
        let chosen = chance.below(holders.len() as u64) as usize;
        Some(holders[chosen].into())
    }
}

impl Directory {
    /// One node for each of `caches`, at most 256; `chance` chooses among holders.
    pub fn new(caches: Vec<Cache<Named<Block>>>, replication: Replication, chance: Chance) -> Self {
        Self {
            holders: Holders::new(caches.len()),
            caches,
            replication,
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
            None => Route::Lake { through: None },
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
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

    fn remove(&mut self, block: Block) {
        for (node, cache) in self.caches.iter_mut().enumerate() {
            if cache.remove(block) {
                self.holders.remove(block, node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Holders, NODES_MAX};
    use crate::block::Block;
    use crate::chance::Chance;

    const BLOCK: Block = Block { object: 1, index: 2 };

    #[test]
    fn every_holder_is_named_equally_often() {
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
    fn the_last_holder_is_known() {
        let mut holders = Holders::new(NODES_MAX);
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
}
