//! Assigns the blocks of a task to the nodes that are to hold them.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_cache::cooperation::Cooperation;
use shoal_net::membership::Members;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::ring::Ring;
use shoal_policy::{BlockId, Layer, NodeId};

/// Assigns blocks to the living nodes of a place.
pub struct Targets {
    cooperation: Arc<Cooperation>,
    place: Option<String>,
    /// The members, and the ring of those at the place with its layer.
    ring: Mutex<Option<(Members, PlaceRing)>>,
}

/// The ring of a place and its layer; `None` if no node there can hold blocks.
type PlaceRing = Option<(Arc<Ring>, Layer)>;

impl Targets {
    /// Assigns blocks to the nodes at `place`; without one, to the homes of the widest layer.
    pub fn new(cooperation: &Arc<Cooperation>, place: Option<String>) -> Self {
        Self {
            cooperation: Arc::clone(cooperation),
            place,
            ring: Mutex::default(),
        }
    }

    /// Returns the node that is to hold a block, and the layer in which it is asked for it; `None` if no such
    /// node can be asked.
    pub fn of(&self, block: BlockId) -> Option<(NodeId, Layer)> {
        let (ring, layer) = self.ring()?;
        let node = ring.home_among(block.place(), |node| self.cooperation.can_be_asked(node))?;
        Some((node, layer))
    }

    /// Returns all nodes that are to hold blocks.
    pub fn nodes(&self) -> Vec<NodeId> {
        let ring = self.ring();
        let weights = ring.iter().flat_map(|(ring, _)| ring.weights());
        weights
            .filter(|(_, weight)| **weight > 0)
            .map(|(node, _)| *node)
            .collect()
    }

    fn ring(&self) -> PlaceRing {
        let (members, mut current) = (self.cooperation.members(), self.ring.lock());
        if !matches!(&*current, Some((known, _)) if Arc::ptr_eq(known, &members)) {
            let ring = self.cooperation.ring_at(self.place.as_deref());
            *current = Some((members, ring.map(|(ring, layer)| (Arc::new(ring), layer))));
        }
        current.as_ref()?.1.clone()
    }
}
