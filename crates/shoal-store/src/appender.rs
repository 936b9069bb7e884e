//! Appends small blocks to segments, one segment at a time.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use crate::files::location::Entry;
use crate::files::mapped_files::SENDFILE_BYTES;
use crate::files::place::SegmentNumber;
use crate::files::segment::{ENTRY_HEAD_BYTES, Layout, Record};
use crate::files::segment_file::{NewEntry, SegmentFile};
use crate::ground::Ground;

/// Longer blocks are files: the inode and the last disk block of a file are then a small part of it, and the
/// kernel sends the pages of a file that begins with the block for half the processor time (decision 0047).
pub(crate) const DATA_BYTES_MAX: u64 = *SENDFILE_BYTES.start() as u64 - 1;

/// Blocks with longer footers are files.
const FOOTER_BYTES_MAX: u64 = 16 << 10;

/// The size of a segment: large enough that a store needs few descriptors, small enough to be copied in a
/// moment.
const SEGMENT_BYTES: u64 = 16 << 20;

/// A store has room for at least this many segments, or keeps small blocks in files.
const SEGMENTS_LEAST: u64 = 64;

/// A store too small for segments of this size keeps small blocks in files.
const SEGMENT_BYTES_LEAST: u64 = 1 << 20;

/// An entry takes at most one in this many of a segment's bytes. So the room that a full segment leaves
/// unused is covered by the charges of its blocks, see `ledger::segments`.
const ENTRY_SHARE: u64 = 8;

/// Segments take at most one in this many of the process's file descriptors, then further small blocks are
/// files. The rest are for clients.
const DESCRIPTORS_A_SEGMENT: u64 = 4;

/// Appends entries to segments.
pub(crate) struct Appender {
    ground: Arc<Ground>,
    /// `None` if small blocks are files.
    layout: Option<Layout>,
    /// The segment that is being filled. Locked while an entry is written, so that entries follow each other.
    active: Mutex<Option<Active>>,
    /// The number of the next segment.
    next: AtomicU32,
    segments_max: u64,
}

struct Active {
    file: Arc<SegmentFile>,
    /// The first byte behind the last entry.
    end: u64,
    records: Vec<Record>,
}

/// Returns the size of the segments of a store with this much room for blocks. `None` if it is too small.
pub(crate) fn segment_bytes(room_bytes: u64) -> Option<u64> {
    let share_bytes = (room_bytes / SEGMENTS_LEAST).min(SEGMENT_BYTES);
    // A power of two, so that the size changes rarely with the room.
    let segment_bytes = 1 << share_bytes.checked_ilog2()?;
    (segment_bytes >= SEGMENT_BYTES_LEAST).then_some(segment_bytes)
}

impl Appender {
    /// Creates an appender that fills segments of `segment_bytes`, if there are any.
    pub(crate) fn new(ground: &Arc<Ground>, segment_bytes: Option<u64>, block_bytes: u64) -> Self {
        Self {
            ground: Arc::clone(ground),
            layout: segment_bytes.map(|segment_bytes| Layout {
                segment_bytes,
                block_bytes,
            }),
            active: Mutex::new(None),
            next: AtomicU32::new(1),
            segments_max: getrlimit(Resource::Nofile)
                .current
                .map_or(u64::MAX, |descriptors| descriptors / DESCRIPTORS_A_SEGMENT),
        }
    }

    /// Sets the number of the first segment to one behind `last`, before anything is appended.
    pub(crate) fn start_after(&self, last: SegmentNumber) {
        self.next.store(last.get() + 1, Ordering::Relaxed);
    }

    /// Returns true if a block lies in a segment, given the lengths of its data and its footer.
    pub(crate) fn takes(&self, data_bytes: u64, footer_bytes: u64) -> bool {
        data_bytes <= DATA_BYTES_MAX
            && footer_bytes <= FOOTER_BYTES_MAX
            && self
                .layout_for(ENTRY_HEAD_BYTES + footer_bytes + data_bytes)
                .is_some()
            && (self.ground.ledger.lock().segments.len() as u64) < self.segments_max
    }

