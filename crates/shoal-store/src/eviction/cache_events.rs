//! Block events that nodes exchange to keep objects complete across the cluster
//! ([`shoal_policy::eviction::C2p`]).

use std::collections::HashSet;
use std::sync::Arc;

use shoal_base::clock;
use shoal_base::moment::since_1970;
use shoal_policy::eviction::Eviction as _;
use shoal_policy::eviction::c2p::{Event, GROUP_BLOCKS, Group, GroupKnowledge};
use shoal_policy::{BlockId, Layer, NodeId, VersionId};
use tokio::task::yield_now;

use crate::ground::Ground;
use crate::ledger::c2ps;

/// The events of a store's blocks, and those received from other nodes. All methods are no-ops under a policy
/// without C2P.
pub struct CacheEvents(pub(crate) Arc<Ground>);

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

/// Number of groups examined per acquisition of the lock: there may be a million, and readers get the lock in
/// between.
const FORGOTTEN_AT_ONCE: usize = 256;

impl CacheEvents {
    /// Starts recording events for [`CacheEvents::take`]. Returns true if the store's policy produces events.
    pub fn keep(&self) -> bool {
        let mut state = self.0.ledger.lock();
        let recording = c2ps(state.residency.policy_mut()).map(|(_, c2p)| c2p.set_recording(true));
        recording.count() > 0
    }

    /// Takes the recorded events, in order within each layer. Times are since 1970.
    pub fn take(&self) -> Vec<CacheEvent> {
        let uses = self.0.ledger.mappings.take_uses();
        let state = &mut *self.0.ledger.lock();
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

    /// Waits until an urgent event was recorded ([`Event::is_urgent`]) since the last return. It may return
    /// once more after the event was taken.
    pub async fn urgent(&self) {
        self.0.ledger.urgent.notified().await;
    }

    /// The number of events dropped because they were not taken in time.
    pub fn lost(&self) -> u64 {
        let mut state = self.0.ledger.lock();
        c2ps(state.residency.policy_mut())
            .map(|(_, c2p)| c2p.lost())
            .sum()
    }

    /// Applies events received from another node.
    pub fn receive(&self, node: NodeId, events: &[CacheEvent]) {
        let mut state = self.0.ledger.lock();
        state.advance();
        for CacheEvent { layer, event, .. } in events {
            if let Some(c2p) = state.c2p_mut(*layer) {
                c2p.receive(node, event);
            }
        }
    }

    /// Returns true if the store's policy uses C2P.
    pub fn are_of_use(&self) -> bool {
        let mut state = self.0.ledger.lock();
        c2ps(state.residency.policy_mut()).next().is_some()
    }

    /// Applies a directory's answer about the blocks that other nodes hold: `elsewhere` has a bit for each
    /// block from `first` on.
    pub fn learn(&self, first: BlockId, elsewhere: u32) {
        // The group of the directory lies within one of C2P's, whose groups are twice as long.
        let place = first.index % GROUP_BLOCKS;
        debug_assert!(
            place + u32::BITS <= GROUP_BLOCKS,
            "a directory's group lies in one group"
        );
        let (of, held) = (u64::from(u32::MAX) << place, u64::from(elsewhere) << place);
        let mut state = self.0.ledger.lock();
        state.advance();
        for (_, c2p) in c2ps(state.residency.policy_mut()) {
            c2p.learn(&first, of, held);
        }
    }

    /// Removes the blocks of all nodes that are not in `kept`, because those nodes are gone.
    pub async fn forget(&self, kept: &HashSet<NodeId>) {
        let mut groups: Vec<(Layer, Group<VersionId>)> = {
            let mut state = self.0.ledger.lock();
            let known = c2ps(state.residency.policy_mut());
            let groups = known.flat_map(|(layer, c2p)| c2p.groups().map(move |group| (layer, group)));
            groups.collect()
        };
        while !groups.is_empty() {
            let examined = groups.len().saturating_sub(FORGOTTEN_AT_ONCE);
            self.forget_in(groups.drain(examined..), kept);
            yield_now().await;
        }
    }

    fn forget_in(&self, groups: impl Iterator<Item = (Layer, Group<VersionId>)>, kept: &HashSet<NodeId>) {
        let mut state = self.0.ledger.lock();
        for (layer, group) in groups {
            if let Some(c2p) = state.c2p_mut(layer) {
                c2p.forget(group, kept);
            }
        }
    }

    /// Marks a block that was just stored as not fetched for a reader.
    pub fn added(&self, block: BlockId) {
        let mut state = self.0.ledger.lock();
        for (_, c2p) in c2ps(state.residency.policy_mut()) {
            if c2p.contains(&block) {
                c2p.added(&block);
            }
        }
    }

    /// The state of a block's group in a layer; `None` if the group is unknown or the policy is not C2P.
    pub fn knowledge(&self, layer: Layer, block: BlockId) -> Option<GroupKnowledge> {
        let state = self.0.ledger.lock();
        state.residency.policy().policy(layer)?.c2p()?.knowledge(&block)
    }
}
