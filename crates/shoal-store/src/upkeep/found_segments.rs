//! The segments that earlier processes left, and the blocks in them.

use std::collections::HashMap;
use std::fs::{self, DirEntry};
use std::io;
use std::path::PathBuf;

use shoal_policy::BlockId;

use super::recovery::FoundBlock;
use crate::files::disk::{self, Disk, ReadError};
use crate::files::place::{Address, Place, SegmentNumber};
use crate::files::segment_file::{FoundSegment, SegmentFile};
use crate::ledger::segments::charge_bytes;

/// Everything in the folder of segments, classified.
#[derive(Debug, Default)]
pub(crate) struct FoundSegments {
    pub(crate) segments: HashMap<SegmentNumber, FoundSegment>,
    pub(crate) strange: Vec<PathBuf>,
    /// Segments of blocks of another size, each with the number of its blocks.
    pub(crate) other_block_size: Vec<(PathBuf, u64)>,
    /// Files that could not be read, and their room.
    pub(crate) unreadable: u64,
    pub(crate) unreadable_bytes: u64,
    /// The greatest number of any segment.
    pub(crate) last: Option<SegmentNumber>,
}

impl FoundSegments {
    /// Reads the tables of all segments.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be listed.
    pub(crate) fn scan(disk: &Disk, block_bytes: u64) -> io::Result<Self> {
        let mut found = Self::default();
        for entry in fs::read_dir(disk.segment_folder())? {
            let entry = entry?;
            if let Err(error) = found.classify(disk, &entry, block_bytes) {
                tracing::warn!(path = %entry.path().display(), %error, "a segment could not be read");
                found.unreadable += 1;
                found.unreadable_bytes += entry
                    .metadata()
                    .map_or(0, |metadata| disk::allocated_bytes(&metadata));
            }
        }
        Ok(found)
    }

    fn classify(&mut self, disk: &Disk, entry: &DirEntry, block_bytes: u64) -> io::Result<()> {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let named = disk::parse_segment_name(&entry.file_name()).filter(|_| kind.is_file());
        let Some(number) = named else {
            self.strange.push(entry.path());
            return Ok(());
        };
        self.last = self.last.max(Some(number));
        match SegmentFile::open(disk, number) {
            Ok(segment) if segment.file.layout.block_bytes != block_bytes => {
                let blocks = segment.live().count() as u64;
                self.other_block_size.push((entry.path(), blocks));
            }
            Ok(segment) => drop(self.segments.insert(number, segment)),
            Err(ReadError::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            Err(_) => self.strange.push(entry.path()),
        }
        Ok(())
    }

    /// Returns the blocks in all segments.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = FoundBlock> {
        self.segments.iter().flat_map(|(&segment, found)| {
            found.live().map(move |(slot, record)| FoundBlock {
                stored: record.stored,
                charge_bytes: charge_bytes(record.entry_bytes.into()),
                place: Place::Entry(Address { segment, slot }),
            })
        })
    }

    /// Keeps the newest of several copies of a block, and removes the others from the disk. Returns how many
    /// could not be removed.
    pub(crate) fn keep_newest(&self, disk: &Disk, blocks: &mut Vec<FoundBlock>) -> u64 {
        let age = |block: &FoundBlock| match block.place {
            Place::File => (block.stored.sequence, 0),
            Place::Entry(address) => (block.stored.sequence, address.segment.get()),
        };
        blocks.sort_unstable_by(|one, other| {
            let newest_first = age(other).cmp(&age(one));
            one.stored.id.cmp(&other.stored.id).then(newest_first)
        });
        let mut stuck = 0;
        blocks.dedup_by(|older, newer| {
            let is_copy = older.stored.id == newer.stored.id;
            stuck += u64::from(is_copy && self.remove(disk, older.stored.id, older.place).is_err());
            is_copy
        });
        stuck
    }

    /// Removes a block from the disk.
    pub(crate) fn remove(&self, disk: &Disk, block: BlockId, place: Place) -> io::Result<()> {
        match place {
            Place::File => disk.remove_block(block),
            Place::Entry(Address { segment, slot }) => {
                let file = &self.segments[&segment].file;
                file.mark(disk, slot, &file.lock_marks())
            }
        }
    }
}
