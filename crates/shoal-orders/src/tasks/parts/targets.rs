//! Which nodes are to hold the blocks of a task.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_cache::cooperation::Cooperation;
use shoal_net::membership::Members;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::ring::Ring;
use shoal_policy::{BlockId, Layer, NodeId};

/// Assigns blocks to the nodes of a place, as they are alive.
pub struct Targets {
    cooperation: Arc<Cooperation>,
    place: Option<String>,
    current: Mutex<Current>,
}

struct Current {
    members: Members,
    ring: Option<(Arc<Ring>, Layer)>,
}

impl Targets {
    /// The nodes at `place`; without one, the homes of the widest layer.
    pub fn new(cooperation: &Arc<Cooperation>, place: Option<String>) -> Self {
        let targets = Self {
            cooperation: Arc::clone(cooperation),
            current: Mutex::new(Current {
                members: Members::default(),
                ring: None,
            }),
            place,
        };
        targets.renew(&mut targets.current.lock(), cooperation.members());
        targets
    }

    /// The node that is to hold a block, and the layer in which it is asked for it. `None` if no such node
    /// can be asked.
    pub fn of(&self, block: BlockId) -> Option<(NodeId, Layer)> {
        let (ring, layer) = self.ring()?;
        let node = ring.home_among(block.place(), |node| self.cooperation.can_be_asked(node))?;
        Some((node, layer))
    }

    /// All nodes that are to hold blocks.
    pub fn nodes(&self) -> Vec<NodeId> {
        let ring = self.ring();
        let weights = ring.iter().flat_map(|(ring, _)| ring.weights());
        weights
            .filter(|(_, weight)| **weight > 0)
            .map(|(node, _)| *node)
            .collect()
    }

    fn ring(&self) -> Option<(Arc<Ring>, Layer)> {
        let members = self.cooperation.members();
        let mut current = self.current.lock();
        if !Arc::ptr_eq(&members, &current.members) {
            self.renew(&mut current, members);
        }
        current.ring.clone()
    }

    fn renew(&self, current: &mut Current, members: Members) {
        let ring = self.cooperation.ring_at(self.place.as_deref());
        current.ring = ring.map(|(ring, layer)| (Arc::new(ring), layer));
        current.members = members;
    }
}
