//! The segments, the blocks in them, and their room.
//!
//! A segment takes its whole room from its creation until its file is gone, also for entries that were
//! removed and for those to come. A block in a segment is charged like any other block, and a fifth more than
//! its entry takes ([`charge_bytes`]), so that a sixth of all segments may be removed entries. What the
//! charges do not cover is [reserved](Segments::room) beside them:
//!
//! `charges + reserved >= room of the segments`, always, and if possible the room of one segment more, the
//! *spare*, into which blocks are copied when a segment is emptied.
//!
//! While the charges cover the segments, the removal of a block frees its charge at once. Once they do not,
//! it frees none: then segments have to be emptied ([`Segments::due`]), and one that is at least a sixth
//! empty exists.

use std::sync::Arc;

use shoal_policy::hash::KeyMap;
use shoal_policy::residency::Reservation;

use super::index::Position;
use crate::files::location::Entry;
use crate::files::place::{Address, SegmentNumber};
use crate::files::segment_file::SegmentFile;

/// A segment is emptied if at most this share of it is in use and the charges do not cover the segments.
const SHORT: Share = Share { of: 6, used: 5 };

/// A segment is emptied in any case if at most this share of it is in use.
const HALF: Share = Share { of: 2, used: 1 };

#[derive(Clone, Copy)]
struct Share {
    of: u64,
    used: u64,
}

/// The segments with blocks, or that get some.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    held: KeyMap<SegmentNumber, Segment>,
    /// The room of all segments whose files are not gone.
    disk_bytes: u64,
    /// The charges of the blocks in them.
    charged_bytes: u64,
    /// The room of one segment more.
    spare_bytes: u64,
    room: Reservation,
    /// Segments of which at most half is in use.
    half_empty: Vec<SegmentNumber>,
}

#[derive(Debug)]
struct Segment {
    file: Arc<SegmentFile>,
    disk_bytes: u64,
    /// All entries, removed or not.
    slots: Vec<Slot>,
    /// The first byte behind the last entry.
    end: u64,
    /// The bytes of the entries that are not removed.
    live_bytes: u64,
    /// True if it gets no further entries.
    is_closed: bool,
}

/// An entry. The index knows whether its block still lies here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The position of the version's record in the index.
    pub(crate) position: Position,
    pub(crate) index: u32,
    offset: u32,
}

/// Returns what a block is charged for an entry of this length.
pub(crate) const fn charge_bytes(entry_bytes: u64) -> u64 {
    entry_bytes + entry_bytes.div_ceil(5)
}

impl Segments {
    /// Returns the room that a new segment needs beyond what is reserved.
    pub(crate) const fn shortage_bytes(&self, disk_bytes: u64) -> u64 {
        let wanted_bytes = self.disk_bytes + 2 * disk_bytes;
        wanted_bytes.saturating_sub(self.charged_bytes + self.room.bytes())
    }

    /// Takes the room of a new segment, `disk_bytes`, from `room` and from what is reserved. Without enough
    /// room it takes the spare.
    ///
    /// # Errors
    ///
    /// Returns `room` if there is no spare either.
    pub(crate) fn reserve(&mut self, disk_bytes: u64, room: Reservation) -> Result<(), Reservation> {
        let covered_bytes = self.charged_bytes + self.room.bytes() + room.bytes();
        if self.disk_bytes + disk_bytes > covered_bytes {
            return Err(room);
        }
        self.room.join(room);
        self.disk_bytes += disk_bytes;
        self.spare_bytes = disk_bytes;
        self.assert_covered();
        Ok(())
    }

    /// Adds an empty segment, whose room `disk_bytes` was reserved.
    pub(crate) fn open(&mut self, file: &Arc<SegmentFile>, disk_bytes: u64) {
        let segment = Segment {
            end: file.layout.entries_offset(),
            file: Arc::clone(file),
            disk_bytes,
            slots: Vec::new(),
            live_bytes: 0,
            is_closed: false,
        };
        self.held.insert(file.number, segment);
    }

    /// Adds an entry behind the others, removed or not. Its block is added by [`Segments::fill`].
    pub(crate) fn push(&mut self, entry: &Entry) {
        let segment = self.segment_mut(entry.segment.number);
        assert_eq!(
            (segment.slots.len(), segment.end),
            (entry.slot as usize, entry.offset),
            "entries are added in their order"
        );
        // Most segments are filled by blocks of one size, so doubling would leave much unused.
        if segment.slots.len() == segment.slots.capacity() {
            segment.slots.reserve_exact(512);
        }
        segment.slots.push(Slot {
            position: Position::MAX,
            index: 0,
            offset: entry.offset as u32,
        });
        segment.end += entry.bytes;
    }

