//! Why a block that was here, or was offered, is not here now. The store remembers the last few thousand.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;

use super::Store;
use super::counters::RemovalReason;

/// Number of blocks remembered, at about 100 bytes each.
const REMEMBERED: usize = 16 << 10;

/// Why a block is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was here and left.
    Removed(RemovalReason),
    /// It was offered and not admitted.
    Refused(Refusal),
}

/// The last absences.
#[derive(Debug)]
pub(super) struct EvictionLog(Mutex<LruCache<BlockId, Absence>>);

impl Default for EvictionLog {
    fn default() -> Self {
        let remembered = NonZeroUsize::new(REMEMBERED).expect("written here and not zero");
        Self(Mutex::new(LruCache::new(remembered)))
    }
}

impl EvictionLog {
    pub(super) fn note(&self, block: BlockId, why: Absence) {
        self.0.lock().put(block, why);
    }
}

impl Store {
    /// Returns why a block is not here. `None` if the store does not remember it.
    pub fn absence(&self, block: BlockId) -> Option<Absence> {
        self.eviction_log.0.lock().peek(&block).copied()
    }
}
