//! Block events that nodes exchange to keep objects complete across the cluster
//! ([`shoal_policy::eviction::C2p`]).

use std::collections::HashSet;
use std::sync::Arc;

use shoal_policy::eviction::c2p::GROUP_BLOCKS;
use shoal_policy::{BlockId, Layer, NodeId};

use super::ledger::{CacheEvent, GroupKnowledge, LayerGroup, Ledger};

/// The events of a store's blocks, and those received from other nodes. All methods are no-ops under a policy
/// without C2P.
pub struct CacheEvents {
    ledger: Arc<Ledger>,
}

/// Removes nodes that are gone, in steps: there may be a million groups, so readers get the lock between
/// steps.
#[must_use = "nothing is forgotten before it goes on"]
pub struct Forgetting {
    ledger: Arc<Ledger>,
    /// Not yet examined.
    groups: Vec<LayerGroup>,
    kept: HashSet<NodeId>,
}

/// Number of groups examined per acquisition of the lock.
const BATCH: usize = 256;

impl Forgetting {
    /// Examines the next groups. Returns true if there are more.
    pub fn go_on(&mut self) -> bool {
        self.ledger.forget_nodes(&mut self.groups, BATCH, &self.kept);
        !self.groups.is_empty()
    }
}

impl CacheEvents {
    pub(super) fn new(ledger: &Arc<Ledger>) -> Self {
        Self {
            ledger: Arc::clone(ledger),
        }
    }

    /// Starts recording events for [`CacheEvents::take`]. Returns true if the store's policy produces events.
    pub fn keep(&self) -> bool {
        self.ledger.keep_cache_events()
    }

    /// Takes the recorded events, in order within each layer. Times are since 1970.
    pub fn take(&self) -> Vec<CacheEvent> {
        self.ledger.take_cache_events()
    }

    /// The number of events dropped because they were not taken in time.
    pub fn lost(&self) -> u64 {
        self.ledger.lost_cache_events()
    }

    /// Applies events received from another node.
    pub fn receive(&self, node: NodeId, events: &[CacheEvent]) {
        self.ledger.receive(node, events);
    }

    /// Returns true if the store's policy uses C2P.
    pub fn are_of_use(&self) -> bool {
        self.ledger.has_c2p()
    }

    /// Applies a directory's answer about the blocks that other nodes hold: `elsewhere` has a bit for each
    /// block from `first` on.
    pub fn learn(&self, first: BlockId, elsewhere: u32) {
        let place = first.index % GROUP_BLOCKS;
        self.ledger
            .learn(first, u64::from(u32::MAX) << place, u64::from(elsewhere) << place);
    }

    /// Starts removing the blocks of all nodes that are not in `kept`, because those nodes are gone.
    pub fn forget(&self, kept: HashSet<NodeId>) -> Forgetting {
        Forgetting {
            ledger: Arc::clone(&self.ledger),
            groups: self.ledger.groups(),
            kept,
        }
    }

    /// Marks a block that was just stored as not fetched for a reader.
    pub fn added(&self, block: BlockId) {
        self.ledger.added(block);
    }

    /// The state of a block's group in a layer; `None` if the group is unknown or the policy is not C2P.
    pub fn knowledge(&self, layer: Layer, block: BlockId) -> Option<GroupKnowledge> {
        self.ledger.group_knowledge(layer, block)
    }
}

impl std::fmt::Debug for Forgetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forgetting")
            .field("groups", &self.groups.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for CacheEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheEvents").finish_non_exhaustive()
    }
}
