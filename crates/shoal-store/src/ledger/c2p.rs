//! Block events that nodes exchange under [`shoal_policy::eviction::C2p`]. Under any other policy there are
//! none, and these methods do nothing.

use std::collections::HashSet;
use std::time::Duration;

use shoal_policy::eviction::c2p::{Event, GROUP_BLOCKS, Group, Presence};
use shoal_policy::eviction::{Below, C2p, Eviction as _, Layered, Named};
use shoal_policy::{BlockId, Layer, NodeId, VersionId};

use super::{Ledger, State, since_1970};

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

/// What this node knows about the blocks of one group on all nodes. Sets of blocks are bit masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKnowledge {
    /// How complete the group is.
    pub presence: Presence,
    /// The blocks that readers used recently.
    pub read: u64,
    /// The blocks that this node holds.
    pub here: u64,
    /// The other nodes, each with the blocks that it last reported.
    pub others: Vec<(NodeId, u64)>,
}

/// A group of a version's blocks in one layer.
pub type LayerGroup = (Layer, Group<VersionId>);

/// Timestamps of events for other nodes, which compare them with each other and with their own clocks. They
/// follow the wall clock, unlike the policy's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventTimes {
    last: Duration,
}

impl EventTimes {
    /// Returns the time since 1970 of an event of this age: not before that of the previous event, unless
    /// that is in the future because the clock was ahead.
    fn assign(&mut self, age: Duration, utc_now: Duration) -> Duration {
        let at = utc_now.saturating_sub(age);
        self.last = if self.last <= utc_now {
            at.max(self.last)
        } else {
            at
        };
        self.last
    }
}

type Whole = C2p<BlockId, Below<BlockId>>;

/// Enables or disables the recording of events in all layers.
pub(super) fn keep_events(layers: &mut Layered<BlockId, Named<BlockId>>, are_kept: bool) {
    for (_, policy) in layers.policies_mut() {
        if let Some(c2p) = policy.c2p_mut() {
            c2p.set_recording(are_kept);
        }
    }
}

impl Ledger {
    /// Starts recording events. Returns true if the policy produces any.
    pub(crate) fn keep_cache_events(&self) -> bool {
        let mut state = self.state.lock();
        let layers = state.residency.policy_mut();
        keep_events(layers, true);
        layers.policies_mut().any(|(_, policy)| policy.c2p().is_some())
    }