    /// Adds the block of an entry, with its charge.
    pub(crate) fn fill(&mut self, entry: &Entry, position: Position, index: u32) {
        self.charged_bytes += charge_bytes(entry.bytes);
        let segment = self.segment_mut(entry.segment.number);
        let slot = &mut segment.slots[entry.slot as usize];
        (slot.position, slot.index) = (position, index);
        segment.live_bytes += entry.bytes;
    }

    /// Removes the block of an entry. The caller moves its charge, see [`Segments::give`].
    pub(crate) fn empty(&mut self, entry: &Entry) {
        self.charged_bytes -= charge_bytes(entry.bytes);
        let number = entry.segment.number;
        let segment = self.segment_mut(number);
        segment.live_bytes -= entry.bytes;
        if segment.is_closed && HALF.holds(segment) {
            self.half_empty.push(number);
        }
    }

    /// Takes over room that was freed, as far as it is needed. Returns the rest, and what is not needed any
    /// more.
    pub(crate) fn give(&mut self, freed: Reservation) -> Reservation {
        self.room.join(freed);
        let spare_bytes = if self.disk_bytes == 0 { 0 } else { self.spare_bytes };
        let wanted_bytes = (self.disk_bytes + spare_bytes).saturating_sub(self.charged_bytes);
        let surplus_bytes = self.room.bytes().saturating_sub(wanted_bytes);
        let surplus = self.room.split(surplus_bytes);
        self.assert_covered();
        surplus
    }

    /// Lends up to `bytes` of the reserved room to a block that is about to be added.
    pub(crate) fn lend(&mut self, bytes: u64) -> Reservation {
        self.room.split(bytes.min(self.room.bytes()))
    }

    /// Marks a segment as full.
    pub(crate) fn close(&mut self, number: SegmentNumber) {
        let segment = self.segment_mut(number);
        segment.is_closed = true;
        segment.slots.shrink_to_fit();
        if HALF.holds(segment) {
            self.half_empty.push(number);
        }
    }

    /// Removes a segment without blocks. Its file still takes its room, see [`Segments::gone`].
    pub(crate) fn forget(&mut self, number: SegmentNumber) -> u64 {
        let segment = self.held.remove(&number).expect("a segment is removed once");
        assert_eq!(segment.live_bytes, 0, "a segment with blocks stays");
        segment.disk_bytes
    }

    /// Records that the file of a segment is gone from the disk. Returns the room that it took.
    pub(crate) fn gone(&mut self, disk_bytes: u64) -> Reservation {
        self.disk_bytes -= disk_bytes;
        self.give(Reservation::default())
    }

    /// Returns the next segment to be emptied. It stays due until it is.
    pub(crate) fn due(&mut self) -> Option<Arc<SegmentFile>> {
        while let Some(number) = self.half_empty.last() {
            match self.held.get(number) {
                Some(segment) if HALF.holds(segment) => return Some(Arc::clone(&segment.file)),
                _ => drop(self.half_empty.pop()),
            }
        }
        // One segment is being filled, and has charges only later.
        if self.disk_bytes <= self.charged_bytes + self.spare_bytes {
            return None;
        }
        let closed = self
            .held
            .values()
            .filter(|segment| segment.is_closed && SHORT.holds(segment));
        let emptiest = closed.min_by_key(|segment| (segment.live_bytes, segment.file.number));
        emptiest.map(|segment| Arc::clone(&segment.file))
    }

    /// Finds the entry at an address.
    pub(crate) fn entry(&self, address: Address) -> Entry {
        let segment = &self.held[&address.segment];
        let slot = address.slot as usize;
        let offset = u64::from(segment.slots[slot].offset);
        let next = segment.slots.get(slot + 1);
        let end = next.map_or(segment.end, |next| u64::from(next.offset));
        Entry {
            segment: Arc::clone(&segment.file),
            slot: address.slot,
            offset,
            bytes: end - offset,
        }
    }

    /// Returns the slots of a segment; none if it is gone.
    pub(crate) fn slots(&self, number: SegmentNumber) -> Vec<Slot> {
        self.held
            .get(&number)
            .map(|segment| segment.slots.clone())
            .unwrap_or_default()
    }

    /// Returns the number of segments.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the numbers of all segments, ascending.
    pub(crate) fn numbers(&self) -> Vec<SegmentNumber> {
        let mut numbers: Vec<_> = self.held.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the charges of the blocks in segments.
    #[cfg(test)]
    pub(crate) const fn charged_bytes(&self) -> u64 {
        self.charged_bytes
    }

    fn segment_mut(&mut self, number: SegmentNumber) -> &mut Segment {
        self.held.get_mut(&number).expect("a segment with blocks is held")
    }

    fn assert_covered(&self) {
        assert!(
            self.disk_bytes <= self.charged_bytes + self.room.bytes(),
            "the room of segments is reserved"
        );
    }
}

impl Share {
    /// Returns true if no more than this share of a segment is in use.
    fn holds(self, segment: &Segment) -> bool {
        segment.live_bytes * self.of <= segment.disk_bytes * self.used
    }
}
