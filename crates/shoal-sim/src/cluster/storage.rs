//! Storage nodes with a cache in front of their disks (C2P, section 4): each block is stored on one node, and only that one answers for it.
//!
//! The disk is the lake of its node. Blocks are placed by their fingerprint: evenly in the mean and unevenly in each case, as a ring does.

use super::solo::Solo;
use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::policy::AnyPolicy;

/// Storage nodes whose caches do not know each other: lone nodes, but each block has one of them.
#[derive(Debug)]
pub struct Storage {
    nodes: Solo,
    count: usize,
}

impl Storage {
    /// One node for each of `caches`.
    pub const fn new(caches: Vec<Cache<AnyPolicy>>) -> Self {
        Self {
            count: caches.len(),
            nodes: Solo::new(caches),
        }
    }
}

/// The node of `nodes` that stores `block`.
pub(super) const fn placed(block: Block, nodes: usize) -> NodeIndex {
    (block.fingerprint().0 % nodes as u64) as NodeIndex
}

impl Cooperation for Storage {
    fn answering(&self, _node: NodeIndex, block: Block) -> NodeIndex {
        placed(block, self.count)
    }

    fn route(&mut self, wanted: &Wanted) -> Route {
        self.nodes.route(wanted)
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        self.nodes.landed(arrival)
    }

    fn joined(&mut self, wanted: &Wanted) {
        self.nodes.joined(wanted);
    }

    fn remove(&mut self, block: Block) {
        self.nodes.remove(block);
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.nodes.room(node)
    }
}
