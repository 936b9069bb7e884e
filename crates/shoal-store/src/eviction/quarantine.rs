//! The last few damaged or strange files, kept for operators who want to find the cause.
//!
//! They are bounded in number and bytes, the oldest is deleted first, and their disk space counts towards the
//! capacity.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_policy::BlockId;
use shoal_policy::residency::{Leaving, Reservation};

use crate::files::disk::{self, Disk};
use crate::ground::Ground;

/// Maximum number of files kept.
const FILES_MAX: usize = 32;

/// The files may take the store's room divided by this.
const SHARE: u64 = 16;

/// The quarantine folder, and the room that it takes.
pub(crate) struct Quarantine {
    ground: Arc<Ground>,
    files: Mutex<Files>,
}

/// A file in the folder with the room reserved for it.
pub(crate) type Quarantined = (String, Reservation);

/// The files in the folder.
#[derive(Debug)]
struct Files {
    oldest_first: VecDeque<Quarantined>,
    bytes: u64,
    bytes_max: u64,
    /// The sequence number in the next file's name; increases across restarts.
    next: u64,
}

impl Quarantine {
    /// Creates an empty quarantine, bounded by its share of `room_bytes`.
    pub(crate) fn new(ground: &Arc<Ground>) -> Self {
        Self {
            ground: Arc::clone(ground),
            files: Mutex::new(Files {
                oldest_first: VecDeque::new(),
                bytes: 0,
                bytes_max: ground.ledger.usage().room_bytes / SHARE,
                next: 0,
            }),
        }
    }

    /// Returns the names and sizes of the files that an earlier process left, oldest first.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be listed.
    pub(crate) fn earlier(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.ground.disk.quarantine_folder())? {
            let entry = entry?;
            let charge_bytes = charge_bytes(&self.ground.disk, &entry.metadata()?);
            files.push((entry.file_name().to_string_lossy().into_owned(), charge_bytes));
        }
        files.sort_unstable();
        Ok(files)
    }

    /// Adds a file that is already in the folder. Returns the oldest files, which the caller has to remove
    /// for it.
    pub(crate) fn keep(&self, name: String, room: Reservation) -> Vec<Quarantined> {
        self.files.lock().push(name, room)
    }

    /// Moves the file of a removed block into the folder. Returns the oldest files, which the caller has to
    /// remove for it.
    ///
    /// # Errors
    ///
    /// Returns the room to the caller if the file was not moved.
    pub(crate) fn take_block(&self, leaving: Leaving<BlockId>) -> Result<Vec<Quarantined>, Leaving<BlockId>> {
        let block = leaving.key;
        let Some(name) = self.name_for(Some(block), leaving.bytes()) else {
            return Err(leaving);
        };
        let is_moved = {
            let _name = self.ground.disk.lock_name(block);
            // If the block was stored again, the file of this name is the new one.
            !self.ground.ledger.contains(block)
                && self
                    .ground
                    .disk
                    .move_to_quarantine(&self.ground.disk.block_path(block), &name)
                    .is_ok()
        };
        if !is_moved {
            return Err(leaving);
        }
        let room = self.ground.ledger.lock().residency.retake(leaving);
        Ok(self.keep(name, room))
    }

    /// Moves a strange file into the folder, or removes it if the quarantine or the store has no room for it.
    /// Returns the oldest files, which the caller has to remove for it.
    ///
    /// # Errors
    ///
    /// Fails if the file can be neither moved nor removed.
    pub(crate) fn take_strange(&self, path: &Path) -> io::Result<Vec<Quarantined>> {
        let charge_bytes = charge_bytes(&self.ground.disk, &fs::symlink_metadata(path)?);
        let is_kept = self.files.lock().takes(charge_bytes);
        let room = is_kept
            .then(|| self.ground.ledger.lock().residency.reserve(charge_bytes).ok())
            .flatten();
        let Some(room) = room else {
            return self.ground.disk.unlink(path).map(|()| Vec::new());
        };
        let name = self.files.lock().next_name(None);
        tracing::warn!(path = %path.display(), name, "an unknown file in the store is moved to its quarantine");
        if let Err(error) = self.ground.disk.move_to_quarantine(path, &name) {
            self.ground.ledger.cancel(room);
            return Err(error);
        }
        Ok(self.keep(name, room))
    }

    /// Returns a name for a file of this size. `None` if it is too large to be kept.
    fn name_for(&self, block: Option<BlockId>, bytes: u64) -> Option<String> {
        let mut files = self.files.lock();
        files.takes(bytes).then(|| files.next_name(block))
    }
}

impl Files {
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

    fn push(&mut self, name: String, room: Reservation) -> Vec<Quarantined> {
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
