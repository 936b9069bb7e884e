//! Why a block is not in the store, for the last few thousand removals and refusals.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;

use crate::counters::RemovalReason;

/// Number of blocks remembered, at about 100 bytes each.
const REMEMBERED: usize = 16 << 10;

/// Why a block is not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was stored and then removed.
    Removed(RemovalReason),
    /// It was offered and not admitted.
    Refused(Refusal),
}

/// The latest removals and refusals.
#[derive(Debug)]
pub(crate) struct EvictionLog(Mutex<LruCache<BlockId, Absence>>);

impl Default for EvictionLog {
    fn default() -> Self {
        let remembered = NonZeroUsize::new(REMEMBERED).expect("written here and not zero");
        Self(Mutex::new(LruCache::new(remembered)))
    }
}

impl EvictionLog {
    pub(crate) fn put(&self, block: BlockId, why: Absence) {
        self.0.lock().put(block, why);
    }

    /// Returns why a block is not in the store; `None` if the log has no entry for it.
    pub(crate) fn why(&self, block: BlockId) -> Option<Absence> {
        self.0.lock().peek(&block).copied()
    }
}
