//! Nodes that share a directory of holders: a node fetches a block from any holder before it asks the lake.
//!
//! These are the two fixed rules with which D4N is compared (dissertation 6.4.2), named there after Alluxio's
//! settings.

use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::chance::Chance;
use crate::hash::NumberMap;
use crate::policy::AnyPolicy;

/// The maximum number of nodes in a directory.
pub(super) const NODES_MAX: usize = 128;

/// Whether a node keeps a block that it fetched from another node.
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
    caches: Vec<Cache<AnyPolicy>>,
    replication: Replication,
    holders: Holders,
    chance: Chance,
}

/// The holders of each block.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    nodes: NumberMap<Block, u128>,
}

impl Holders {
    pub(super) fn add(&mut self, block: Block, node: NodeIndex) {
        *self.nodes.entry(block).or_default() |= 1 << node;
    }

    pub(super) fn remove(&mut self, block: Block, node: NodeIndex) {
        if let Some(nodes) = self.nodes.get_mut(&block) {
            *nodes &= !(1 << node);
            if *nodes == 0 {
                self.nodes.remove(&block);
            }
        }
    }

    /// Whether `node` is the only holder of `block`.
    pub(super) fn is_last(&self, block: Block, node: NodeIndex) -> bool {
        self.nodes.get(&block) == Some(&(1 << node))
    }

    /// A random holder of `block`, each equally likely (`rand` in dissertation Algorithm 3, line 17).
    pub(super) fn any(&self, block: Block, chance: &mut Chance) -> Option<NodeIndex> {
        let mut nodes = *self.nodes.get(&block)?;
        for _ in 0..chance.below(u64::from(nodes.count_ones())) {
            nodes &= nodes - 1;
        }
        Some(nodes.trailing_zeros() as NodeIndex)
    }
}

impl Directory {
    /// One node for each of `caches`, at most 128; `chance` chooses among holders.
    pub fn new(caches: Vec<Cache<AnyPolicy>>, replication: Replication, chance: Chance) -> Self {
        assert!(
            caches.len() <= NODES_MAX,
            "a directory has room for {NODES_MAX} nodes"
        );
        Self {
            caches,
            replication,
            holders: Holders::default(),
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
