//! Why a block that was here, or was offered, is not here now. The store counts every case and remembers the
//! last few thousand.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;

use super::counters::LiveCounters;

/// Number of blocks remembered, at about 100 bytes each.
const REMEMBERED: usize = 16 << 10;

/// Why a block is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was here and was removed.
    Removed(RemovalReason),
    /// It was offered and not admitted.
    Refused(Refusal),
}

/// Why a block was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalReason {
    /// It was evicted to make room.
    Room,
    /// Its version or object was invalidated.
    Invalidated,
    /// Its bytes are not those that were written.
    Corrupt,
    /// Its file could not be read, or was gone.
    Unreadable,
}

impl RemovalReason {
    /// Every reason, for metrics and documentation.
    pub const ALL: &'static [Self] = &[Self::Room, Self::Invalidated, Self::Corrupt, Self::Unreadable];

    /// The word used in metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Invalidated => "invalidated",
            Self::Corrupt => "corrupt",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The last absences, and the counts of all.
#[derive(Debug)]
pub(super) struct EvictionLog {
    counters: Arc<LiveCounters>,
    last: Mutex<LruCache<BlockId, Absence>>,
}

impl EvictionLog {
    pub(super) fn new(counters: &Arc<LiveCounters>) -> Self {
        let remembered = NonZeroUsize::new(REMEMBERED).expect("written here and not zero");
        Self {
            counters: Arc::clone(counters),
            last: Mutex::new(LruCache::new(remembered)),
        }
    }

    pub(super) fn removed(&self, block: BlockId, reason: RemovalReason) {
        self.counters.removed(reason);
        self.last.lock().put(block, Absence::Removed(reason));
    }

    pub(super) fn refused(&self, block: BlockId, refusal: Refusal) {
        self.counters.refused(refusal);
        self.last.lock().put(block, Absence::Refused(refusal));
    }

    /// Returns why a block is not here. `None` if the log does not remember it.
    pub(super) fn why(&self, block: BlockId) -> Option<Absence> {
        self.last.lock().peek(&block).copied()
    }
}
