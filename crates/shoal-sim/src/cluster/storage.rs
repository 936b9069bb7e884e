//! Storage nodes with a cache in front of their disks (C2P, section 4): each block is stored on one node, and only that one answers for it.
//!
//! The disk is the lake of its node. Blocks are placed by their fingerprint: evenly in the mean and unevenly in each case, as a ring does.

use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::policy::AnyPolicy;

/// Storage nodes whose caches do not know each other.
#[derive(Debug)]
pub struct Storage {
    caches: Vec<Cache<AnyPolicy>>,
}

impl Storage {
    /// One node for each of `caches`.
    pub const fn new(caches: Vec<Cache<AnyPolicy>>) -> Self {
        Self { caches }
    }
}

/// The node of `nodes` that stores `block`.
pub(super) const fn placed(block: Block, nodes: usize) -> NodeIndex {
    (block.fingerprint().0 % nodes as u64) as NodeIndex
}

impl Cooperation for Storage {
    fn answering(&self, _node: NodeIndex, block: Block) -> NodeIndex {
        placed(block, self.caches.len())
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

    fn joined(&mut self, wanted: &Wanted) {
        self.caches[wanted.node].serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        let node = placed(block, self.caches.len());
        self.caches[node].remove(block);
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.caches[node].room()
    }
}
