//! Events of blocks that nodes exchange, so that objects stay complete on all of them together
//! ([`shoal_policy::eviction::C2p`]).

use std::collections::HashSet;
use std::sync::Arc;

use shoal_policy::eviction::c2p::{Event, GROUP_BLOCKS};
use shoal_policy::{BlockId, Layer, NodeId};

use super::ledger::{CacheEvent, GroupKnowledge, LayerGroup, Ledger};

/// The events of the blocks of a store, and those of other nodes. Under a policy without C2P nothing happens
/// here.
pub struct CacheEvents {
    ledger: Arc<Ledger>,
}

/// The work of forgetting nodes that are gone. There may be a million groups, so readers get the lock in
/// between.
#[must_use = "nothing is forgotten before it goes on"]
pub struct Forgetting {
    ledger: Arc<Ledger>,
    /// Not yet examined.
    groups: Vec<LayerGroup>,
    kept: HashSet<NodeId>,
}

/// Number of groups examined in one turn, under one lock.
const BATCH: usize = 256;

impl Forgetting {
    /// Examines some groups. Returns whether there is more to do.
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

    /// Keeps events for [`CacheEvents::take`] from now on. Returns whether there can be any under the policy
    /// of this store.
    pub fn keep(&self) -> bool {
        self.ledger.keep_cache_events()
    }

    /// Removes the events that have not been told, in the order in which they happened in each layer. Times
    /// count from 1970.
    pub fn take(&self) -> Vec<CacheEvent> {
        self.ledger.take_cache_events()
    }

    /// The number of events that were lost because they were not taken in time.
    pub fn lost(&self) -> u64 {
        self.ledger.lost_cache_events()
    }

    /// Takes in events of another node.
    pub fn hear(&self, node: NodeId, events: &[CacheEvent]) {
        self.ledger.hear(node, events);
    }

    /// Whether the policy of this store keeps objects complete.
    pub fn are_of_use(&self) -> bool {
        self.ledger.has_c2p()
    }

    /// Learns from a directory which blocks of a version other nodes hold: `elsewhere` has a bit for each
    /// block from `first` on.
    pub fn learn(&self, first: BlockId, elsewhere: u32) {
        let place = first.index % GROUP_BLOCKS;
        self.ledger
            .learn(first, u64::from(u32::MAX) << place, u64::from(elsewhere) << place);
    }

    /// Begins to forget the blocks of all nodes but those that are `kept`: the others are gone.
    pub fn forget(&self, kept: HashSet<NodeId>) -> Forgetting {
        Forgetting {
            ledger: Arc::clone(&self.ledger),
            groups: self.ledger.groups(),
            kept,
        }
    }

    /// Notes that a block that has just come in was not fetched for a reader.
    pub fn added(&self, block: BlockId) {
        self.ledger.added(block);
    }

    /// The blocks of the group of an event that are worth fetching because of it, a bit for each. Their
    /// version has so many blocks.
    pub fn missing(&self, layer: Layer, event: &Event<BlockId>, blocks: u32) -> u64 {
        self.ledger.missing(layer, event, blocks)
    }

    /// Knowledge about the group of a block in a layer. `None` if there is none, or under another policy.
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
