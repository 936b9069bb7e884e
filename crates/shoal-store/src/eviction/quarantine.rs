//! The last few damaged or strange files, kept for operators who want to find the cause.
//!
//! They are bounded in number and bytes, the oldest is deleted first, and their disk space counts towards the
//! capacity.

use std::collections::VecDeque;

use shoal_policy::BlockId;
use shoal_policy::residency::Reservation;

use crate::files::disk;

/// Maximum number of files kept.
const FILES_MAX: usize = 32;

/// The files may take the store's room divided by this.
const SHARE: u64 = 16;

/// The files in the quarantine folder, each with the room reserved for it.
#[derive(Debug)]
pub(crate) struct Quarantine {
    oldest_first: VecDeque<(String, Reservation)>,
    bytes: u64,
    bytes_max: u64,
    /// The sequence number in the next file's name; increases across restarts.
    next: u64,
}

impl Quarantine {
    /// Creates an empty quarantine, bounded by its share of `room_bytes`.
    pub(super) const fn new(room_bytes: u64) -> Self {
        Self {
            oldest_first: VecDeque::new(),
            bytes: 0,
            bytes_max: room_bytes / SHARE,
            next: 0,
        }
    }

    /// Returns the name of the next file: its sequence number, so that names sort by age, and its former
    /// block.
    pub(super) fn next_name(&mut self, block: Option<BlockId>) -> String {
        let turn = self.next;
        self.next += 1;
        block.map_or_else(
            || format!("{turn:016x}-strange"),
            |block| format!("{turn:016x}-{}", disk::file_name(block)),
        )
    }

    /// Returns true if a file of this size may be kept at all.
    pub(super) const fn takes(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    pub(super) fn push(&mut self, name: String, room: Reservation) -> Vec<(String, Reservation)> {
        let turn = name.get(..16).and_then(|turn| u64::from_str_radix(turn, 16).ok());
        self.next = self.next.max(turn.map_or(0, |turn| turn.saturating_add(1)));
        self.bytes += room.bytes();
        self.oldest_first.push_back((name, room));
        let mut surplus = Vec::new();
        while self.oldest_first.len() > FILES_MAX || self.bytes > self.bytes_max {
            let oldest = self
                .oldest_first
                .pop_front()
                .expect("files that exceed a bound are not none");
            self.bytes -= oldest.1.bytes();
            surplus.push(oldest);
        }
        debug_assert!(
            !self.oldest_first.is_empty() || self.bytes == 0,
            "room is given back with its file"
        );
        surplus
    }
}
