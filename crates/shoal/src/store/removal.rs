//! Removal of files: a file is unlinked first, and its room is given back when nothing holds it any more.

use std::io;
use std::sync::{Arc, Weak};

use shoal_policy::residency::{Leaving, Reservation};
use shoal_policy::{BlockId, ObjectId, VersionId};

use super::Store;
use super::counters::RemovalReason;
use super::disk::ReadError;
use super::eviction_log::Absence;
use super::ledger::Victims;
use super::mapping::Mapping;

/// Number of blocks evicted ahead of need in one turn. Between turns, other threads get the locks.
const BATCH: usize = 16;

/// A file whose room is taken until it is gone from the disk.
#[derive(Debug)]
pub(super) struct PendingRemoval {
    file: FileName,
    room: Room,
    /// Readers keep an unlinked file on the disk for as long as they hold its mapping.
    mapping: Option<Weak<Mapping>>,
    unlinked: bool,
}

#[derive(Debug)]
pub(super) enum FileName {
    Block(BlockId),
    TempFile(u64),
    Quarantined(String),
}

#[derive(Debug)]
pub(super) enum Room {
    Leaving(Leaving<BlockId>),
    Reserved(Reservation),
}

impl PendingRemoval {
    pub(super) fn new(file: FileName, room: Room, mapping: Option<Weak<Mapping>>) -> Self {
        Self {
            file,
            room,
            mapping,
            unlinked: false,
        }
    }

    fn is_held(&self) -> bool {
        self.mapping
            .as_ref()
            .is_some_and(|mapping| mapping.strong_count() > 0)
    }
}

impl Store {
    /// Invalidates a version: its blocks are forgotten at once and their files unlinked.
    pub fn remove_version(&self, version: VersionId) {
        for index in self.blocks_of(version) {
            let victims = self
                .ledger
                .lock()
                .remove(BlockId { version, index }, &self.mappings);
            self.leave(victims, RemovalReason::Invalidated);
        }
    }

    /// Invalidates every version of an object.
    pub fn remove_object(&self, object: ObjectId) {
        let versions = self.ledger.lock().index.versions_of(object);
        for version in versions {
            self.remove_version(version);
        }
    }

    /// Evicts down to the low mark, if the high one is passed.
    pub(super) fn evict_ahead(&self) {
        let mut started = false;
        loop {
            let uses = self.mappings.take_uses();
            let (victims, is_crowded) = {
                let mut ledger = self.ledger.lock();
                ledger.touch(&uses);
                let victims = ledger.evict_ahead(started, BATCH, &self.mappings);
                (victims, ledger.residency.is_crowded())
            };
            if victims.is_empty() && is_crowded {
                self.press();
            }
            if victims.is_empty() || self.maintenance.is_stopped() {
                return self.evicted(victims);
            }
            self.evicted(victims);
            started = true;
        }
    }

    /// Removes blocks that were evicted to make room.
    pub(super) fn evicted(&self, victims: Victims) {
        self.leave(victims, RemovalReason::Room);
    }

    /// Removes a block that cannot be read or is damaged. Its file goes to the quarantine, unless readers
    /// still hold it.
    pub(super) fn condemn(&self, block: BlockId, reason: RemovalReason, error: &ReadError) {
        let victims = self.ledger.lock().remove(block, &self.mappings);
        for (leaving, mapping) in victims {
            tracing::warn!(?block, %error, "a block on disk is not what it should be; it will be fetched again");
            if reason == RemovalReason::Corrupt {
                self.live.corrupt_blocks.add(1);
            }
            self.live.evicted(reason);
            self.eviction_log.note(block, Absence::Removed(reason));
            let mapping = mapping.map(|mapping| Arc::downgrade(&mapping));
            let departing = PendingRemoval::new(FileName::Block(block), Room::Leaving(leaving), mapping);
            // A file that readers still hold is unlinked, so that its room is free when they are done.
            match if departing.is_held() {
                Err(departing)
            } else {
                self.quarantine_block(block, departing)
            } {
                Ok(()) => self.live.quarantined.add(1),
                Err(departing) => self.depart(departing),
            }
        }
    }

