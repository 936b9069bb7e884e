//! Empties segments of which little is in use: their blocks are copied to the segment that is being filled,
//! then their files are removed.
//!
//! A block is in one place for readers at all times, and at least in one for the next start. First the copy
//! is written, then the old entry is marked as removed, then the ledger learns the new place. If the process
//! dies in between, a start finds one copy, or two of which it keeps the later one. A block that is removed
//! meanwhile waits for the lock of the marks; then both entries are marked.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use shoal_policy::BlockId;
use shoal_policy::residency::Reservation;

use super::removal::Removal;
use crate::appender::Appender;
use crate::files::disk::ReadError;
use crate::files::footer::Footer;
use crate::files::location::Entry;
use crate::files::place::{Address, Place};
use crate::files::segment::{self, EntryHead};
use crate::files::segment_file::{NewEntry, SegmentFile};
use crate::ground::Ground;
use crate::ledger::segments::Slot;

/// Empties segments, one at a time.
pub(crate) struct Emptying {
    ground: Arc<Ground>,
    appender: Arc<Appender>,
    removal: Arc<Removal>,
    one: Mutex<()>,
}

/// An entry that cannot be moved now.
struct Stuck;

impl Emptying {
    pub(crate) fn new(ground: &Arc<Ground>, appender: &Arc<Appender>, removal: &Arc<Removal>) -> Self {
        Self {
            ground: Arc::clone(ground),
            appender: Arc::clone(appender),
            removal: Arc::clone(removal),
            one: Mutex::new(()),
        }
    }

    /// Empties and removes the next segment that is due. Returns false if there is none or if it cannot be
    /// emptied now.
    pub(crate) fn empty_next(&self) -> bool {
        let _one = self.one.lock();
        let Some(segment) = self.ground.ledger.lock().segments.due() else {
            return false;
        };
        let slots = self.ground.ledger.lock().segments.slots(segment.number);
        for (slot, held) in (0_u32..).zip(slots) {
            if self.move_out(&segment, slot, held).is_err() {
                return false;
            }
        }
        let disk_bytes = self.ground.ledger.lock().segments.forget(segment.number);
        self.removal.remove_segment(segment, disk_bytes);
        true
    }

    /// Copies the block in a slot to another segment, if it still lies here.
    fn move_out(&self, segment: &Arc<SegmentFile>, slot: u32, held: Slot) -> Result<(), Stuck> {
        let address = Address {
            segment: segment.number,
            slot,
        };
        if self.ground.health.is_paused() {
            return Err(Stuck);
        }
        let marks = segment.lock_marks();
        let Some((block, from)) = self.live_entry(address, held) else {
            return Ok(());
        };
        let (bytes, head, footer) = match self.read(block, &from) {
            Ok(entry) => entry,
            Err(error) => {
                drop(marks);
                let was_removed = self.removal.read_failed(block, &error);
                return if was_removed { Ok(()) } else { Err(Stuck) };
            }
        };
        let data = [bytes.slice(head.data_offset() as usize..)];
        let entry = NewEntry {
            stored: &footer.stored(),
            footer: &bytes[segment::ENTRY_HEAD_BYTES as usize..head.data_offset() as usize],
            data: &data,
        };
        loop {
            let moved = self.appender.append(&entry, |to| {
                let moved = self.switch(block, &footer, &from, to, &marks);
                (to.clone(), moved)
            });
            let error = match moved {
                Ok(Some((_, Ok(true)))) => return Ok(()),
                Ok(Some((copy, Ok(false)))) => {
                    self.removal.abandon_entry(copy);
                    return Ok(());
                }
                Ok(Some((copy, Err(error)))) => {
                    self.removal.abandon_entry(copy);
                    error
                }
                Ok(None) => {
                    self.appender
                        .begin(from.bytes, Reservation::default())
                        .map_err(|_| Stuck)?;
                    continue;
                }
                Err(error) => error,
            };
            self.ground.health.write_failed("move a block", &error);
            return Err(Stuck);
        }
    }

    fn live_entry(&self, address: Address, held: Slot) -> Option<(BlockId, Entry)> {
        let state = self.ground.ledger.lock();
        let (block, place) = state.index.block_at(held.position, held.index)?;
        (place == Place::Entry(address)).then(|| (block, state.segments.entry(address)))
    }

    fn read(&self, block: BlockId, entry: &Entry) -> Result<(Bytes, EntryHead, Footer), ReadError> {
        let bytes = entry.segment.read(&self.ground.disk, entry.offset, entry.bytes)?;
        let (head, footer) = segment::decode_entry(&bytes)?;
        if footer.block() == block {
            Ok((bytes.into(), head, footer))
        } else {
            Err(ReadError::OtherBlock)
        }
    }

    /// Moves a block from one entry to its copy. Returns false if it was removed meanwhile.
    fn switch(
        &self,
        block: BlockId,
        footer: &Footer,
        from: &Entry,
        to: &Entry,
        marks: &MutexGuard<'_, ()>,
    ) -> io::Result<bool> {
        let is_mapped = self.ground.ledger.mappings.contains(block);
        let mapping = is_mapped.then(|| to.map(footer.data_bytes)).transpose()?;
        from.segment.mark(&self.ground.disk, from.slot, marks)?;
        Ok(self.ground.ledger.move_entry(block, from, to, mapping))
    }
}
