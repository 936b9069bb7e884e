//! Listings of the blocks that are here, and the origin of one block. Reads never use them.

use std::collections::HashSet;
use std::sync::Arc;

use shoal_policy::BlockId;

use super::{Store, on_pool};
use crate::s3::object::Version;

impl Store {
    /// Returns every block that is here. Mapped blocks come first, the one used last first: a use maps a
    /// block, so these were used after all others. The others follow, ordered by when their version was
    /// stored, the last one first.
    pub async fn held(self: &Arc<Self>) -> Vec<BlockId> {
        let store = Arc::clone(self);
        on_pool(move || store.held_now()).await.unwrap_or_default()
    }

    fn held_now(&self) -> Vec<BlockId> {
        let uses = self.mappings.take_uses();
        let (mut held, versions) = {
            let mut ledger = self.ledger.lock();
            ledger.touch(&uses);
            (ledger.mapped_by_use(), ledger.index.versions())
        };
        let mapped: HashSet<BlockId> = held.iter().copied().collect();
        let mut versions = versions;
        versions.sort_unstable_by(|one, other| other.cmp(one));
        for (_, version) in versions {
            let blocks = self.blocks_of(version).into_iter();
            let blocks = blocks.map(|index| BlockId { version, index });
            held.extend(blocks.filter(|block| !mapped.contains(block)));
        }
        held
    }

    /// Returns the lake's description of the version that a block belongs to, read from the block's footer.
    /// `None` if the block is not here.
    pub async fn version_of(self: &Arc<Self>, block: BlockId) -> Option<Arc<Version>> {
        let store = Arc::clone(self);
        let footer = on_pool(move || {
            let _pin = store.pin(block)?;
            let opened = store.disk.open_block(block);
            opened
                .map(|(_, footer)| footer)
                .inspect_err(|error| {
                    store.read_failed(block, error);
                })
                .ok()
        });
        Some(Arc::new(footer.await.flatten()?.version))
    }
}
