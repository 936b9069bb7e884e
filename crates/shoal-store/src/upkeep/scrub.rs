//! Verifies all blocks slowly in the background, to find decayed ones before a reader does.

use std::fs;
use std::sync::Weak;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use shoal_policy::BlockId;

use crate::blocks::loader::Loader;
use crate::files::disk::{self, FOLDERS, ReadError};
use crate::ground::health::is_exhaustion;
use crate::ground::signal::Signal;

/// The read rate of the scrub: 100 GiB in under four hours, less than 1% of an SSD's bandwidth.
const BYTES_PER_SECOND: u64 = 8 << 20;

/// Pause before each folder, so that a pass over an almost empty store is slow too.
const FOLDER_REST: Duration = Duration::from_secs(1);

/// Scrubs until `signal` is stopped or the loader is dropped.
pub(crate) fn run(loader: &Weak<Loader>, signal: &Signal) {
    for folder in (0..FOLDERS).cycle() {
        if !signal.sleep(FOLDER_REST) {
            return;
        }
        let Some(blocks) = loader.upgrade().map(|loader| loader.blocks_in(folder)) else {
            return;
        };
        for block in blocks {
            let Some(read_bytes) = loader.upgrade().map(|loader| loader.verify(block)) else {
                return;
            };
            let pace = Duration::from_secs_f64(read_bytes as f64 / BYTES_PER_SECOND as f64);
            if !signal.sleep(pace) {
                return;
            }
        }
        let Some(loader) = loader.upgrade() else { return };
        loader.folder_done(folder);
    }
}

/// Verifying blocks on the disk.
impl Loader {
    /// Verifies every block now, as fast as the disk allows. Returns the number of blocks read. Blocks the
    /// caller.
    #[cfg(test)]
    pub(crate) fn scrub(&self) -> u64 {
        let before = self.ground.counters.scrubbed_blocks.get();
        for folder in 0..FOLDERS {
            self.blocks_in(folder).into_iter().for_each(|block| {
                self.verify(block);
            });
            self.folder_done(folder);
        }
        self.ground.counters.scrubbed_blocks.get() - before
    }

    fn folder_done(&self, folder: u16) {
        let done = u64::from(folder) + 1;
        self.ground
            .counters
            .scrub_percent
            .set(done * 100 / u64::from(FOLDERS));
        if folder + 1 == FOLDERS {
            self.ground.counters.scrub_passes.add(1);
        }
    }

    fn blocks_in(&self, folder: u16) -> Vec<BlockId> {
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
        let Some(_read) = self.ground.ledger.begin_read(block) else {
            return 0;
        };
        match self.reread(block) {
            Ok(bytes) => {
                self.ground.counters.scrubbed_blocks.add(1);
                bytes
            }
            Err(error) => {
                self.read_failed(block, &error);
                0
            }
        }
    }

    fn reread(&self, block: BlockId) -> Result<u64, ReadError> {
        let (file, footer) = self.ground.disk.open_block(block)?;
        // The scrub has to read from the disk, so cached pages are dropped first, and again afterwards to
        // leave memory to readers. Mapped pages stay, because readers use them. If pages cannot be dropped,
        // the check covers only memory, which is no error.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        self.ground.disk.verify(&file, &footer)?;
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        Ok(footer.data_bytes)
    }
}
