//! Block events that nodes exchange to keep objects complete across the cluster
//! ([`shoal_policy::eviction::C2p`]).

use std::collections::HashSet;
use std::sync::Arc;

use shoal_base::clock;
use shoal_base::moment::since_1970;
use shoal_policy::eviction::Eviction as _;
use shoal_policy::eviction::c2p::{Event, GROUP_BLOCKS, Group, GroupKnowledge};
use shoal_policy::{BlockId, Layer, NodeId, VersionId};

use crate::ground::Ground;
use crate::ledger::c2ps;

/// The events of a store's blocks, and those received from other nodes. All methods are no-ops under a policy
/// without C2P.
#[derive(Debug)]
pub struct CacheEvents {
    ground: Arc<Ground>,
}

/// An event of a block in one layer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheEvent {
    /// The layer.
    pub layer: Layer,
    /// The event.
    pub event: Event<BlockId>,
    /// The number of blocks in the block's group; 0 if unknown.
    pub group_blocks: u32,
}

/// Removes nodes that are gone, in steps: there may be a million groups, so readers get the lock between
/// steps.
#[derive(Debug)]
#[must_use = "nothing is forgotten before it goes on"]
pub struct Forgetting {
    ground: Arc<Ground>,
    /// Not yet examined: groups of a version's blocks, each in one layer.
    groups: Vec<(Layer, Group<VersionId>)>,
    kept: HashSet<NodeId>,
}

/// Number of groups examined per acquisition of the lock.
const BATCH: usize = 256;

impl Forgetting {
    /// Examines the next groups. Returns true if there are more.
    pub fn go_on(&mut self) -> bool {
        let mut state = self.ground.ledger.lock();
        let examined = self.groups.len().saturating_sub(BATCH);
        for (layer, group) in self.groups.drain(examined..) {
            if let Some(c2p) = state.c2p_mut(layer) {
                c2p.forget(group, &self.kept);
            }
        }
        !self.groups.is_empty()
    }
}

impl CacheEvents {
    pub(crate) fn new(ground: &Arc<Ground>) -> Self {
        Self {
            ground: Arc::clone(ground),
        }
    }

    /// Starts recording events for [`CacheEvents::take`]. Returns true if the store's policy produces events.
    pub fn keep(&self) -> bool {
        let mut state = self.ground.ledger.lock();
        let recording = c2ps(state.residency.policy_mut()).map(|(_, c2p)| c2p.set_recording(true));
        recording.count() > 0
    }

    /// Takes the recorded events, in order within each layer. Times are since 1970.
    pub fn take(&self) -> Vec<CacheEvent> {
        let uses = self.ground.ledger.mappings.take_uses();
        let state = &mut *self.ground.ledger.lock();
        state.touch(&uses);
        let (now, utc_now) = (state.time.now(), since_1970(clock::utc_now()));
        let mut taken = Vec::new();
        for (layer, c2p) in c2ps(state.residency.policy_mut()) {
            for event in c2p.take_events() {
                let at = state.event_times.assign(now.saturating_sub(event.at), utc_now);
                taken.push(CacheEvent {
                    layer,
                    event: Event { at, ..event },
                    group_blocks: c2p.group_blocks(&event.key),
                });
            }
        }
        taken
    }

    /// The number of events dropped because they were not taken in time.
    pub fn lost(&self) -> u64 {
        let mut state = self.ground.ledger.lock();
        c2ps(state.residency.policy_mut())
            .map(|(_, c2p)| c2p.lost())
            .sum()
    }

    /// Applies events received from another node.
    pub fn receive(&self, node: NodeId, events: &[CacheEvent]) {
        let mut state = self.ground.ledger.lock();
        state.advance();
        for CacheEvent { layer, event, .. } in events {
            if let Some(c2p) = state.c2p_mut(*layer) {
                c2p.receive(node, event);
            }
        }
    }

    /// Returns true if the store's policy uses C2P.
    pub fn are_of_use(&self) -> bool {
        let mut state = self.ground.ledger.lock();
        c2ps(state.residency.policy_mut()).next().is_some()
    }

    /// Applies a directory's answer about the blocks that other nodes hold: `elsewhere` has a bit for each
    /// block from `first` on.
    pub fn learn(&self, first: BlockId, elsewhere: u32) {
        // The group of the directory lies within one of C2P's, whose groups are twice as long.
        let place = first.index % GROUP_BLOCKS;
        let (of, held) = (u64::from(u32::MAX) << place, u64::from(elsewhere) << place);
        let mut state = self.ground.ledger.lock();
        state.advance();
        for (_, c2p) in c2ps(state.residency.policy_mut()) {
            c2p.learn(&first, of, held);
        }
    }

    /// Starts removing the blocks of all nodes that are not in `kept`, because those nodes are gone.
    pub fn forget(&self, kept: HashSet<NodeId>) -> Forgetting {
        let mut state = self.ground.ledger.lock();
        let known = c2ps(state.residency.policy_mut());
        let groups = known.flat_map(|(layer, c2p)| c2p.groups().map(move |group| (layer, group)));
        Forgetting {
            ground: Arc::clone(&self.ground),
            groups: groups.collect(),
            kept,
        }
    }

    /// Marks a block that was just stored as not fetched for a reader.
    pub fn added(&self, block: BlockId) {
        let mut state = self.ground.ledger.lock();
        for (_, c2p) in c2ps(state.residency.policy_mut()) {
            if c2p.contains(&block) {
                c2p.added(&block);
            }
        }
    }

    /// The state of a block's group in a layer; `None` if the group is unknown or the policy is not C2P.
    pub fn knowledge(&self, layer: Layer, block: BlockId) -> Option<GroupKnowledge> {
        let state = self.ground.ledger.lock();
        state.residency.policy().policy(layer)?.c2p()?.knowledge(&block)
    }
}