    /// Unlinks a file and gives its room back, now or as soon as that is possible.
    pub(super) fn depart(&self, departing: PendingRemoval) {
        if let Some(departing) = self.try_depart(departing) {
            self.departing.lock().push(departing);
            self.maintenance.wake();
        }
    }

    /// Retries the departures that failed before.
    pub(super) fn retry_departures(&self) {
        let waiting = std::mem::take(&mut *self.departing.lock());
        let mut still: Vec<_> = waiting
            .into_iter()
            .filter_map(|departing| self.try_depart(departing))
            .collect();
        self.departing.lock().append(&mut still);
    }

    /// Whether files still wait for readers, or for the disk, before they are gone.
    pub(super) fn has_departures(&self) -> bool {
        !self.departing.lock().is_empty()
    }

    /// Adds a file in the quarantine folder to the quarantine, and removes the files that exceed its bounds.
    pub(super) fn keep_quarantined(&self, name: String, room: Reservation) {
        let leaving = self.quarantine.lock().push(name, room);
        for (name, room) in leaving {
            self.depart(PendingRemoval::new(
                FileName::Quarantined(name),
                Room::Reserved(room),
                None,
            ));
        }
    }

    fn leave(&self, victims: Victims, reason: RemovalReason) {
        for (leaving, mapping) in victims {
            self.live.evicted(reason);
            self.eviction_log.note(leaving.key, Absence::Removed(reason));
            let mapping = mapping.map(|mapping| Arc::downgrade(&mapping));
            self.depart(PendingRemoval::new(
                FileName::Block(leaving.key),
                Room::Leaving(leaving),
                mapping,
            ));
        }
    }

    fn try_depart(&self, mut departing: PendingRemoval) -> Option<PendingRemoval> {
        if !departing.unlinked {
            if let Err(error) = self.unlink(&departing.file) {
                self.disk_failed("remove a file", &error);
                return Some(departing);
            }
            departing.unlinked = true;
        }
        if departing.is_held() {
            return Some(departing);
        }
        self.give_back(departing.room);
        None
    }

    fn unlink(&self, file: &FileName) -> io::Result<()> {
        match file {
            FileName::Block(block) => {
                let _name = self.lock_name(*block);
                // The block was stored again in the meantime: the rename replaced the old file, and the name
                // belongs to the new one.
                if self.contains(*block) {
                    Ok(())
                } else {
                    self.disk.remove_block(*block)
                }
            }
            FileName::TempFile(number) => self.disk.remove_temp(*number),
            FileName::Quarantined(name) => self.disk.remove_quarantined(name),
        }
    }

    fn give_back(&self, room: Room) {
        let mut ledger = self.ledger.lock();
        match room {
            Room::Leaving(leaving) => ledger.residency.left(leaving),
            Room::Reserved(reservation) => ledger.residency.cancel(reservation),
        }
    }

    /// Moves a forgotten block's file to the quarantine. Hands it back if that is not possible.
    fn quarantine_block(&self, block: BlockId, departing: PendingRemoval) -> Result<(), PendingRemoval> {
        let Room::Leaving(leaving) = &departing.room else {
            return Err(departing);
        };
        let bytes = leaving.bytes();
        let name = {
            let mut quarantine = self.quarantine.lock();
            if !quarantine.takes(bytes) {
                return Err(departing);
            }
            quarantine.next_name(Some(block))
        };
        let moved = {
            let _name = self.lock_name(block);
            !self.contains(block)
                && self
                    .disk
                    .set_aside_for_inspection(&self.disk.block_path(block), &name)
                    .is_ok()
        };
        if !moved {
            return Err(departing);
        }
        let room = {
            let mut ledger = self.ledger.lock();
            if let Room::Leaving(leaving) = departing.room {
                ledger.residency.left(leaving);
            }
            ledger
                .residency
                .reserve(bytes)
                .expect("room given back under the same lock is free")
        };
        self.keep_quarantined(name, room);
        Ok(())
    }
}
