//! Bounds the number and the bytes of kept mappings, evicting the least recently used.

use std::sync::Arc;

use shoal_policy::BlockId;
use shoal_policy::eviction::{Eviction as _, Lru};

use super::mappings::Mappings;
use crate::files::mapping::Mapping;

/// Maximum number of mappings kept: half of the Linux limit for a process (`vm.max_map_count`).
const MAPPINGS_MAX: usize = 32 << 10;

/// The mapped blocks in the order of their uses.
#[derive(Debug)]
pub(crate) struct MappedLru {
    blocks: Lru<BlockId>,
    bytes: u64,
    bytes_max: u64,
}

impl MappedLru {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            blocks: Lru::default(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Adds a block of `bytes` that was mapped. Returns the mappings displaced by it, which the caller must
    /// drop outside the lock.
    ///
    /// Mappings that readers hold are kept even beyond the bounds.
    pub(crate) fn insert(&mut self, block: BlockId, bytes: u64, mappings: &Mappings) -> Vec<Arc<Mapping>> {
        if !self.blocks.contains(&block) {
            self.blocks.insert(block, bytes);
            self.bytes += bytes;
        }
        let mut unmapped = Vec::new();
        while self.bytes > self.bytes_max || self.blocks.len() > MAPPINGS_MAX {
            let Some((block, bytes)) = self.blocks.evict(&mut |block| !mappings.is_in_use(*block)) else {
                break;
            };
            assert!(bytes <= self.bytes, "the bytes of a mapping are counted");
            self.bytes -= bytes;
            unmapped.extend(mappings.remove(block));
        }
        debug_assert!(
            !self.blocks.is_empty() || self.bytes == 0,
            "bytes without a block"
        );
        unmapped
    }

    pub(crate) fn touch(&mut self, block: BlockId) {
        self.blocks.touch(&block);
    }

    pub(crate) fn remove(&mut self, block: BlockId) {
        self.bytes -= self.blocks.remove(&block).unwrap_or_default();
        debug_assert!(
            !self.blocks.is_empty() || self.bytes == 0,
            "bytes without a block"
        );
    }

    /// Returns the blocks, most recently used first.
    pub(crate) fn newest_first(&self) -> Vec<BlockId> {
        let mut blocks: Vec<_> = self.blocks.oldest_first().collect();
        blocks.reverse();
        blocks
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }
}
