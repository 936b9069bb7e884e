//! Why a block is not in the store. Every removal and refusal is counted, and the last few thousand are
//! remembered.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;

use super::counters::{LiveCounters, RemovalReason};
use super::ledger::Victim;
use super::watch::{BlockEvent, Watch};

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

/// The latest removals and refusals, and the counts of all.
#[derive(Debug)]
pub(super) struct EvictionLog {
    counters: Arc<LiveCounters>,
    watch: Arc<Watch>,
    last: Mutex<LruCache<BlockId, Absence>>,
}

impl EvictionLog {
    pub(super) fn new(counters: &Arc<LiveCounters>, watch: &Arc<Watch>) -> Self {
        let remembered = NonZeroUsize::new(REMEMBERED).expect("written here and not zero");
        Self {
            counters: Arc::clone(counters),
            watch: Arc::clone(watch),
            last: Mutex::new(LruCache::new(remembered)),
        }
    }

    pub(super) fn removed(&self, victim: &Victim, reason: RemovalReason) {
        let block = victim.leaving.key;
        self.counters.removed(reason);
        self.last.lock().put(block, Absence::Removed(reason));
        self.watch.notify(block, victim.data_bytes, BlockEvent::Removed);
    }

    pub(super) fn refused(&self, block: BlockId, refusal: Refusal) {
        self.counters.refused(refusal);
        self.last.lock().put(block, Absence::Refused(refusal));
    }

    /// Returns why a block is not in the store; `None` if the log has no entry for it.
    pub(super) fn why(&self, block: BlockId) -> Option<Absence> {
        self.last.lock().peek(&block).copied()
    }
}
