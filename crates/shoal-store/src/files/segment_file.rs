//! The files of segments: created, appended, sealed, marked, read and mapped.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::FallocateFlags;

use super::disk::{self, Disk, DiskOp, ReadError};
use super::footer::StoredBlock;
use super::pages::Pages;
use super::place::SegmentNumber;
use super::segment::{self, ENTRY_HEAD_BYTES, EntryHead, Layout, REMOVED, Record, SegmentError};

/// An open segment. The disk holds it until the last reference is dropped, even if it is unlinked.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) number: SegmentNumber,
    pub(crate) layout: Layout,
    file: File,
    /// Mapped when a block is first read. One mapping serves all blocks.
    pages: OnceLock<Pages>,
    /// Held while a block that lies here is marked as removed, and while it is copied into another segment.
    marks: Mutex<()>,
}

/// An entry that is about to be appended.
#[derive(Clone, Copy)]
pub(crate) struct NewEntry<'a> {
    pub(crate) stored: &'a StoredBlock,
    /// The encoded footer.
    pub(crate) footer: &'a [u8],
    pub(crate) data: &'a [Bytes],
}

/// A segment as an earlier process left it.
#[derive(Debug)]
pub(crate) struct FoundSegment {
    pub(crate) file: Arc<SegmentFile>,
    /// All entries, in the order of slots.
    pub(crate) records: Vec<Record>,
    /// True for each slot whose block was removed.
    pub(crate) removed: Vec<bool>,
}

impl FoundSegment {
    /// The entries whose blocks were not removed, with their slots.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, &Record)> {
        let slots = (0_u32..).zip(&self.records).zip(&self.removed);
        slots.filter_map(|(entry, is_removed)| (!is_removed).then_some(entry))
    }
}

impl NewEntry<'_> {
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Length of the entry in bytes.
    pub(crate) fn entry_bytes(&self) -> u64 {
        ENTRY_HEAD_BYTES + self.footer.len() as u64 + self.data_bytes()
    }

    fn head(&self, segment: SegmentNumber, slot: u32) -> EntryHead {
        EntryHead {
            segment,
            slot,
            footer_bytes: self.footer.len() as u32,
            data_bytes: self.data_bytes() as u32,
        }
    }
}

impl SegmentFile {
    /// Creates an empty segment with room on the disk for all of it.
    pub(crate) fn create(disk: &Disk, number: SegmentNumber, layout: Layout) -> io::Result<Self> {
        disk.check(DiskOp::Write)?;
        let path = disk.temp_segment_path(number);
        let created = Self::create_at(&path, number, layout);
        let created = created.and_then(|created| {
            disk.check(DiskOp::Publish)?;
            fs::rename(&path, disk.segment_path(number))?;
            Ok(created)
        });
        // The start of the next process removes what this one cannot.
        created.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    fn create_at(path: &PathBuf, number: SegmentNumber, layout: Layout) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, layout.segment_bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(layout.segment_bytes)?,
            allocated => allocated?,
        }
        file.write_all_at(&layout.encode_head(number), 0)?;
        Ok(Self::of(number, layout, file))
    }

    fn of(number: SegmentNumber, layout: Layout, file: File) -> Self {
        Self {
            number,
            layout,
            file,
            pages: OnceLock::new(),
            marks: Mutex::new(()),
        }
    }

    /// Opens the segment `number` and reads its table, or finds its entries without one.
    pub(crate) fn open(disk: &Disk, number: SegmentNumber) -> Result<FoundSegment, ReadError> {
        disk.check(DiskOp::Read)?;
        let path = disk.segment_path(number);
        let file = disk::open_as(&path, OpenOptions::new().read(true).write(true))?;
        let file_bytes = file.metadata()?.len();
        let head = read_at(&file, 0, 4096.min(file_bytes))?;
        let layout = Layout::decode_head(&head, number, file_bytes)?;
        let file = Self::of(number, layout, file);
        let records = file.read_table().or_else(|error| match error {
            ReadError::Segment(_) => file.rebuild_table(disk),
            other => Err(other),
        })?;
        let marks = read_at(&file.file, Layout::mark_offset(0), records.len() as u64)?;
        Ok(FoundSegment {
            file: Arc::new(file),
            records,
            removed: marks.into_iter().map(|mark| mark != 0).collect(),
        })
    }

    fn read_table(&self) -> Result<Vec<Record>, ReadError> {
        let end = self.layout.table_offset(0).ok_or(SegmentError::Table)?;
        let tail = read_at(&self.file, end, self.layout.segment_bytes - end)?;
        let tail = tail.try_into().expect("an empty table is its tail");
        let entries = self.layout.decode_tail(tail).ok_or(SegmentError::Table)?;
        let offset = self.layout.table_offset(entries).ok_or(SegmentError::Table)?;
        let table = read_at(&self.file, offset, self.layout.segment_bytes - offset)?;
        Ok(self.layout.decode_table(&table)?)
    }

    /// Finds the entries of a segment that was not finished or whose table is damaged, and writes the table.
    fn rebuild_table(&self, disk: &Disk) -> Result<Vec<Record>, ReadError> {
        let bytes = read_at(&self.file, 0, self.layout.segment_bytes)?;
        let records = segment::scan(self.layout, self.number, &bytes);
        if let Err(error) = self.seal(disk, &records) {
            // The next start finds them again.
            tracing::warn!(%error, segment = self.number, "the table of a segment could not be written");
        }
        Ok(records)
    }

    /// Writes an entry.
    pub(crate) fn append(&self, disk: &Disk, offset: u64, slot: u32, entry: &NewEntry<'_>) -> io::Result<()> {
        disk.check(DiskOp::Write)?;
        let mut bytes = entry.head(self.number, slot).encode();
        bytes.extend_from_slice(entry.footer);
        for piece in entry.data {
            bytes.extend_from_slice(piece);
        }
        self.file.write_all_at(&bytes, offset)
    }

    /// Writes the table, after the last entry.
    pub(crate) fn seal(&self, disk: &Disk, records: &[Record]) -> io::Result<()> {
        disk.check(DiskOp::Write)?;
        let offset = self.layout.table_offset(records.len());
        let offset = offset.expect("a segment takes entries only as long as their table fits");
        self.file.write_all_at(&Layout::encode_table(records), offset)
    }

    /// Locks the marks, see [`SegmentFile::mark`].
    pub(crate) fn lock_marks(&self) -> MutexGuard<'_, ()> {
        self.marks.lock()
    }

    /// Marks the block in a slot as removed, so that no start finds it. The lock keeps a copy of the block
    /// from being made at the same time.
    pub(crate) fn mark(&self, disk: &Disk, slot: u32, _marks: &MutexGuard<'_, ()>) -> io::Result<()> {
        disk.check(DiskOp::Remove)?;
        self.file.write_all_at(&[REMOVED], Layout::mark_offset(slot))
    }

    /// Reads a range of the segment.
    pub(crate) fn read(&self, disk: &Disk, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        disk.check(DiskOp::Read)?;
        read_at(&self.file, offset, length)
    }

    /// Returns the open file.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Returns the pages of the whole segment, which are not read before they are used.
    pub(crate) fn pages(&self) -> io::Result<&Pages> {
        if let Some(pages) = self.pages.get() {
            return Ok(pages);
        }
        let pages = Pages::unsent(&self.file, self.layout.segment_bytes as usize)?;
        Ok(self.pages.get_or_init(|| pages))
    }
}

fn read_at(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
