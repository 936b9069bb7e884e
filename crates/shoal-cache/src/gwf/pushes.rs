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
    under_way: Mutex<UnderWay>,
    /// The outcomes of pushes since the node started.
    pub(super) counts: Counts<PushOutcome>,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// Blocks with their sizes in bytes.
    blocks: HashMap<BlockId, u64>,
    by_node: HashMap<NodeId, usize>,
}

impl Pushes {
    /// Returns the blocks being pushed, with the bytes they occupy here.
    pub(super) fn blocks(&self) -> HashMap<BlockId, u64> {
        self.under_way.lock().blocks.clone()
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.lock().blocks.len()
    }

    /// Returns true if another block may be pushed to a node.
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
        self.counts.count(outcome);
        let mut under_way = self.under_way.lock();
        under_way.blocks.remove(&block);
        if let Some(blocks) = under_way.by_node.get_mut(&to) {
            *blocks -= 1;
            if *blocks == 0 {
                under_way.by_node.remove(&to);
            }
        }
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
        assert_eq!(pushes.counts.get(PushOutcome::Refused), 1);
    }
}
