//! Assigns blocks to the layers of this node. After a change, blocks move in the background, a few at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use shoal_policy::eviction::layered::LayerRoom;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, Layer, VersionId};

use crate::ground::Ground;

/// Minimum number of blocks examined per acquisition of the lock. All blocks of a version are examined
/// together.
const BATCH: usize = 256;

/// The layers, and the hierarchy that assigns blocks to them.
pub(crate) struct Layers {
    ground: Arc<Ground>,
    /// A copy of the ledger's hierarchy, for look-ups without its lock.
    hierarchy: ArcSwap<Hierarchy>,
    /// True if blocks may be in layers to which they do not belong.
    misplaced: AtomicBool,
}

/// The remaining moves after a change of the hierarchy.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Versions not yet examined, latest stored first; taken from the end.
    versions: Vec<VersionId>,
}

impl Layers {
    /// `hierarchy` must be the one with which the ledger was created.
    pub(crate) fn new(ground: &Arc<Ground>, hierarchy: &Arc<Hierarchy>) -> Self {
        Self {
            ground: Arc::clone(ground),
            hierarchy: ArcSwap::new(Arc::clone(hierarchy)),
            misplaced: AtomicBool::new(false),
        }
    }

    /// Replaces the hierarchy, and starts moving blocks to their new layers.
    pub(crate) fn set_hierarchy(&self, hierarchy: Arc<Hierarchy>) {
        self.hierarchy.store(Arc::clone(&hierarchy));
        let mut state = self.ground.ledger.lock();
        state.residency.policy_mut().set_hierarchy(hierarchy);
        drop(state);
        self.misplaced.store(true, Ordering::Release);
        self.ground.maintenance.wake();
    }

    /// Returns the layer to which a block belongs. Takes no lock.
    pub(crate) fn layer_of(&self, block: BlockId) -> Layer {
        self.hierarchy.load().layer_here(block.place())
    }

    pub(crate) fn resize(&self, targets_bytes: &[u64]) {
        let mut state = self.ground.ledger.lock();
        state.residency.policy_mut().resize(targets_bytes);
    }

    pub(crate) fn rooms(&self) -> Vec<LayerRoom> {
        self.ground.ledger.lock().residency.policy().rooms()
    }

    /// Moves the next blocks to the layers to which they belong. Returns true if there are more.
    pub(crate) fn move_misplaced(&self, moves: &mut Moves) -> bool {
        if self.misplaced.swap(false, Ordering::AcqRel) {
            let versions = self.ground.ledger.lock().index.versions();
            *moves = Moves::new(versions);
        }
        if !moves.versions.is_empty() {
            self.ground.ledger.move_to_layers(&mut moves.versions, BATCH);
        }
        !moves.versions.is_empty()
    }
}

impl Moves {
    /// A moved block becomes the newest of its new layer, so blocks move oldest first to keep their order.
    fn new(mut versions: Vec<(u64, VersionId)>) -> Self {
        versions.sort_unstable_by(|one, other| other.cmp(one));
        Self {
            versions: versions.into_iter().map(|(_, version)| version).collect(),
        }
    }
}
