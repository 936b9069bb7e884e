//! The last few damaged or strange files, kept for operators who want to find the cause.
//!
//! They are bounded in number and in bytes, the oldest is deleted first, and the room that they take counts
//! as taken.

use std::collections::VecDeque;
use std::fs;
use std::io;

use shoal_policy::BlockId;
use shoal_policy::residency::Reservation;

use super::disk::{self, Disk};

/// Maximum number of files kept.
const FILES_MAX: usize = 32;

/// The files may take this fraction of the store's capacity: one divided by this number.
const SHARE: u64 = 16;

/// The files in the folder, oldest first, each with the room reserved for it.
#[derive(Debug)]
pub(super) struct Quarantine {
    files: VecDeque<(String, Reservation)>,
    bytes: u64,
    bytes_max: u64,
    /// Part of the next file's name; increases across restarts.
    next: u64,
}

impl Quarantine {
    /// Creates an empty quarantine that may take its share of `capacity_bytes`.
    pub(super) const fn new(capacity_bytes: u64) -> Self {
        Self {
            files: VecDeque::new(),
            bytes: 0,
            bytes_max: capacity_bytes / SHARE,
            next: 0,
        }
    }

    /// Returns the names and sizes of the files that an earlier process left, oldest first.
    pub(super) fn earlier(disk: &Disk) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(disk.quarantine())? {
            let entry = entry?;
            let charge_bytes = charge_bytes(disk, &entry.metadata()?);
            files.push((entry.file_name().to_string_lossy().into_owned(), charge_bytes));
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Returns a name for the next file: its sequence number, so that names sort by age, and the block that
    /// it was.
    pub(super) fn next_name(&mut self, block: Option<BlockId>) -> String {
        let turn = self.next;
        self.next += 1;
        block.map_or_else(
            || format!("{turn:016x}-strange"),
            |block| format!("{turn:016x}-{}", disk::file_name(block)),
        )
    }

    /// Whether a file of this size may be kept at all.
    pub(super) const fn takes(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    /// Adds a file that is in the folder. Returns the oldest files, which have to leave for it.
    pub(super) fn push(&mut self, name: String, room: Reservation) -> Vec<(String, Reservation)> {
        let turn = name.get(..16).and_then(|turn| u64::from_str_radix(turn, 16).ok());
        self.next = self.next.max(turn.map_or(0, |turn| turn.saturating_add(1)));
        self.bytes += room.bytes();
        self.files.push_back((name, room));
        let mut leaving = Vec::new();
        while self.files.len() > FILES_MAX || self.bytes > self.bytes_max {
            let oldest = self
                .files
                .pop_front()
                .expect("what exceeds a bound holds something");
            self.bytes -= oldest.1.bytes();
            leaving.push(oldest);
        }
        leaving
    }
}

/// Returns the room that a strange file takes.
pub(super) fn charge_bytes(disk: &Disk, metadata: &fs::Metadata) -> u64 {
    disk.charge_bytes(metadata.len().min(disk::allocated_bytes(metadata)))
        .max(disk::allocated_bytes(metadata))
}
