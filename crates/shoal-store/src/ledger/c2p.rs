//! Events of blocks, which a node whose policy keeps objects complete exchanges with other nodes
//! ([`shoal_policy::eviction::C2p`]). Under another policy there are none, and nothing changes.

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
    /// The number of blocks of the block's group; 0 if it is not known.
    pub group_blocks: u32,
}

/// A node's knowledge about the blocks of one group on all nodes. A set of blocks has a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKnowledge {
    /// How complete the group is.
    pub presence: Presence,
    /// The blocks that readers used lately.
    pub read: u64,
    /// The blocks that this node holds.
    pub here: u64,
    /// The other nodes, each with the blocks that it holds as far as it has told.
    pub others: Vec<(NodeId, u64)>,
}

/// Blocks of a version that are judged together in a layer.
pub type LayerGroup = (Layer, Group<VersionId>);

/// The times of events for other nodes, which compare them with each other and with their own clocks. The
/// policy's time does not follow when the clock of this node is set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventTimes {
    last: Duration,
}

impl EventTimes {
    /// The time since 1970 of an event of this age: not before that of the event taken last, unless that
    /// lies in the future, as the clock was ahead then.
    fn of(&mut self, age: Duration, utc_now: Duration) -> Duration {
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

/// Sets whether events are kept for other nodes.
pub(super) fn keep_events(layers: &mut Layered<BlockId, Named<BlockId>>, are_kept: bool) {
    for (_, policy) in layers.policies_mut() {
        if let Some(c2p) = policy.c2p_mut() {
            c2p.set_telling(are_kept);
        }
    }
}

impl Ledger {
    /// Keeps events from now on. Returns whether the policy has any.
    pub(crate) fn keep_cache_events(&self) -> bool {
        let mut state = self.state.lock();
        let layers = state.residency.policy_mut();
        keep_events(layers, true);
        layers.policies_mut().any(|(_, policy)| policy.c2p().is_some())
    }

    /// Removes the events of all layers that have not been told.
    pub(crate) fn take_cache_events(&self) -> Vec<CacheEvent> {
        let uses = self.mappings.take_uses();
        let state = &mut *self.state.lock();
        state.touch(&uses);
        let (now, utc_now) = (state.time.now(), since_1970());
        let mut taken = Vec::new();
        for (layer, policy) in state.residency.policy_mut().policies_mut() {
            let Some(c2p) = policy.c2p_mut() else { continue };
            for event in c2p.take_events() {
                let at = state.event_times.of(now.saturating_sub(event.at), utc_now);
                taken.push(CacheEvent {
                    layer,
                    event: Event { at, ..event },
                    group_blocks: c2p.group_blocks(&event.key),
                });
            }
        }
        taken
    }

    /// The number of events that were lost because they were not taken in time.
    pub(crate) fn lost_cache_events(&self) -> u64 {
        let mut state = self.state.lock();
        let policies = state.residency.policy_mut().policies_mut();
        policies
            .filter_map(|(_, policy)| policy.c2p())
            .map(C2p::lost)
            .sum()
    }

    /// Takes in events of another node.
    pub(crate) fn hear(&self, node: NodeId, events: &[CacheEvent]) {
        let mut state = self.state.lock();
        state.advance();
        for CacheEvent { layer, event, .. } in events {
            if let Some(c2p) = state.c2p_mut(*layer) {
                c2p.hear(node, event);
            }
        }
    }

    /// Whether objects are kept complete.
    pub(crate) fn has_c2p(&self) -> bool {
        let mut state = self.state.lock();
        let mut policies = state.residency.policy_mut().policies_mut();
        policies.any(|(_, policy)| policy.c2p().is_some())
    }

    /// Learns which of some blocks other nodes hold: `held` among `of`, both sets of blocks of the group of
    /// `block`.
    pub(crate) fn learn(&self, block: BlockId, of: u64, held: u64) {
        let mut state = self.state.lock();
        state.advance();
        for (_, policy) in state.residency.policy_mut().policies_mut() {
            if let Some(c2p) = policy.c2p_mut() {
                c2p.learn(&block, of, held);
            }
        }
    }

    /// The groups of which something is known.
    pub(crate) fn groups(&self) -> Vec<LayerGroup> {
        let mut state = self.state.lock();
        let policies = state.residency.policy_mut().policies_mut();
        let known = policies.filter_map(|(layer, policy)| Some((layer, policy.c2p()?)));
        known
            .flat_map(|(layer, c2p)| c2p.groups().map(move |group| (layer, group)))
            .collect()
    }

    /// Forgets the blocks of all nodes but those that are `kept`, under one lock, in at most `most` groups
    /// from the end of `groups`.
    pub(crate) fn forget_nodes(&self, groups: &mut Vec<LayerGroup>, most: usize, kept: &HashSet<NodeId>) {
        let mut state = self.state.lock();
        for (layer, group) in groups.drain(groups.len().saturating_sub(most)..) {
            if let Some(c2p) = state.c2p_mut(layer) {
                c2p.forget(group, kept);
            }
        }
    }

    /// Notes that a block that has just come in was not fetched for a reader.
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

    /// Notes that a version is gone for good, whose blocks are about to be removed.
    pub(crate) fn deleted(&self, version: VersionId, indexes: &[u32]) {
        let mut state = self.state.lock();
        for (_, policy) in state.residency.policy_mut().policies_mut() {
            let Some(c2p) = policy.c2p_mut() else { continue };
            let mut told = None;
            for &index in indexes {
                let block = BlockId { version, index };
                if c2p.contains(&block) && told != Some(index / GROUP_BLOCKS) {
                    c2p.deleted(&block);
                    told = Some(index / GROUP_BLOCKS);
                }
            }
        }
    }

    /// The blocks that are worth fetching because of an event of another node, see
    /// [`shoal_policy::eviction::C2p::missing`]. The version has so many blocks.
    pub(crate) fn missing(&self, layer: Layer, event: &Event<BlockId>, blocks: u32) -> u64 {
        let state = self.state.lock();
        state.c2p(layer).map_or(0, |c2p| c2p.missing(event, blocks))
    }

    /// Knowledge about the group of a block in a layer. `None` if there is none, or under another policy.
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
    /// Tells the policy of a block's layer how many blocks its version has. To be called whenever a block has
    /// come into a layer.
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
            let at = times.of(Duration::from_secs(age), Duration::from_secs(now));
            assert_eq!(at.as_secs(), expected, "row {row}");
        }
    }
}
