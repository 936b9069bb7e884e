//! Recovery: rebuilds the index from footers and tables of segments when a store opens, so that the cache is
//! warm after a restart.
//!
//! Data is verified when a block is first loaded, and by the scrub; only a segment that was not completed is
//! read whole. No file found here is a fatal error.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use shoal_policy::BlockId;

use super::found_segments::FoundSegments;
use super::unflushed::Unflushed;
use crate::blocks::publish::Publisher;
use crate::files::disk::{self, Disk, FOLDERS, ReadError};
use crate::files::footer::StoredBlock;
use crate::files::location::{Entry, Location};
use crate::files::place::{Place, SegmentNumber};
use crate::files::segment_file::FoundSegment;

/// Number of footers read concurrently. More than processors, because a cold disk serves many reads as fast
/// as one.
const THREADS: usize = 8;

/// The result of opening a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Recovered blocks.
    pub blocks: u64,
    /// Their disk space in bytes.
    pub bytes: u64,
    /// Files that were being written when the node stopped; removed.
    pub half_written: u64,
    /// Files that are not valid blocks: truncated, overwritten, misnamed or unrecognised; moved to
    /// quarantine.
    pub quarantined: u64,
    /// Blocks of another block size; removed.
    pub other_block_size: u64,
    /// Blocks beyond a capacity that has become smaller; removed, oldest first, together with others in their
    /// segments.
    pub over_capacity: u64,
    /// Files that could not be read or removed; left alone.
    pub unreadable: u64,
    /// Versions that an earlier build did not flush to the lake; their files are left alone.
    pub unflushed: u64,
}

/// Everything in the folders, classified.
#[derive(Debug, Default)]
struct Found {
    blocks: Vec<FoundBlock>,
    strange: Vec<PathBuf>,
    other_block_size: Vec<BlockId>,
    unreadable: u64,
}

/// A block as its footer or the table of its segment describes it.
#[derive(Debug)]
pub(crate) struct FoundBlock {
    pub(crate) stored: StoredBlock,
    /// Disk space charged for the block.
    pub(crate) charge_bytes: u64,
    pub(crate) place: Place,
}

/// Room that is given to files and segments, newest first, until one does not fit.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    file_bytes: u64,
    segment_bytes: u64,
    /// The charges of the blocks in segments, in bytes.
    charges: u64,
}

/// Fills a store from its folder.
pub(crate) struct Recoverer<'a>(pub(crate) &'a Publisher);

