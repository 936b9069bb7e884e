//! What all parts of a store share: the disk, and what is known about it in memory.

pub(crate) mod eviction_log;
pub(crate) mod health;
pub(crate) mod signal;
pub(crate) mod watch;

use std::sync::Arc;

use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;

use self::eviction_log::{Absence, EvictionLog};
use self::health::{DiskHealth, Health};
use self::signal::Signal;
use self::watch::{BlockEvent, Watch};
use super::counters::{Counters, LiveCounters, RemovalReason};
use super::files::disk::Disk;
use super::ledger::{Ledger, Victim};

/// The ground on which the parts stand. Each field has locks of its own.
pub(super) struct Ground {
    pub(super) ledger: Ledger,
    pub(super) health: DiskHealth,
    pub(super) counters: LiveCounters,
    pub(super) eviction_log: EvictionLog,
    pub(super) watch: Watch,
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
            eviction_log: EvictionLog::default(),
            watch: Watch::default(),
            maintenance: Arc::default(),
            disk,
        }
    }

    /// Counts, logs and reports that a block was removed.
    pub(super) fn removed(&self, victim: &Victim, reason: RemovalReason) {
        let block = victim.leaving.key;
        self.counters.removed(reason);
        self.eviction_log.put(block, Absence::Removed(reason));
        self.watch.notify(block, victim.data_bytes, BlockEvent::Removed);
    }

    /// Counts and logs that a block was not admitted.
    pub(super) fn refused(&self, block: BlockId, refusal: Refusal) {
        self.counters.refused(refusal);
        self.eviction_log.put(block, Absence::Refused(refusal));
    }

    /// If writing is paused, probes the disk and resumes if it works again. Blocks.
    pub(super) fn probe(&self) -> Health {
        self.health.probe(&self.disk)
    }

    /// Returns a snapshot of all counters, given the configured capacity.
    pub(super) fn counters(&self, capacity_bytes: u64) -> Counters {
        Counters {
            io_errors: self.health.io_errors(),
            ..self.counters.snapshot(&self.ledger.usage(), capacity_bytes)
        }
    }
}
