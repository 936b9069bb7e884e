//! C2P in the layers of a ledger. Under any other policy these methods do nothing.

use std::time::Duration;

use shoal_policy::eviction::c2p::GROUP_BLOCKS;
use shoal_policy::eviction::{C2p, Eviction as _, Layered, Named};
use shoal_policy::{BlockId, Layer, VersionId};

use super::{Ledger, State};

/// Timestamps of events for other nodes, which compare them with each other and with their own clocks. They
/// follow the wall clock, unlike the policy's time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventTimes {
    last: Duration,
}

impl EventTimes {
    /// Returns the time since 1970 of an event of this age: not before that of the previous event, unless
    /// that is in the future because the clock was ahead.
    pub(crate) fn assign(&mut self, age: Duration, utc_now: Duration) -> Duration {
        let at = utc_now.saturating_sub(age);
        self.last = if self.last <= utc_now {
            at.max(self.last)
        } else {
            at
        };
        self.last
    }
}

type Whole = C2p<BlockId>;

/// The C2P of each layer that has one.
pub(crate) fn c2ps(
    layers: &mut Layered<BlockId, Named<BlockId>>,
) -> impl Iterator<Item = (Layer, &mut Whole)> {
    let policies = layers.policies_mut();
    policies.filter_map(|(layer, policy)| Some((layer, policy.c2p_mut()?)))
}

impl Ledger {
    /// Wakes the sender of events if an urgent one waits for it.
    pub(super) fn notify_urgent(&self, state: &mut State) {
        if c2ps(state.residency.policy_mut()).any(|(_, c2p)| c2p.has_urgent()) {
            self.urgent.notify_one();
        }
    }
}

impl State {
    /// Records that a version was deleted. Returns its blocks, which the caller must remove.
    pub(crate) fn deleted(&mut self, version: VersionId) -> Vec<BlockId> {
        let blocks = self.index.ids_of(version);
        for (_, c2p) in c2ps(self.residency.policy_mut()) {
            let mut sent = None;
            for block in &blocks {
                // One event per group is enough.
                if c2p.contains(block) && sent != Some(block.index / GROUP_BLOCKS) {
                    c2p.deleted(block);
                    sent = Some(block.index / GROUP_BLOCKS);
                }
            }
        }
        blocks
    }

    /// Passes the number of blocks of the block's version to the policy. Must be called whenever a block
    /// enters a layer.
    pub(super) fn observe(&mut self, block: BlockId) {
        let blocks = self.index.blocks_in_all(block.version);
        self.residency.policy_mut().observe(&block, blocks);
    }

    pub(crate) fn c2p_mut(&mut self, layer: Layer) -> Option<&mut Whole> {
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
