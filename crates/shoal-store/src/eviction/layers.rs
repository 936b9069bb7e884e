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
pub struct Layers {
    ground: Arc<Ground>,
    /// A copy of the ledger's hierarchy, for look-ups without its lock.
    hierarchy: ArcSwap<Hierarchy>,
    /// True if blocks may be in layers to which they do not belong.
    misplaced: AtomicBool,
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

    /// Replaces the hierarchy, which assigns blocks to layers. It must not have more layers than the store
    /// was opened with.
    ///
    /// It applies to new blocks at once. Stored blocks move in the background, without I/O or eviction, and
    /// stay readable.
    pub fn set_hierarchy(&self, hierarchy: Arc<Hierarchy>) {
        self.hierarchy.store(Arc::clone(&hierarchy));
        let mut state = self.ground.ledger.lock();
        state.residency.policy_mut().set_hierarchy(hierarchy);
        drop(state);
        self.misplaced.store(true, Ordering::Release);
        self.ground.maintenance.wake();
    }

    /// Returns the layer to which a block belongs, stored or not. Takes no lock.
    pub fn layer_of(&self, block: BlockId) -> Layer {
        self.hierarchy.load().layer_here(block.place())
    }

    /// Sets the targets of the layers, from L1 outwards. Layers above their targets evict first when room is
    /// needed.
    pub fn resize(&self, targets_bytes: &[u64]) {
        let mut state = self.ground.ledger.lock();
        state.residency.policy_mut().resize(targets_bytes);
    }

    /// Returns the room of each layer, from L1 outwards.
    pub fn rooms(&self) -> Vec<LayerRoom> {
        self.ground.ledger.lock().residency.policy().rooms()
    }

    /// Returns the room that the layers share, in bytes: the capacity without the room of the folders.
    pub fn room_bytes(&self) -> u64 {
        self.ground.ledger.room_bytes()
    }

    /// Moves the next blocks to the layers to which they belong. `versions` are those not yet examined,
    /// latest stored first; they are taken from the end. Returns true if there are more.
    pub(crate) fn move_misplaced(&self, versions: &mut Vec<VersionId>) -> bool {
        if self.misplaced.swap(false, Ordering::AcqRel) {
            let mut all = self.ground.ledger.lock().index.versions();
            // A moved block becomes the newest of its new layer, so blocks move oldest first to keep their
            // order.
            all.sort_unstable_by(|one, other| other.cmp(one));
            *versions = all.into_iter().map(|(_, version)| version).collect();
        }
        if !versions.is_empty() {
            self.ground.ledger.move_to_layers(versions, BATCH);
        }
        !versions.is_empty()
    }
}
