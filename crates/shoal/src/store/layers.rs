//! The layer of this node that each block belongs to, and how that changes: off the request path, a few
//! blocks at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shoal_policy::eviction::layered::LayerRoom;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, Layer, VersionId};

use super::Store;
use super::ledger::Ledger;

/// Number of blocks examined in one turn, under one lock. All blocks of a version are examined together.
const BATCH: usize = 256;

/// Work that is left after the hierarchy has changed.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Versions not yet examined, the one stored last first.
    versions: Vec<VersionId>,
}

impl Store {
    /// Assigns blocks to layers as `hierarchy` says, from now on. It has at most as many layers as the store
    /// was opened with.
    ///
    /// New blocks are placed by it at once. Blocks that are here move in the background: nothing is read,
    /// written or evicted for it, and reads find the blocks all the time.
    pub fn place(&self, hierarchy: Arc<Hierarchy>) {
        self.hierarchy.store(Arc::clone(&hierarchy));
        self.ledger.lock().residency.policy_mut().set_hierarchy(hierarchy);
        self.misplaced.store(true, Ordering::Release);
        self.maintenance.wake();
    }

    /// Returns the layer that a block belongs to, whether it is here or not. Takes no lock.
    pub fn layer_of(&self, block: BlockId) -> Layer {
        self.hierarchy.load().layer_here(block.place())
    }

    /// Sets the targets of the layers, from L1 outwards. A layer above its target gives way when room is
    /// needed.
    pub fn resize_layers(&self, targets_bytes: &[u64]) {
        self.ledger.lock().residency.policy_mut().resize(targets_bytes);
    }

    /// Returns the room of each layer, from L1 outwards.
    pub fn layers(&self) -> Vec<LayerRoom> {
        self.ledger.lock().residency.policy().rooms()
    }

    /// Returns the room that the layers share, in bytes: the capacity without the room of the folders.
    pub fn room_bytes(&self) -> u64 {
        self.ledger.lock().residency.capacity_bytes()
    }

    /// Moves some blocks to the layers that they belong to. Returns whether there is more to do.
    pub(super) fn settle_some(&self, moves: &mut Moves) -> bool {
        if self.misplaced.swap(false, Ordering::AcqRel) {
            *moves = Moves::of(self.ledger.lock().index.versions());
        }
        if !moves.versions.is_empty() {
            moves.take_turn(&mut self.ledger.lock());
        }
        !moves.versions.is_empty()
    }
}

impl Moves {
    /// A moved block becomes the newest of its new layer, so blocks move in the order in which they were
    /// stored and keep that order.
    fn of(mut versions: Vec<(u64, VersionId)>) -> Self {
        versions.sort_unstable_by(|one, other| other.cmp(one));
        Self {
            versions: versions.into_iter().map(|(_, version)| version).collect(),
        }
    }

    fn take_turn(&mut self, ledger: &mut Ledger) {
        let mut looked_at = 0;
        while looked_at < BATCH
            && let Some(version) = self.versions.pop()
        {
            let indexes = ledger.index.blocks_of(version);
            looked_at += indexes.len();
            for index in indexes {
                ledger.residency.policy_mut().settle(BlockId { version, index });
            }
        }
    }
}
