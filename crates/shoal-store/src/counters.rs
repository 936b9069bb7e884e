//! The store's counters. The admin page exports a snapshot of them as metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shoal_base::words;
use shoal_base::words::{Count, Counts};
use shoal_policy::admission::Refusal;

words! {
    /// Why a block was removed.
    pub enum RemovalReason {
        /// It was evicted to make room.
        Room = "room",
        /// It was evicted to make room for another block of a quota that it counted in.
        Quota = "quota",
        /// It was evicted to make room; other nodes have copies, to which its weight was added.
        Copied = "copied",
        /// It was evicted to make room and sent to another node, because it is worth more than that node's
        /// blocks.
        Pushed = "pushed",
        /// Its version was invalidated.
        Invalidated = "invalidated",
        /// An operator requested its removal.
        Ordered = "ordered",
        /// Its bytes differ from those written.
        Corrupt = "corrupt",
        /// Its file could not be read, or was missing.
        Unreadable = "unreadable",
    }
}

/// The pins of a store, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinCounts {
    /// Pinned objects, with stored blocks or without.
    pub objects: u64,
    /// Disk space of pinned blocks in bytes.
    pub bytes: u64,
    /// The maximum disk space of pinned blocks in bytes.
    pub bytes_max: u64,
}

/// A snapshot of the store's counters. Counts start with the process, except those of resident blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
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
    pub evictions: BTreeMap<String, u64>,
    /// Blocks not stored, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Corrupt blocks, found when loaded, described or scrubbed.
    pub corrupt_blocks: u64,
    /// Files moved to quarantine, including those found at start.
    pub quarantined: u64,
    /// Disk operations that failed.
    pub io_errors: u64,
    /// The scrub.
    pub scrub: ScrubCounts,
}

/// The scrub, which reads all blocks in the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubCounts {
    /// Blocks that it has read.
    pub blocks: u64,
    /// Completed passes.
    pub passes: u64,
    /// Progress in the present pass, in percent.
    pub percent: u64,
}

/// The running counts behind [`Counters`].
#[derive(Debug, Default)]
pub(super) struct LiveCounters {
    pub(super) stored_blocks: Count,
    pub(super) corrupt_blocks: Count,
    pub(super) quarantined: Count,
    pub(super) scrubbed_blocks: Count,
    pub(super) scrub_passes: Count,
    pub(super) scrub_percent: Count,
    pub(super) evictions: Counts<RemovalReason>,
    pub(super) refusals: Counts<Refusal>,
}