impl Recoverer<'_> {
    /// Adds the blocks on the disk to the index, and removes or quarantines all other files.
    ///
    /// # Errors
    ///
    /// Fails if a folder cannot be listed. A file that cannot be read or removed is counted and left alone.
    pub(crate) fn recover(&self) -> io::Result<Recovery> {
        let mut recovery = Recovery::default();
        let (half_written, stuck) = remove_temporary(&self.0.ground.disk)?;
        recovery.half_written = half_written;
        let mut found = scan(&self.0.ground.disk, self.0.block_bytes);
        let mut segments = FoundSegments::scan(&self.0.ground.disk, self.0.block_bytes)?;
        if let Some(last) = segments.last {
            self.0.appender.start_after(last);
        }
        recovery.unreadable = stuck + found.unreadable + segments.unreadable;
        // Never released, because files that cannot be read are left alone.
        drop(
            self.0
                .ground
                .ledger
                .lock()
                .residency
                .reserve(segments.unreadable_bytes),
        );
        recovery.unflushed = self.keep_unflushed(&mut found)?;
        for block in found.other_block_size.drain(..) {
            recovery.other_block_size += 1;
            recovery.unreadable += u64::from(self.0.ground.disk.remove_block(block).is_err());
        }
        for (path, blocks) in segments.other_block_size.drain(..) {
            recovery.other_block_size += blocks;
            recovery.unreadable += u64::from(self.0.ground.disk.unlink(&path).is_err());
        }
        recovery.unreadable += self.0.removal.restore_quarantine()?;
        self.quarantine(&mut recovery, &found.strange);
        self.quarantine(&mut recovery, &segments.strange);
        found.blocks.extend(segments.blocks());
        recovery.unreadable += segments.keep_newest(&self.0.ground.disk, &mut found.blocks);
        self.restore_blocks(&mut recovery, found.blocks, segments);
        Ok(recovery)
    }

    fn quarantine(&self, recovery: &mut Recovery, strange: &[PathBuf]) {
        for path in strange {
            match self.0.removal.quarantine_strange(path) {
                Ok(()) => recovery.quarantined += 1,
                Err(error) => {
                    recovery.unreadable += 1;
                    tracing::warn!(path = %path.display(), %error, "an unknown file could not be moved to the quarantine");
                }
            }
        }
    }

    /// Removes the blocks of an earlier build's dirty objects from `found`, and reserves their room. Returns
    /// the number of such versions.
    fn keep_unflushed(&self, found: &mut Found) -> io::Result<u64> {
        let unflushed = Unflushed::find(&self.0.ground.disk)?;
        let is_unflushed = |block: BlockId| unflushed.versions.contains(&block.version);
        found.other_block_size.retain(|block| !is_unflushed(*block));
        let blocks = found.blocks.extract_if(.., |found| is_unflushed(found.stored.id));
        let blocks_bytes: u64 = blocks.map(|block| block.charge_bytes).sum();
        // Never released, because this build does not remove the files.
        let taken_bytes = unflushed.charge_bytes + blocks_bytes;
        let taken = self.0.ground.ledger.lock().residency.reserve(taken_bytes);
        if let Err(refusal) = taken {
            tracing::warn!(
                ?refusal,
                "the files of an earlier build take more than the capacity of the store"
            );
        }
        if !unflushed.versions.is_empty() {
            tracing::error!(
                path = %self.0.ground.disk.unflushed_folder().display(),
                versions = unflushed.versions.len(),
                hint = "start the earlier build once more and run `shoal flush`; until then its files stay here",
                "objects that an earlier build wrote back are in this folder, and were not brought to the lake",
            );
        }
        Ok(unflushed.versions.len() as u64)
    }

    /// Admits the latest stored blocks for which there is room, oldest first. Blocks of pinned objects take
    /// precedence. A segment is kept or removed as a whole.
    fn restore_blocks(&self, recovery: &mut Recovery, blocks: Vec<FoundBlock>, found: FoundSegments) {
        let newest = blocks.iter().map(|block| block.stored.sequence).max();
        self.0.start_at(newest.map_or(0, |newest| newest + 1));
        let (mut kept, surplus, kept_segments) = self.choose(blocks, &found);
        recovery.over_capacity = surplus.len() as u64;
        let disk = &self.0.ground.disk;
        for FoundBlock { stored, .. } in surplus.iter().filter(|block| block.place == Place::File) {
            recovery.unreadable += u64::from(disk.remove_block(stored.id).is_err());
        }
        for (number, segment) in found.segments {
            if kept_segments.contains(&number) {
                self.restore_segment(&segment);
            } else {
                // No block in it is kept.
                recovery.unreadable += u64::from(disk.unlink(&disk.segment_path(number)).is_err());
            }
        }
        kept.sort_unstable_by_key(|block| block.stored.sequence);
        let ledger = &self.0.ground.ledger;
        for block in kept {
            let location = match block.place {
                Place::File => Location::File,
                Place::Entry(address) => Location::Entry(ledger.lock().segments.entry(address)),
            };
            let is_restored = ledger.restore(block.charge_bytes, &block.stored, &location);
            assert!(is_restored, "room that was counted as free is free");
            recovery.blocks += 1;
            recovery.bytes += block.charge_bytes;
        }
    }

    /// Chooses the blocks for which there is room. Returns them, the others, and the segments of the former.
    fn choose(
        &self,
        mut blocks: Vec<FoundBlock>,
        found: &FoundSegments,
    ) -> (Vec<FoundBlock>, Vec<FoundBlock>, HashSet<SegmentNumber>) {
        let free_bytes = {
            let state = self.0.ground.ledger.lock();
            blocks.sort_unstable_by_key(|block| {
                (state.pins.contains(block.stored.object), block.stored.sequence)
            });
            state.residency.room().free_bytes()
        };
        let mut charges: HashMap<SegmentNumber, u64> = HashMap::new();
        for block in &blocks {
            if let Place::Entry(address) = block.place {
                *charges.entry(address.segment).or_default() += block.charge_bytes;
            }
        }
        let (mut fill, mut segments, mut is_full) = (Fill::default(), HashSet::new(), false);
        let is_kept = |block: &FoundBlock| {
            let mut next = fill;
            match block.place {
                Place::File => next.file_bytes += block.charge_bytes,
                Place::Entry(address) if segments.contains(&address.segment) => return true,
                Place::Entry(address) => {
                    next.segment_bytes += self.disk_bytes(&found.segments[&address.segment]);
                    next.charges += charges[&address.segment];
                }
            }
            is_full |= next.taken_bytes() > free_bytes;
            if is_full {
                return false;
            }
            fill = next;
            if let Place::Entry(address) = block.place {
                segments.insert(address.segment);
            }
            true
        };
        let (kept, surplus) = blocks.into_iter().rev().partition(is_kept);
        (kept, surplus, segments)
    }

    /// Adds a segment, whose blocks are restored later.
    fn restore_segment(&self, found: &FoundSegment) {
        let disk_bytes = self.disk_bytes(found);
        let state = &mut *self.0.ground.ledger.lock();
        let room = state.residency.reserve(disk_bytes);
        let room = room.expect("room that was counted as free is free");
        let reserved = state.segments.reserve(disk_bytes, room);
        reserved.expect("this room is enough");
        state.segments.open(&found.file, disk_bytes);
        for (slot, record) in (0..).zip(&found.records) {
            state.segments.push(&Entry {
                segment: Arc::clone(&found.file),
                slot,
                offset: record.offset.into(),
                bytes: record.entry_bytes.into(),
            });
        }
        state.segments.close(found.file.number);
    }

    fn disk_bytes(&self, found: &FoundSegment) -> u64 {
        self.0.ground.disk.charge_bytes(found.file.layout.segment_bytes)
    }
}

