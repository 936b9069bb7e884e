//! The ground that all parts of a store share: the disk, and the record of its blocks in memory.

pub(crate) mod blocking;
pub(crate) mod health;
pub(crate) mod signal;

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;

use self::health::DiskHealth;
use self::signal::Signal;
use super::counters::{Counters, LiveCounters, RemovalReason, ScrubCounts};
use super::files::disk::Disk;
use super::ledger::{Ledger, Victim};

/// Number of blocks of which the reason of their absence is remembered, at about 100 bytes each.
const ABSENCES: NonZeroUsize = NonZeroUsize::new(16 << 10).expect("written here and not zero");

/// Why a block is not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was stored and then removed.
    Removed(RemovalReason),
    /// It was offered and not admitted.
    Refused(Refusal),
}

/// A change of the blocks that a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEvent {
    /// The block was stored.
    Stored,
    /// The block was removed.
    Removed,
}

/// Receives the changes of blocks, for reports to a directory.
type Watcher = Box<dyn Fn(BlockId, u64, BlockEvent) + Send + Sync>;

/// The ground on which the parts stand. Each field has locks of its own.
pub(super) struct Ground {
    pub(super) ledger: Ledger,
    pub(super) health: DiskHealth,
    pub(super) counters: LiveCounters,
    /// Why blocks are absent, for the latest removals and refusals.
    pub(super) absences: Mutex<LruCache<BlockId, Absence>>,
    pub(super) watcher: OnceLock<Watcher>,
    /// Wakes and stops the thread that keeps room free.
    pub(super) maintenance: Arc<Signal>,
    /// The last field, so that the folder is unlocked only after everything else was dropped.
    pub(super) disk: Disk,
}

impl Ground {
    pub(super) fn new(disk: Disk, ledger: Ledger) -> Self {
        Self {
            ledger,
            health: DiskHealth::default(),
            counters: LiveCounters::default(),
            absences: Mutex::new(LruCache::new(ABSENCES)),
            watcher: OnceLock::new(),
            maintenance: Arc::default(),
            disk,
        }
    }

    /// Reports a change of a block of `data_bytes` to the watcher, if there is one.
    pub(super) fn notify(&self, block: BlockId, data_bytes: u64, event: BlockEvent) {
        if let Some(watcher) = self.watcher.get() {
            watcher(block, data_bytes, event);
        }
    }

    /// Counts, logs and reports that a block was removed.
    pub(super) fn removed(&self, victim: &Victim, reason: RemovalReason) {
        let block = victim.block;
        self.counters.evictions.count(reason);
        self.absences.lock().put(block, Absence::Removed(reason));
        self.notify(block, victim.data_bytes, BlockEvent::Removed);
    }

    /// Counts and logs that a block was not admitted.
    pub(super) fn refused(&self, block: BlockId, refusal: Refusal) {
        self.counters.refusals.count(refusal);
        self.absences.lock().put(block, Absence::Refused(refusal));
    }

    /// Returns a snapshot of all counters, given the configured capacity.
    pub(super) fn counters(&self, capacity_bytes: u64) -> Counters {
        let amounts = self.ledger.amounts();
        // The difference between the configured capacity and the room is taken by folders.
        let folder_bytes = capacity_bytes.checked_sub(amounts.capacity_bytes);
        let folder_bytes = folder_bytes.expect("the room lies within the capacity");
        let live = &self.counters;
        Counters {
            taken_bytes: amounts.taken_bytes + folder_bytes,
            capacity_bytes,
            stored_blocks: live.stored_blocks.get(),
            evictions: live.evictions.by_word(),
            refusals: live.refusals.by_word(),
            corrupt_blocks: live.corrupt_blocks.get(),
            quarantined: live.quarantined.get(),
            io_errors: self.health.io_errors(),
            scrub: ScrubCounts {
                blocks: live.scrubbed_blocks.get(),
                passes: live.scrub_passes.get(),
                percent: live.scrub_percent.get(),
            },
            ..amounts
        }
    }
}