    /// Takes the recorded events of all layers.
    pub(crate) fn take_cache_events(&self) -> Vec<CacheEvent> {
        let uses = self.mappings.take_uses();
        let state = &mut *self.state.lock();
        state.touch(&uses);
        let (now, utc_now) = (state.time.now(), since_1970());
        let mut taken = Vec::new();
        for (layer, policy) in state.residency.policy_mut().policies_mut() {
            let Some(c2p) = policy.c2p_mut() else { continue };
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
    pub(crate) fn lost_cache_events(&self) -> u64 {
        let mut state = self.state.lock();
        let policies = state.residency.policy_mut().policies_mut();
        policies
            .filter_map(|(_, policy)| policy.c2p())
            .map(C2p::lost)
            .sum()
    }

    /// Applies events received from another node.
    pub(crate) fn receive(&self, node: NodeId, events: &[CacheEvent]) {
        let mut state = self.state.lock();
        state.advance();
        for CacheEvent { layer, event, .. } in events {
            if let Some(c2p) = state.c2p_mut(*layer) {
                c2p.receive(node, event);
            }
        }
    }

    /// Returns true if the policy uses C2P.
    pub(crate) fn has_c2p(&self) -> bool {
        let mut state = self.state.lock();
        let mut policies = state.residency.policy_mut().policies_mut();
        policies.any(|(_, policy)| policy.c2p().is_some())
    }

    /// Applies a directory's answer: of the blocks in `of`, other nodes hold those in `held`. Both are bit
    /// masks of the group of `block`.
    pub(crate) fn learn(&self, block: BlockId, of: u64, held: u64) {
        let mut state = self.state.lock();
        state.advance();
        for (_, policy) in state.residency.policy_mut().policies_mut() {
            if let Some(c2p) = policy.c2p_mut() {
                c2p.learn(&block, of, held);
            }
        }
    }

    /// The groups with global metadata.
    pub(crate) fn groups(&self) -> Vec<LayerGroup> {
        let mut state = self.state.lock();
        let policies = state.residency.policy_mut().policies_mut();
        let known = policies.filter_map(|(layer, policy)| Some((layer, policy.c2p()?)));
        known
            .flat_map(|(layer, c2p)| c2p.groups().map(move |group| (layer, group)))
            .collect()
    }

    /// Removes the blocks of nodes that are not in `kept` from up to `most` groups, popped from the end of
    /// `groups`, under one lock.
    pub(crate) fn forget_nodes(&self, groups: &mut Vec<LayerGroup>, most: usize, kept: &HashSet<NodeId>) {
        let mut state = self.state.lock();
        for (layer, group) in groups.drain(groups.len().saturating_sub(most)..) {
            if let Some(c2p) = state.c2p_mut(layer) {
                c2p.forget(group, kept);
            }
        }
    }

    /// Marks a block that was just stored as not fetched for a reader.
    pub(crate) fn added(&self, block: BlockId) {
        let mut state = self.state.lock();
        for (_, policy) in state.residency.policy_mut().policies_mut() {
            if policy.contains(&block)
                && let Some(c2p) = policy.c2p_mut()
            {
                c2p.added(&block);
            }
        }
    }

    /// Records that a version was deleted; its blocks are about to be removed.
    pub(crate) fn deleted(&self, version: VersionId, indexes: &[u32]) {
        let mut state = self.state.lock();
        for (_, policy) in state.residency.policy_mut().policies_mut() {
            let Some(c2p) = policy.c2p_mut() else { continue };
            let mut sent = None;
            for &index in indexes {
                let block = BlockId { version, index };
                if c2p.contains(&block) && sent != Some(index / GROUP_BLOCKS) {
                    c2p.deleted(&block);
                    sent = Some(index / GROUP_BLOCKS);
                }
            }
        }
    }

    /// The state of a block's group in a layer; `None` if the group is unknown or the policy is not C2P.
    pub(crate) fn group_knowledge(&self, layer: Layer, block: BlockId) -> Option<GroupKnowledge> {
        let state = self.state.lock();
        let c2p = state.c2p(layer)?;
        let presence = c2p.presence(&block)?;
        let (read, here, others) = c2p.knowledge(&block);
        Some(GroupKnowledge {
            presence,
            read,
            here,
            others,
        })
    }
}

impl State {
    /// Passes the number of blocks of the block's version to the policy. Must be called whenever a block
    /// enters a layer.
    pub(super) fn observe(&mut self, block: BlockId) {
        let blocks = self.index.blocks_in_all(block.version);
        for (_, policy) in self.residency.policy_mut().policies_mut() {
            if let Some(c2p) = policy.c2p_mut() {
                c2p.observe(&block, blocks);
            }
        }
    }

    fn c2p(&self, layer: Layer) -> Option<&Whole> {
        self.residency.policy().policy(layer)?.c2p()
    }

    fn c2p_mut(&mut self, layer: Layer) -> Option<&mut Whole> {
        self.residency.policy_mut().policy_mut(layer)?.c2p_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::EventTimes;

    #[test]
    fn events_have_the_time_of_the_clock_and_never_an_earlier_one_than_those_before() {
        let mut times = EventTimes::default();
        // The age of an event, the clock when it is taken, and its time.
        let table = [
            (3, 1_000, 997),
            (1, 1_000, 999),
            // An event of another layer is taken later.
            (2, 1_000, 999),
            // The clock is set back, but not before the last event.
            (1, 999, 999),
            // It was far ahead, and is right now.
            (0, 9_000, 9_000),
            (1, 1_100, 1_099),
            (3, 1_100, 1_099),
        ];
        for (row, (age, now, expected)) in table.into_iter().enumerate() {
            let at = times.assign(Duration::from_secs(age), Duration::from_secs(now));
            assert_eq!(at.as_secs(), expected, "row {row}");
        }
    }
}
