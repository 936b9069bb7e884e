//! Blocks being pushed to other nodes.

use std::collections::HashMap;

use parking_lot::Mutex;
use shoal_net::metrics::Counts;
use shoal_net::words;
use shoal_policy::{BlockId, NodeId};

/// Maximum number of blocks being pushed to one node. Without a limit, a node with a saturated link keeps the
/// lowest average, receives everything that the others evict, and delays its readers
/// (`docs/explanation/gwf.md`).
const TO_ONE_NODE: usize = 8;

words! {
    /// How a push ended.
    pub enum PushOutcome {
        /// The other node has stored the block.
        Taken = "taken",
        /// The other node is busy, or its blocks are worth more now.
        Refused = "refused",
        /// The other node did not answer, or not completely.
        Failed = "failed",
        /// The block was evicted before it was sent, because room was needed at once.
        Gone = "gone",
        /// Not sent: its object is marked as short-lived, and its bytes are in a tier.
        ShortLived = "short-lived",
    }
}

/// The pushes of a node.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    /// The receivers of blocks, and the bytes that the blocks occupy here.
    under_way: Mutex<HashMap<BlockId, (NodeId, u64)>>,
    /// The outcomes of pushes since the node started.
    pub(super) counts: Counts<PushOutcome>,
}

impl Pushes {
    /// Returns the blocks being pushed, with the bytes they occupy here.
    pub(super) fn blocks(&self) -> HashMap<BlockId, u64> {
        let under_way = self.under_way.lock();
        under_way
            .iter()
            .map(|(block, (_, bytes))| (*block, *bytes))
            .collect()
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.lock().len()
    }

    /// Returns true if another block may be pushed to a node.
    pub(super) fn has_room_to(&self, node: NodeId) -> bool {
        let under_way = self.under_way.lock();
        under_way.values().filter(|(to, _)| *to == node).count() < TO_ONE_NODE
    }

    pub(super) fn begin(&self, block: BlockId, bytes: u64, to: NodeId) {
        let before = self.under_way.lock().insert(block, (to, bytes));
        debug_assert!(before.is_none(), "a block is on one way at a time");
    }

    pub(super) fn end(&self, block: BlockId, outcome: PushOutcome) {
        self.counts.count(outcome);
        let ended = self.under_way.lock().remove(&block);
        debug_assert!(ended.is_some(), "a push ends once");
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
        pushes.end(block(3), PushOutcome::Refused);
        assert!(pushes.has_room_to(one) && !pushes.blocks().contains_key(&block(3)));
        assert_eq!(pushes.counts.get(PushOutcome::Refused), 1);
    }
}
