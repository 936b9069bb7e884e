//! Removal of files: a file is unlinked first, and its room is released when no reader holds it any more.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shoal_policy::residency::{Leaving, Reservation};
use shoal_policy::{BlockId, ObjectId, VersionId};

use super::quarantine::Quarantine;
use crate::counters::RemovalReason;
use crate::files::disk::{self, Disk, ReadError};
use crate::files::location::Entry;
use crate::files::mapping::Mapping;
use crate::files::place::SegmentNumber;
use crate::files::segment_file::SegmentFile;
use crate::ground::Ground;
use crate::ground::blocking::run_blocking;
use crate::ground::health::is_exhaustion;
use crate::ledger::{Remains, Victim};

/// Removes blocks from the store and their files from the disk.
pub struct Removal {
    ground: Arc<Ground>,
    quarantine: Mutex<Quarantine>,
    /// Files not yet gone because readers hold them or unlinking failed.
    pending: Mutex<Vec<PendingRemoval>>,
}

/// A file whose room stays reserved until it is gone from the disk.
#[derive(Debug)]
struct PendingRemoval {
    file: Doomed,
    /// Readers keep an unlinked file on the disk while they hold its mapping.
    mapping: Option<Held>,
    unlinked: bool,
}

/// The part of a file that readers hold: the mapping of a block, or a segment.
type Held = Weak<dyn Debug + Send + Sync>;

/// Bytes to remove from the disk, and their room.
#[derive(Debug)]
enum Doomed {
    Block(Leaving<BlockId>),
    /// To be marked. Its room belongs to the segment.
    Entry(Entry),
    Segment(SegmentNumber, u64),
    Other(PathBuf, Reservation),
}

impl Removal {
    pub(crate) fn new(ground: &Arc<Ground>) -> Self {
        Self {
            ground: Arc::clone(ground),
            quarantine: Mutex::new(Quarantine::new(ground.ledger.room_bytes())),
            pending: Mutex::default(),
        }
    }

    /// Invalidates a version: its blocks are removed from the index at once and their files unlinked.
    pub fn remove_version(&self, version: VersionId) {
        let blocks = self.ground.ledger.lock().deleted(version);
        for block in blocks {
            let victim = self.ground.ledger.remove(block);
            self.remove_all(victim, RemovalReason::Invalidated);
        }
    }

    /// Removes all blocks of an object at an operator's request. Returns their number and their disk space in
    /// bytes.
    pub fn remove_object(&self, object: ObjectId) -> (u64, u64) {
        let (mut blocks, mut bytes) = (0, 0);
        let stored = self.ground.ledger.lock().index.ids_of_object(object);
        for block in stored {
            let Some(victim) = self.ground.ledger.remove(block) else {
                continue;
            };
            blocks += 1;
            bytes += victim.bytes;
            self.remove_all([victim], RemovalReason::Ordered);
        }
        (blocks, bytes)
    }

    /// Removes blocks that the node chose for eviction. Returns those that stay because readers hold them or
    /// they were pinned.
    pub async fn part_with(self: &Arc<Self>, blocks: Vec<(BlockId, RemovalReason)>) -> Vec<BlockId> {
        let removal = Arc::clone(self);
        let parting = run_blocking(move || {
            let ledger = &removal.ground.ledger;
            let mut kept = Vec::new();
            for (block, reason) in blocks {
                match ledger.part_with(block) {
                    Some(victim) => removal.remove_all([victim], reason),
                    None if ledger.contains(block) => kept.push(block),
                    None => {}
                }
            }
            kept
        });
        parting.await.unwrap_or_default()
    }

