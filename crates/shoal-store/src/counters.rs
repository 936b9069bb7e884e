//! The store's counters. The admin page exports a snapshot of them as metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use shoal_policy::admission::Refusal;

use super::ledger::Usage;
use super::pinning::PinCounts;

/// Why a block was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RemovalReason {
    /// It was evicted to make room.
    Room,
    /// It was evicted to make room; other nodes have copies, to which its weight was added.
    Copied,
    /// It was evicted to make room and sent to another node, because it is worth more than that node's
    /// blocks.
    Pushed,
    /// Its version was invalidated.
    Invalidated,
    /// An operator requested its removal.
    Ordered,
    /// Its bytes differ from those written.
    Corrupt,
    /// Its file could not be read, or was missing.
    Unreadable,
}

impl RemovalReason {
    /// Every reason, for metrics and documentation.
    pub const ALL: &'static [Self] = &[
        Self::Room,
        Self::Copied,
        Self::Pushed,
        Self::Invalidated,
        Self::Ordered,
        Self::Corrupt,
        Self::Unreadable,
    ];

    /// The name used in metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Room => "room",
            Self::Copied => "copied",
            Self::Pushed => "pushed",
            Self::Invalidated => "invalidated",
            Self::Ordered => "ordered",
            Self::Corrupt => "corrupt",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A snapshot of the store's counters. Counts start with the process, except those of resident blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Disk space of resident blocks, in bytes.
    pub resident_bytes: u64,
    /// Total disk space in bytes: blocks, files being written, files being removed, the quarantine, the
    /// folders.
    pub taken_bytes: u64,
    /// The configured capacity, in bytes.
    pub capacity_bytes: u64,
    /// Resident blocks.
    pub blocks: u64,
    /// Blocks mapped for hits.
    pub mapped_blocks: u64,
    /// Bytes mapped for hits.
    pub mapped_bytes: u64,
    /// Pinned objects, and the disk space of their blocks.
    pub pins: PinCounts,
    /// Blocks written.
    pub stored_blocks: u64,
    /// Blocks that were removed, by reason.
    pub evictions: Vec<(RemovalReason, u64)>,
    /// Blocks not stored, by reason.
    pub refusals: Vec<(Refusal, u64)>,
    /// Corrupt blocks, found when loaded, described or scrubbed.
    pub corrupt_blocks: u64,
    /// Files moved to quarantine, including those found at start.
    pub quarantined: u64,
    /// Disk operations that failed.
    pub io_errors: u64,
    /// Blocks that the scrub has read.
    pub scrubbed_blocks: u64,
    /// Completed scrub passes.
    pub scrub_passes: u64,
    /// Progress of the scrub in its present pass, in percent.
    pub scrub_percent: u64,
}

/// The running counts behind [`Counters`].
#[derive(Debug, Default)]
pub(super) struct LiveCounters {
    pub(super) stored_blocks: Count,
    pub(super) corrupt_blocks: Count,
    pub(super) quarantined: Count,
    pub(super) io_errors: Count,
    pub(super) scrubbed_blocks: Count,
    pub(super) scrub_passes: Count,
    pub(super) scrub_percent: Count,
    evictions: [Count; RemovalReason::ALL.len()],
    refusals: [Count; Refusal::ALL.len()],
}

/// A counter shared by threads.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(super) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl LiveCounters {
    /// Returns a snapshot of all counters. The difference between `capacity_bytes` and the room in `usage` is
    /// taken by folders.
    pub(super) fn snapshot(&self, usage: &Usage, capacity_bytes: u64) -> Counters {
        let folder_bytes = capacity_bytes - usage.room_bytes;
        Counters {
            resident_bytes: usage.resident_bytes,
            taken_bytes: usage.taken_bytes + folder_bytes,
            capacity_bytes,
            blocks: usage.blocks,
            mapped_blocks: usage.mapped_blocks,
            mapped_bytes: usage.mapped_bytes,
            pins: usage.pins,
            stored_blocks: self.stored_blocks.get(),
            evictions: self.evictions(),
            refusals: self.refusals(),
            corrupt_blocks: self.corrupt_blocks.get(),
            quarantined: self.quarantined.get(),
            io_errors: self.io_errors.get(),
            scrubbed_blocks: self.scrubbed_blocks.get(),
            scrub_passes: self.scrub_passes.get(),
            scrub_percent: self.scrub_percent.get(),
        }
    }

    pub(super) fn removed(&self, reason: RemovalReason) {
        self.evictions[reason as usize].add(1);
    }

    pub(super) fn refused(&self, reason: Refusal) {
        self.refusals[reason as usize].add(1);
    }

    fn evictions(&self) -> Vec<(RemovalReason, u64)> {
        RemovalReason::ALL
            .iter()
            .copied()
            .zip(self.evictions.iter().map(Count::get))
            .collect()
    }

    fn refusals(&self) -> Vec<(Refusal, u64)> {
        Refusal::ALL
            .iter()
            .copied()
            .zip(self.refusals.iter().map(Count::get))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::admission::Refusal;

    use super::{LiveCounters, RemovalReason};

    #[test]
    fn each_reason_is_counted_under_its_own_name() {
        let live = LiveCounters::default();
        for (times, &reason) in RemovalReason::ALL.iter().enumerate() {
            (0..times).for_each(|_| live.removed(reason));
        }
        for (times, &reason) in Refusal::ALL.iter().enumerate() {
            (0..times).for_each(|_| live.refused(reason));
        }
        assert!(
            live.evictions()
                .into_iter()
                .eq(RemovalReason::ALL.iter().copied().zip(0..))
        );
        assert!(
            live.refusals()
                .into_iter()
                .eq(Refusal::ALL.iter().copied().zip(0..))
        );
    }
}
