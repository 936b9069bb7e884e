//! Extends [`Cooperation`] by the operations that a run on a simulated network needs.

use serde::Serialize;
use shoal_policy::eviction::Eviction;
use shoal_sim::cluster::{
    Cooperation, Directory, DirectoryGwf, Hierarchy, Layers, NodeIndex, Solo, StorageC2p, Wanted,
};
use shoal_sim::{Block, Cache};

/// Room of a node by layer, in bytes. A node without layers has only the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Room {
    /// Room for blocks that the node's own clients read.
    pub l1_capacity_bytes: u64,
    /// Of this, taken.
    pub l1_used_bytes: u64,
    /// Room for blocks whose home is the node.
    pub l2_capacity_bytes: u64,
    /// Of this, taken.
    pub l2_used_bytes: u64,
}

impl Room {
    /// The room of a node without layers.
    fn of<P: Eviction<Block> + ?Sized>(cache: &Cache<P>) -> Self {
        Self {
            l1_capacity_bytes: cache.capacity_bytes(),
            l1_used_bytes: cache.used_bytes(),
            ..Self::default()
        }
    }
}

/// Nodes on a simulated network, where blocks take time.
pub trait Simulated: Cooperation {
    /// Records that the block was requested while it was on its way, and is served from the copy that has
    /// arrived.
    fn joined(&mut self, wanted: &Wanted);

    /// Records that the node waits for the block, which another node fetches from the lake.
    fn waits(&mut self, _wanted: &Wanted) {}

    /// The room of `node`.
    fn room(&self, node: NodeIndex) -> Room;
}

impl Simulated for Solo {
    fn joined(&mut self, wanted: &Wanted) {
        self.caches[wanted.node].serve(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        Room::of(&self.caches[node])
    }
}

impl Simulated for Directory {
    fn joined(&mut self, wanted: &Wanted) {
        self.caches[wanted.node].serve(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        Room::of(&self.caches[node])
    }
}

impl Simulated for DirectoryGwf {
    fn joined(&mut self, wanted: &Wanted) {
        self.caches[wanted.node].serve(wanted);
    }

    fn waits(&mut self, wanted: &Wanted) {
        self.comes_from_peer(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        Room::of(&self.caches[node])
    }
}

impl Simulated for StorageC2p {
    fn joined(&mut self, wanted: &Wanted) {
        self.caches[wanted.node].serve(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        Room::of(&self.caches[node])
    }
}

impl Simulated for Hierarchy {
    fn joined(&mut self, wanted: &Wanted) {
        let layers = &mut self.nodes[wanted.node];
        // The block is in one of them, or was refused.
        let _held = layers.l1.serve(wanted) || layers.l2.serve(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        let Layers { l1, l2 } = &self.nodes[node];
        Room {
            l1_capacity_bytes: l1.capacity_bytes(),
            l1_used_bytes: l1.used_bytes(),
            l2_capacity_bytes: l2.capacity_bytes(),
            l2_used_bytes: l2.used_bytes(),
        }
    }
}
