//! Nodes whose caches do not know each other: what a node does not hold comes from the lake.
//!
//! Of storage nodes with a cache in front of their disks (C2P, section 4), each block is stored on one node,
//! and only that node answers for it. The disk is the lake of its node. Blocks are placed at random: evenly
//! on average and unevenly in each case, as a ring does.

use shoal_policy::eviction::Named;
use shoal_policy::fingerprint::Fingerprint;

use super::{Arrival, Cooperation, NodeIndex, Push, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;

/// Nodes that know nothing of each other.
#[derive(Debug)]
pub struct Solo {
    /// The cache of each node.
    pub caches: Vec<Cache<Named<Block>>>,
    /// Of storage nodes, the one that answers for each block.
    placement: Option<Placement>,
}

/// The node that stores each block.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    nodes: u64,
    seed: u64,
}

impl Solo {
    /// One node for each of `caches`; of storage nodes, `placement` decides which node stores which block.
    pub const fn new(caches: Vec<Cache<Named<Block>>>, placement: Option<Placement>) -> Self {
        Self { caches, placement }
    }
}

impl Placement {
    /// A placement on `nodes`, different for each seed.
    pub const fn new(nodes: usize, seed: u64) -> Self {
        Self {
            nodes: nodes as u64,
            seed,
        }
    }

    /// The node that stores `block`.
    pub const fn node_of(self, block: Block) -> NodeIndex {
        let Fingerprint(number) = Fingerprint::of_number(block.fingerprint().0.wrapping_add(self.seed));
        (number % self.nodes) as NodeIndex
    }
}

impl Cooperation for Solo {
    fn answering(&self, node: NodeIndex, block: Block) -> NodeIndex {
        self.placement.map_or(node, |placement| placement.node_of(block))
    }

    fn route(&mut self, wanted: &Wanted) -> Route {
        if self.caches[wanted.node].serve(wanted) {
            Route::Local
        } else {
            Route::Lake { through: None }
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        if arrival.route != Route::Local {
            self.caches[arrival.wanted.node].keep(arrival, |_| ());
        }
        Vec::new()
    }

    fn remove(&mut self, block: Block) {
        for cache in &mut self.caches {
            cache.remove(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Placement;
    use crate::block::Block;

    #[test]
    fn every_seed_places_blocks_anew_and_evenly_in_the_mean() {
        let blocks = (0..8000).map(|object| Block { object, index: 0 });
        let placed = |seed| {
            blocks
                .clone()
                .map(move |block| Placement::new(8, seed).node_of(block))
        };
        let agreed = placed(1)
            .zip(placed(2))
            .filter(|(one, other)| one == other)
            .count();
        assert!(
            (900..1100).contains(&agreed),
            "{agreed} of 8,000 lie on the same node"
        );
        for node in 0..8 {
            let stored = placed(1).filter(|&on| on == node).count();
            assert!((900..1100).contains(&stored), "node {node} stores {stored}");
        }
    }
}
