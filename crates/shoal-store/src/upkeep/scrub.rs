//! Verifies all blocks slowly in the background, to find decayed ones before a reader does.

use std::fs;
use std::sync::Weak;
use std::time::Duration;

use shoal_policy::BlockId;

use crate::blocks::loader::Loader;
use crate::files::disk::{self, FOLDERS, ReadError};
use crate::files::place::SegmentNumber;
use crate::ground::health::is_exhaustion;
use crate::ground::signal::Signal;
use crate::ledger::BlockRead;

/// The read rate of the scrub: 100 GiB in under four hours, less than 1% of an SSD's bandwidth.
const BYTES_PER_SECOND: u64 = 8 << 20;

/// Pause before each part, so that a pass over an almost empty store is slow too.
const PART_REST: Duration = Duration::from_secs(1);

/// A part of the blocks.
#[derive(Clone, Copy)]
enum Part {
    Folder(u16),
    Segment(SegmentNumber),
}

/// Scrubs until `signal` is stopped or the loader is dropped.
pub(crate) fn run(loader: &Weak<Loader>, signal: &Signal) {
    while let Some(parts) = loader.upgrade().map(|loader| loader.parts()) {
        for (number, part) in parts.iter().enumerate() {
            if !scrub(loader, signal, *part) {
                return;
            }
            let Some(loader) = loader.upgrade() else { return };
            loader.part_done(number, parts.len());
        }
    }
}

/// Scrubs a part of the blocks. Returns false if the thread has to end.
fn scrub(loader: &Weak<Loader>, signal: &Signal, part: Part) -> bool {
    if !signal.sleep(PART_REST) {
        return false;
    }
    let Some(blocks) = loader.upgrade().map(|loader| loader.blocks_in(part)) else {
        return false;
    };
    for block in blocks {
        let Some(read_bytes) = loader.upgrade().map(|loader| loader.verify(block)) else {
            return false;
        };
        let pace = Duration::from_secs_f64(read_bytes as f64 / BYTES_PER_SECOND as f64);
        if !signal.sleep(pace) {
            return false;
        }
    }
    true
}

/// Verifying blocks on the disk.
impl Loader {
    /// Verifies every block now, as fast as the disk allows. Returns the number of blocks read. Blocks the
    /// caller.
    #[cfg(test)]
    pub(crate) fn scrub(&self) -> u64 {
        let before = self.ground.counters.scrubbed_blocks.get();
        let parts = self.parts();
        for (number, part) in parts.iter().enumerate() {
            self.blocks_in(*part).into_iter().for_each(|block| {
                self.verify(block);
            });
            self.part_done(number, parts.len());
        }
        self.ground.counters.scrubbed_blocks.get() - before
    }

    /// Returns the parts of a pass.
    fn parts(&self) -> Vec<Part> {
        let segments = self.ground.ledger.lock().segments.numbers().into_iter();
        let folders = (0..FOLDERS).map(Part::Folder);
        folders.chain(segments.map(Part::Segment)).collect()
    }

    fn part_done(&self, number: usize, parts: usize) {
        let done = number as u64 + 1;
        let counters = &self.ground.counters;
        counters.scrub_percent.set(done * 100 / parts as u64);
        if number + 1 == parts {
            counters.scrub_passes.add(1);
        }
    }

    fn blocks_in(&self, part: Part) -> Vec<BlockId> {
        match part {
            Part::Folder(folder) => self.files_in(folder),
            Part::Segment(number) => self.ground.ledger.blocks_in(number),
        }
    }

    fn files_in(&self, folder: u16) -> Vec<BlockId> {
        match fs::read_dir(self.ground.disk.folder(folder)) {
            Ok(entries) => entries
                .flatten()
                .filter_map(|entry| disk::parse_file_name(&entry.file_name()))
                .collect(),
            Err(error) => {
                if !is_exhaustion(&error) {
                    self.ground.health.failed("list a folder", &error);
                }
                Vec::new()
            }
        }
    }

    /// Verifies one block. Returns the number of bytes read.
    fn verify(&self, block: BlockId) -> u64 {
        let Some(read) = self.ground.ledger.begin_read(block) else {
            return 0;
        };
        match self.reread(&read) {
            Ok(bytes) => {
                self.ground.counters.scrubbed_blocks.add(1);
                bytes
            }
            Err(error) => {
                self.removal.read_failed(block, &error);
                0
            }
        }
    }

    fn reread(&self, read: &BlockRead<'_>) -> Result<u64, ReadError> {
        let opened = self.open(read)?;
        opened.reverify(&self.ground.disk)?;
        Ok(opened.footer.data_bytes)
    }
}
