//! Blocks on their way to other nodes unasked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shoal_policy::{BlockId, NodeId};

/// The most blocks that a node has on their way to another. Without a bound, a node whose link is full stays
/// the least valued, gets everything that leaves the others, and its readers wait behind that
/// (`docs/explanation/gwf.md`).
const TO_ONE_NODE: usize = 8;

/// How a push ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The other node has the block.
    Taken,
    /// The other node has readers to serve, or blocks worth more by now.
    Refused,
    /// The other node did not answer, or not in full.
    Failed,
    /// The block had left this node before it was sent: room was needed at once.
    Gone,
    /// The block was not sent: its object is marked as short-lived, and its bytes are in a tier.
    ShortLived,
}

impl PushOutcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [
        Self::Taken,
        Self::Refused,
        Self::Failed,
        Self::Gone,
        Self::ShortLived,
    ];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::ShortLived => "short-lived",
        }
    }
}

/// The pushes of a node.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    under_way: Mutex<UnderWay>,
    counts: [AtomicU64; PushOutcome::ALL.len()],
}

#[derive(Debug, Default)]
struct UnderWay {
    /// The blocks with their bytes.
    blocks: HashMap<BlockId, u64>,
    by_node: HashMap<NodeId, usize>,
}

impl Pushes {
    /// The blocks under way, with the bytes that they take here.
    pub(super) fn blocks(&self) -> HashMap<BlockId, u64> {
        self.under_way.lock().blocks.clone()
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.lock().blocks.len()
    }

    /// Whether another block may be sent to a node.
    pub(super) fn has_room_to(&self, node: NodeId) -> bool {
        let under_way = self.under_way.lock();
        under_way
            .by_node
            .get(&node)
            .is_none_or(|blocks| *blocks < TO_ONE_NODE)
    }

    pub(super) fn begin(&self, block: BlockId, bytes: u64, to: NodeId) {
        let mut under_way = self.under_way.lock();
        under_way.blocks.insert(block, bytes);
        *under_way.by_node.entry(to).or_default() += 1;
    }

    pub(super) fn end(&self, block: BlockId, to: NodeId, outcome: PushOutcome) {
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
        let mut under_way = self.under_way.lock();
        under_way.blocks.remove(&block);
        if let Some(blocks) = under_way.by_node.get_mut(&to) {
            *blocks -= 1;
            if *blocks == 0 {
                under_way.by_node.remove(&to);
            }
        }
    }

    /// How pushes ended since the node started.
    pub(super) fn counts(&self) -> [(PushOutcome, u64); PushOutcome::ALL.len()] {
        PushOutcome::ALL.map(|outcome| (outcome, self.counts[outcome as usize].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::VersionId;

    use super::*;

    #[test]
    fn a_node_gets_a_bounded_number_of_blocks_at_a_time() {
        let pushes = Pushes::default();
        let block = |index| BlockId {
            version: VersionId([7; 16]),
            index,
        };
        let (one, other) = (NodeId(1), NodeId(2));
        for index in 0..TO_ONE_NODE as u32 {
            assert!(pushes.has_room_to(one));
            pushes.begin(block(index), 4, one);
        }
        assert!(!pushes.has_room_to(one) && pushes.has_room_to(other));
        assert_eq!((pushes.under_way(), pushes.blocks()[&block(0)]), (TO_ONE_NODE, 4));
        pushes.end(block(3), one, PushOutcome::Refused);
        assert!(pushes.has_room_to(one) && !pushes.blocks().contains_key(&block(3)));
        assert_eq!(pushes.counts()[1], (PushOutcome::Refused, 1));
    }
}