    /// Returns the room that a new segment needs, if the present one has no room for an entry of this length.
    pub(crate) fn shortage_bytes(&self, entry_bytes: u64) -> Option<u64> {
        let active = self.active.lock();
        if active.as_ref().is_some_and(|active| active.fits(entry_bytes)) {
            return None;
        }
        let disk_bytes = self.disk_bytes(self.layout?);
        Some(self.ground.ledger.lock().segments.shortage_bytes(disk_bytes))
    }

    /// Returns the layout of segments, if entries of this length lie in them.
    fn layout_for(&self, entry_bytes: u64) -> Option<Layout> {
        self.layout
            .filter(|layout| entry_bytes <= layout.segment_bytes / ENTRY_SHARE)
    }

    /// Begins a segment, unless the present one has room for an entry of this length. `room` is for the
    /// segment; without any, it takes the spare.
    ///
    /// # Errors
    ///
    /// Fails if there is no room, if the entry is too long for the segments of this store, or if the disk
    /// fails.
    pub(crate) fn begin(&self, entry_bytes: u64, room: Reservation) -> Result<(), Refusal> {
        let mut active = self.active.lock();
        if active.as_ref().is_some_and(|active| active.fits(entry_bytes)) {
            self.ground.ledger.cancel(room);
            return Ok(());
        }
        let Some(layout) = self.layout_for(entry_bytes) else {
            self.ground.ledger.cancel(room);
            return Err(Refusal::NoRoom);
        };
        if let Some(full) = active.take() {
            self.seal(&full);
        }
        *active = Some(self.create(layout, room)?);
        Ok(())
    }

    /// Writes an entry, and calls `then` with it before another one is written. `None` if the present segment
    /// has no room for it.
    ///
    /// # Errors
    ///
    /// Fails if the disk does; nothing was appended then.
    pub(crate) fn append<T>(
        &self,
        entry: &NewEntry<'_>,
        then: impl FnOnce(&Entry) -> T,
    ) -> io::Result<Option<T>> {
        let mut active = self.active.lock();
        let entry_bytes = entry.entry_bytes();
        let Some(active) = active.as_mut().filter(|active| active.fits(entry_bytes)) else {
            return Ok(None);
        };
        let (slot, offset) = (active.records.len() as u32, active.end);
        // Until it succeeds no reader has these bytes, so that the next entry may take their place.
        active.file.append(&self.ground.disk, offset, slot, entry)?;
        active.records.push(Record {
            stored: *entry.stored,
            offset: offset as u32,
            entry_bytes: entry_bytes as u32,
        });
        active.end += entry_bytes;
        let written = Entry {
            segment: Arc::clone(&active.file),
            slot,
            offset,
            bytes: entry_bytes,
        };
        self.ground.ledger.lock().segments.push(&written);
        Ok(Some(then(&written)))
    }

    fn create(&self, layout: Layout, room: Reservation) -> Result<Active, Refusal> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let number = NonZeroU32::new(number).expect("four billion segments are more than a disk lives");
        let (disk, ledger) = (&self.ground.disk, &self.ground.ledger);
        let opened = ledger.lock().segments.reserve(self.disk_bytes(layout), room);
        if let Err(room) = opened {
            ledger.cancel(room);
            return Err(Refusal::NoRoom);
        }
        match SegmentFile::create(disk, number, layout) {
            Ok(file) => {
                let file = Arc::new(file);
                ledger.lock().segments.open(&file, self.disk_bytes(layout));
                Ok(Active {
                    end: layout.entries_offset(),
                    file,
                    records: Vec::new(),
                })
            }
            Err(error) => {
                ledger.segment_gone(self.disk_bytes(layout));
                Err(self.ground.health.write_failed("begin a segment", &error))
            }
        }
    }

    /// Completes a segment that has no room left.
    fn seal(&self, full: &Active) {
        if let Err(error) = full.file.seal(&self.ground.disk, &full.records) {
            // The next start finds the entries without a table.
            self.ground.health.failed("complete a segment", &error);
        }
        self.ground.ledger.lock().segments.close(full.file.number);
    }

    fn disk_bytes(&self, layout: Layout) -> u64 {
        self.ground.disk.charge_bytes(layout.segment_bytes)
    }
}

impl Active {
    fn fits(&self, entry_bytes: u64) -> bool {
        self.file.layout.fits(self.records.len(), self.end, entry_bytes)
    }
}
