//! Two layers (D3N, dissertation 4.4): L1 holds what a node's own clients read, L2 what has its home on the node, for all of them.
//!
//! A node divides its room between the two. Both layers lie in one store, so a block that both of them list is stored once, and
//! leaves when both have let it go (4.4.1, 4.4.3): what either lists can be served to whoever asks. A block that comes from the lake is listed
//! by its home's L2 and by the reader's L1.

use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::policy::{AnyPolicy, PolicyName};

/// Nodes in two layers with fixed shares.
#[derive(Debug)]
pub struct Hierarchy {
    nodes: Vec<Layers>,
}

#[derive(Debug)]
struct Layers {
    l1: Cache<AnyPolicy>,
    l2: Cache<AnyPolicy>,
}

impl Layers {
    /// Uses the copy that is here for a block whose home this is, whichever layer lists it.
    fn serve_home(&mut self, wanted: &Wanted) -> bool {
        if self.l2.serve(wanted) {
            return true;
        }
        let here = self.l1.contains(wanted.block);
        if here {
            let arrival = Arrival {
                wanted: *wanted,
                route: Route::Local,
                now: wanted.now,
            };
            self.l2.keep(&arrival, |_| ());
        }
        here
    }
}

impl Hierarchy {
    /// `nodes` with `capacity_bytes` each, of which `l1_share` is the first layer's: 0 is "L2 only", 1 is every node for itself.
    pub fn new(nodes: usize, capacity_bytes: u64, l1_share: f64, policy: PolicyName) -> Self {
        assert!((0.0..=1.0).contains(&l1_share), "a share is between 0 and 1");
        #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
        let l1_bytes = ((capacity_bytes as f64 * l1_share).round() as u64).min(capacity_bytes);
        let layers = |_| Layers {
            l1: Cache::new(l1_bytes, policy.build()),
            l2: Cache::new(capacity_bytes - l1_bytes, policy.build()),
        };
        Self {
            nodes: (0..nodes).map(layers).collect(),
        }
    }

    const fn home(&self, block: Block) -> NodeIndex {
        super::storage::placed(block, self.nodes.len())
    }
}

impl Cooperation for Hierarchy {
    fn route(&mut self, wanted: &Wanted) -> Route {
        let home = self.home(wanted.block);
        if self.nodes[wanted.node].l1.serve(wanted) {
            return Route::Local;
        }
        let held = self.nodes[home].serve_home(wanted);
        match (held, home == wanted.node) {
            (true, true) => Route::Local,
            (true, false) => Route::Peer { from: home },
            (false, true) => Route::Lake { through: None },
            (false, false) => Route::Lake { through: Some(home) },
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        let Wanted { node, block, .. } = arrival.wanted;
        if matches!(arrival.route, Route::Lake { .. }) {
            let home = self.home(block);
            self.nodes[home].l2.keep(arrival, |_| ());
        }
        self.nodes[node].l1.keep(arrival, |_| ());
        Vec::new()
    }

    fn joined(&mut self, wanted: &Wanted) {
        self.nodes[wanted.node].l1.serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        for layers in &mut self.nodes {
            layers.l1.remove(block);
            layers.l2.remove(block);
        }
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
