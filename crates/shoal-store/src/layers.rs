//! The layer of this node that each block belongs to, and how that changes: off the request path, a few
//! blocks at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use shoal_policy::eviction::layered::LayerRoom;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, Layer, VersionId};

use super::ledger::Ledger;
use super::signal::Signal;

/// Number of blocks examined in one turn, under one lock. All blocks of a version are examined together.
const BATCH: usize = 256;

/// The layers, and the hierarchy that assigns blocks to them.
pub(super) struct Layers {
    ledger: Arc<Ledger>,
    /// The same hierarchy as the ledger's, for lookups without its lock.
    hierarchy: ArcSwap<Hierarchy>,
    /// Whether blocks may lie in layers that they do not belong to.
    misplaced: AtomicBool,
    /// Wakes the thread that moves blocks.
    maintenance: Arc<Signal>,
}

/// Work that is left after the hierarchy has changed.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Versions not yet examined, the one stored last first.
    versions: Vec<VersionId>,
}

impl Layers {
    /// `hierarchy` is the one that the ledger was created with.
    pub(super) fn new(ledger: &Arc<Ledger>, hierarchy: &Arc<Hierarchy>, maintenance: &Arc<Signal>) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            hierarchy: ArcSwap::new(Arc::clone(hierarchy)),
            misplaced: AtomicBool::new(false),
            maintenance: Arc::clone(maintenance),
        }
    }

    /// Assigns blocks to layers as `hierarchy` says, from now on.
    pub(super) fn set_hierarchy(&self, hierarchy: Arc<Hierarchy>) {
        self.hierarchy.store(Arc::clone(&hierarchy));
        self.ledger.set_hierarchy(hierarchy);
        self.misplaced.store(true, Ordering::Release);
        self.maintenance.wake();
    }

    /// Returns the layer that a block belongs to. Takes no lock.
    pub(super) fn layer_of(&self, block: BlockId) -> Layer {
        self.hierarchy.load().layer_here(block.place())
    }

    pub(super) fn resize(&self, targets_bytes: &[u64]) {
        self.ledger.resize_layers(targets_bytes);
    }

    pub(super) fn rooms(&self) -> Vec<LayerRoom> {
        self.ledger.layer_rooms()
    }

    /// Moves some blocks to the layers that they belong to. Returns whether there is more to do.
    pub(super) fn move_misplaced(&self, moves: &mut Moves) -> bool {
        if self.misplaced.swap(false, Ordering::AcqRel) {
            *moves = Moves::of(self.ledger.versions());
        }
        if !moves.versions.is_empty() {
            self.ledger.move_to_layers(&mut moves.versions, BATCH);
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
}
