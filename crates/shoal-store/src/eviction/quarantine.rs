//! The last few damaged or strange files, kept for operators who want to find the cause.
//!
//! They are bounded in number and bytes, the oldest is deleted first, and their disk space counts towards the
//! capacity.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;

use shoal_policy::BlockId;
use shoal_policy::residency::{Leaving, Reservation};

use super::removal::Removal;
use crate::files::disk::{self, Disk};

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

/// The quarantine.
impl Removal {
    /// Adds the files that an earlier process left in the quarantine. Returns how many could be neither kept
    /// nor removed.
    ///
    /// # Errors
    ///
    /// Fails if the quarantine cannot be listed.
    pub(crate) fn restore_quarantine(&self) -> io::Result<u64> {
        let disk = &self.ground.disk;
        let mut files = Vec::new();
        for entry in fs::read_dir(disk.quarantine_folder())? {
            let entry = entry?;
            let charge_bytes = charge_bytes(disk, &entry.metadata()?);
            files.push((entry.file_name().to_string_lossy().into_owned(), charge_bytes));
        }
        files.sort_unstable();
        let mut stuck = 0;
        for (name, charge_bytes) in files {
            // A file for which there is no room is removed.
            let room = self.ground.ledger.lock().residency.reserve(charge_bytes);
            match room {
                Ok(room) => self.keep(name, room),
                Err(_) => stuck += u64::from(disk.unlink(&disk.quarantine_path(&name)).is_err()),
            }
        }
        Ok(stuck)
    }

    /// Moves an unrecognised file to quarantine, or removes it if the quarantine or the store has no room for
    /// it.
    ///
    /// # Errors
    ///
    /// Fails if the file can be neither moved nor removed.
    pub(crate) fn quarantine_strange(&self, path: &Path) -> io::Result<()> {
        let disk = &self.ground.disk;
        let charge_bytes = charge_bytes(disk, &fs::symlink_metadata(path)?);
        let is_kept = self.quarantine.lock().takes(charge_bytes);
        let room = is_kept
            .then(|| self.ground.ledger.lock().residency.reserve(charge_bytes).ok())
            .flatten();
        if let Some(room) = room {
            let name = self.quarantine.lock().next_name(None);
            tracing::warn!(path = %path.display(), name, "an unknown file in the store is moved to its quarantine");
            if let Err(error) = disk.move_to_quarantine(path, &name) {
                self.ground.ledger.cancel(room);
                return Err(error);
            }
            self.keep(name, room);
        } else {
            disk.unlink(path)?;
        }
        self.ground.counters.quarantined.add(1);
        Ok(())
    }

    /// Moves the file of a removed block to quarantine.
    ///
    /// # Errors
    ///
    /// Returns the room to the caller if the file was not moved.
    pub(super) fn quarantine_block(&self, leaving: Leaving<BlockId>) -> Result<(), Leaving<BlockId>> {
        let (disk, block) = (&self.ground.disk, leaving.key);
        let name = {
            let mut quarantine = self.quarantine.lock();
            let is_kept = quarantine.takes(leaving.bytes());
            is_kept.then(|| quarantine.next_name(Some(block)))
        };
        let Some(name) = name else {
            return Err(leaving);
        };
        let is_moved = {
            let _name = disk.lock_name(block);
            // If the block was stored again, the file of this name is the new one.
            !self.ground.ledger.contains(block)
                && disk.move_to_quarantine(&disk.block_path(block), &name).is_ok()
        };
        if !is_moved {
            return Err(leaving);
        }
        let room = self.ground.ledger.lock().residency.retake(leaving);
        self.keep(name, room);
        self.ground.counters.quarantined.add(1);
        Ok(())
    }

    /// Adds a file that is already in the folder, and removes the oldest files that exceed the bounds.
    fn keep(&self, name: String, room: Reservation) {
        let surplus = self.quarantine.lock().push(name, room);
        for (name, room) in surplus {
            self.discard(self.ground.disk.quarantine_path(&name), room);
        }
    }
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
    fn next_name(&mut self, block: Option<BlockId>) -> String {
        let turn = self.next;
        self.next += 1;
        block.map_or_else(
            || format!("{turn:016x}-strange"),
            |block| format!("{turn:016x}-{}", disk::file_name(block)),
        )
    }

    /// Returns true if a file of this size may be kept at all.
    const fn takes(&self, bytes: u64) -> bool {
        bytes <= self.bytes_max
    }

    fn push(&mut self, name: String, room: Reservation) -> Vec<(String, Reservation)> {
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

/// Returns the disk space that is charged for an unrecognised file.
fn charge_bytes(disk: &Disk, metadata: &fs::Metadata) -> u64 {
    disk.charge_bytes(metadata.len().min(disk::allocated_bytes(metadata)))
        .max(disk::allocated_bytes(metadata))
}