    /// Handles a failed read: removes the block or marks the disk as failed, depending on the error. Returns
    /// true if the block was removed.
    pub(crate) fn read_failed(&self, block: BlockId, error: &ReadError) -> bool {
        let reason = match error {
            ReadError::Io(error) if is_exhaustion(error) => {
                self.ground.health.exhausted();
                tracing::warn!(?block, %error, "a block could not be read for a reason other than the disk");
                return false;
            }
            // The disk works, but the file is missing or a directory.
            ReadError::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                ) =>
            {
                RemovalReason::Unreadable
            }
            ReadError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                self.ground.health.failed("read a block", error);
                RemovalReason::Unreadable
            }
            ReadError::Io(_)
            | ReadError::Footer(_)
            | ReadError::Segment(_)
            | ReadError::OtherBlock
            | ReadError::Checksum => RemovalReason::Corrupt,
        };
        self.condemn(block, reason, error);
        true
    }

    /// Removes a block that is unreadable or damaged. Its file is moved to quarantine unless readers still
    /// hold it; an entry is copied there.
    pub(crate) fn condemn(&self, block: BlockId, reason: RemovalReason, error: &ReadError) {
        let Some(victim) = self.ground.ledger.remove(block) else {
            return;
        };
        tracing::warn!(?block, %error, "a block on disk is damaged or unreadable; it will be fetched again");
        if reason == RemovalReason::Corrupt {
            self.ground.counters.corrupt_blocks.add(1);
        }
        self.ground.removed(&victim, reason);
        let mapping = held_by_readers(victim.mapping);
        match victim.remains {
            Remains::Entry(entry) => {
                self.quarantine_entry(block, &entry);
                self.remove_bytes(Doomed::Entry(entry), None);
            }
            // A file that readers still hold is unlinked, so that its room is released when they are done.
            Remains::File(leaving) if is_held(mapping.as_ref()) => {
                self.remove_bytes(Doomed::Block(leaving), mapping);
            }
            Remains::File(leaving) => {
                if let Err(leaving) = self.quarantine_block(leaving) {
                    self.remove_bytes(Doomed::Block(leaving), mapping);
                }
            }
        }
    }

    /// Removes a temporary file that is not going to be published.
    pub(crate) fn abandon(&self, number: u64, room: Reservation) {
        self.discard(self.ground.disk.temp_path(number), room);
    }

    /// Removes an entry whose block is not resident.
    pub(crate) fn abandon_entry(&self, entry: Entry) {
        self.remove_bytes(Doomed::Entry(entry), None);
    }

    /// Removes a segment without blocks, which takes `disk_bytes`.
    pub(crate) fn remove_segment(&self, segment: Arc<SegmentFile>, disk_bytes: u64) {
        let number = segment.number;
        let held = Arc::downgrade(&segment);
        drop(segment);
        self.remove_bytes(Doomed::Segment(number, disk_bytes), Some(held));
    }

    /// Removes a file other than a block.
    fn discard(&self, path: PathBuf, room: Reservation) {
        self.remove_bytes(Doomed::Other(path, room), None);
    }

    /// Retries the removals that could not be finished before.
    pub(crate) fn retry(&self) {
        let waiting = std::mem::take(&mut *self.pending.lock());
        let mut still: Vec<_> = waiting
            .into_iter()
            .filter_map(|removal| self.try_remove(removal))
            .collect();
        self.pending.lock().append(&mut still);
    }

    /// Returns true if there are pending removals.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// Removes the bytes of blocks that were removed for this reason.
    pub(crate) fn remove_all(&self, victims: impl IntoIterator<Item = Victim>, reason: RemovalReason) {
        for victim in victims {
            self.ground.removed(&victim, reason);
            let mapping = held_by_readers(victim.mapping);
            match victim.remains {
                Remains::File(leaving) => self.remove_bytes(Doomed::Block(leaving), mapping),
                Remains::Entry(entry) => self.remove_bytes(Doomed::Entry(entry), None),
            }
        }
    }

    /// Unlinks a file, or marks an entry, and releases its room, now or as soon as possible.
    fn remove_bytes(&self, file: Doomed, mapping: Option<Held>) {
        let removal = PendingRemoval {
            file,
            mapping,
            unlinked: false,
        };
        if let Some(removal) = self.try_remove(removal) {
            self.pending.lock().push(removal);
            self.ground.maintenance.wake();
        }
    }

    /// Returns the removal if it has to be tried again.
    fn try_remove(&self, mut removal: PendingRemoval) -> Option<PendingRemoval> {
        if !removal.unlinked {
            if let Err(error) = self.unlink(&removal.file) {
                self.ground.health.failed("remove a file", &error);
                return Some(removal);
            }
            removal.unlinked = true;
        }
        if is_held(removal.mapping.as_ref()) {
            return Some(removal);
        }
        match removal.file {
            Doomed::Block(leaving) => self.ground.ledger.left(leaving),
            Doomed::Entry(_) => self.ground.ledger.room_was_freed(),
            Doomed::Segment(_, disk_bytes) => self.ground.ledger.segment_gone(disk_bytes),
            Doomed::Other(_, room) => self.ground.ledger.cancel(room),
        }
        None
    }

    fn unlink(&self, file: &Doomed) -> io::Result<()> {
        match file {
            Doomed::Block(leaving) => self.unlink_block(leaving.key),
            Doomed::Entry(Entry { segment, slot, .. }) => {
                segment.mark(&self.ground.disk, *slot, &segment.lock_marks())
            }
            Doomed::Segment(number, _) => self.ground.disk.unlink(&self.ground.disk.segment_path(*number)),
            Doomed::Other(path, _) => self.ground.disk.unlink(path),
        }
    }

    fn unlink_block(&self, block: BlockId) -> io::Result<()> {
        let _name = self.ground.disk.lock_name(block);
        // If the block was stored again, the rename replaced the old file, and the name belongs to the new
        // one.
        if self.ground.ledger.is_file(block) {
            return Ok(());
        }
        self.ground.disk.remove_block(block)
    }
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
    fn quarantine_block(&self, leaving: Leaving<BlockId>) -> Result<(), Leaving<BlockId>> {
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
            !self.ground.ledger.is_file(block)
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

    /// Copies the entry of a removed block to quarantine, if there is room and the disk can read it.
    fn quarantine_entry(&self, block: BlockId, entry: &Entry) {
        let disk = &self.ground.disk;
        let charge_bytes = disk.charge_bytes(entry.bytes);
        let name = {
            let mut quarantine = self.quarantine.lock();
            let is_kept = quarantine.takes(charge_bytes);
            is_kept.then(|| quarantine.next_name(Some(block)))
        };
        let Some(name) = name else { return };
        let room = self.ground.ledger.lock().residency.reserve(charge_bytes);
        let Ok(room) = room else { return };
        let copied = entry.segment.read(disk, entry.offset, entry.bytes);
        let copied = copied.and_then(|bytes| disk.write_to_quarantine(&name, &bytes));
        if copied.is_ok() {
            self.keep(name, room);
            self.ground.counters.quarantined.add(1);
        } else {
            self.discard(disk.quarantine_path(&name), room);
        }
    }

    /// Adds a file that is already in the folder, and removes the oldest files that exceed the bounds.
    fn keep(&self, name: String, room: Reservation) {
        let surplus = self.quarantine.lock().push(name, room);
        for (name, room) in surplus {
            self.discard(self.ground.disk.quarantine_path(&name), room);
        }
    }
}

/// Returns what readers may still hold of a block that is no longer mapped for others.
fn held_by_readers(mapping: Option<Arc<Mapping>>) -> Option<Held> {
    let mapping = Arc::downgrade(&mapping?);
    Some(mapping)
}

/// Returns true if a reader holds bytes of a file.
fn is_held(mapping: Option<&Held>) -> bool {
    mapping.is_some_and(|mapping| mapping.strong_count() > 0)
}

/// Returns the disk space that is charged for an unrecognised file.
fn charge_bytes(disk: &Disk, metadata: &fs::Metadata) -> u64 {
    disk.charge_bytes(metadata.len().min(disk::allocated_bytes(metadata)))
        .max(disk::allocated_bytes(metadata))
}