impl Fill {
    fn taken_bytes(&self) -> u64 {
        self.file_bytes + self.segment_bytes.max(self.charges)
    }
}

/// Reads the footers of all blocks.
fn scan(disk: &Disk, block_bytes: u64) -> Found {
    let next = AtomicU16::new(0);
    let work = || {
        let mut found = Found::default();
        loop {
            let folder = next.fetch_add(1, Ordering::Relaxed);
            if folder >= FOLDERS {
                return found;
            }
            found.scan_folder(disk, folder, block_bytes);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let parts = workers
            .into_iter()
            .map(|worker| worker.join().expect("reading footers does not panic"));
        parts.fold(Found::default(), Found::merge)
    })
}

/// Removes the files that were being written when the node stopped. Returns how many were removed, and how
/// many could not be.
fn remove_temporary(disk: &Disk) -> io::Result<(u64, u64)> {
    let (mut removed, mut stuck) = (0, 0);
    for entry in fs::read_dir(disk.temp_folder())? {
        match disk.unlink(&entry?.path()) {
            Ok(()) => removed += 1,
            Err(_) => stuck += 1,
        }
    }
    Ok((removed, stuck))
}

impl Found {
    fn scan_folder(&mut self, disk: &Disk, number: u16, block_bytes: u64) {
        let Ok(entries) = fs::read_dir(disk.folder(number)) else {
            self.unreadable += 1;
            return;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.unreadable += 1;
                return;
            };
            if self.classify(disk, number, &entry, block_bytes).is_err() {
                self.unreadable += 1;
            }
        }
    }

    /// A folder among the block files is not a block, but it may hold an operator's work: it is reported as
    /// an error and left alone.
    fn classify(&mut self, disk: &Disk, folder: u16, entry: &DirEntry, block_bytes: u64) -> io::Result<()> {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let named = disk::parse_file_name(&entry.file_name()).filter(|_| kind.is_file());
        let Some(block) = named.filter(|block| disk::folder_of(*block) == folder) else {
            self.strange.push(entry.path());
            return Ok(());
        };
        match disk.open_file(block) {
            Ok((_, footer)) if footer.block() != block => self.strange.push(entry.path()),
            Ok((_, footer)) if footer.version.block_bytes != block_bytes => self.other_block_size.push(block),
            Ok((file, footer)) => {
                let metadata = file.metadata()?;
                // The larger of the estimated and the allocated disk space.
                let charge_bytes = disk.charge_bytes(metadata.len());
                self.blocks.push(FoundBlock {
                    stored: footer.stored(),
                    charge_bytes: charge_bytes.max(disk::allocated_bytes(&metadata)),
                    place: Place::File,
                });
            }
            Err(ReadError::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            Err(_) => self.strange.push(entry.path()),
        }
        Ok(())
    }

    fn merge(mut self, other: Self) -> Self {
        self.blocks.extend(other.blocks);
        self.strange.extend(other.strange);
        self.other_block_size.extend(other.other_block_size);
        self.unreadable += other.unreadable;
        self
    }
}
