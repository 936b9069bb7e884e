//! Two layers (D3N, dissertation 4.4): L1 holds blocks that a node's own clients read; L2 holds blocks whose
//! home is the node, for all nodes.
//!
//! Layers do not overlap: a block at home on a node is in its L2, whichever client reads it, so that it is
//! stored once. A block that comes from the lake is kept by its home and by the reader's node.

use shoal_policy::NodeId;
use shoal_policy::eviction::Named;
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};

use super::{Arrival, Cooperation, NodeIndex, Push, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::policy::PolicyName;

/// Nodes in two layers.
#[derive(Debug)]
pub struct Hierarchy {
    /// The layers of each node.
    pub nodes: Vec<Layers>,
    ring: Ring,
}

/// The layers of a node.
#[derive(Debug)]
pub struct Layers {
    /// Blocks that the node's own clients read.
    pub l1: Cache<Named<Block>>,
    /// Blocks whose home is the node.
    pub l2: Cache<Named<Block>>,
}

impl Hierarchy {
    /// Creates `nodes` with `capacity_bytes` each, of which `l1_share` is L1's. 0 is "L2 only".
    pub fn new(nodes: usize, capacity_bytes: u64, l1_share: f64, policy: PolicyName) -> Self {
        #[expect(clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
        let l1_bytes = (capacity_bytes as f64 * l1_share).round() as u64;
        let layers = |_| Layers {
            l1: Cache::new(l1_bytes, policy.build()),
            l2: Cache::new(capacity_bytes.saturating_sub(l1_bytes), policy.build()),
        };
        let ids = (0..nodes as u64).map(|node| (NodeId(node), ORDINARY_WEIGHT));
        Self {
            nodes: (0..nodes).map(layers).collect(),
            ring: Ring::new(ids.collect()),
        }
    }

    /// The node in whose L2 `block` is kept.
    pub fn home(&self, block: Block) -> NodeIndex {
        let NodeId(node) = self
            .ring
            .home(block.fingerprint())
            .expect("a ring with nodes has a home for all");
        node as NodeIndex
    }
}

impl Cooperation for Hierarchy {
    fn route(&mut self, wanted: &Wanted) -> Route {
        let home = self.home(wanted.block);
        if home == wanted.node {
            return if self.nodes[home].l2.serve(wanted) {
                Route::Local
            } else {
                Route::Lake { through: None }
            };
        }
        if self.nodes[wanted.node].l1.serve(wanted) {
            Route::Local
        } else if self.nodes[home].l2.serve(wanted) {
            Route::Peer { from: home }
        } else {
            Route::Lake { through: Some(home) }
        }
    }

    fn filled(&mut self, home: NodeIndex, arrival: &Arrival) {
        self.nodes[home].l2.keep(arrival, |_| ());
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        let layers = &mut self.nodes[arrival.wanted.node];
        let layer = match arrival.route {
            Route::Lake { through: None } => &mut layers.l2,
            _ => &mut layers.l1,
        };
        layer.keep(arrival, |_| ());
        Vec::new()
    }

    fn remove(&mut self, block: Block) {
        for layers in &mut self.nodes {
            layers.l1.remove(block);
            layers.l2.remove(block);
        }
    }
}
