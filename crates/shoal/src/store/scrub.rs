//! A slow walk over all blocks that finds decayed ones before a reader does.

use std::fs;
use std::sync::Weak;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use shoal_policy::BlockId;

use super::disk::{self, FOLDERS, ReadError};
use super::maintenance::Signal;
use super::{Store, is_exhaustion};

/// The read rate of the scrub: 100 GiB in under four hours, and less than a hundredth of an SSD's rate.
const BYTES_PER_SECOND: u64 = 8 << 20;

/// Rest after each folder, so that a pass over an almost empty store is slow too.
const FOLDER_REST: Duration = Duration::from_secs(1);

/// Scrubs for as long as the store lives.
pub(super) fn run(store: &Weak<Store>, signal: &Signal) {
    for folder in (0..FOLDERS).cycle() {
        if !signal.sleep(FOLDER_REST) {
            return;
        }
        let Some(blocks) = store.upgrade().map(|store| store.blocks_in(folder)) else {
            return;
        };
        for block in blocks {
            let Some(read_bytes) = store.upgrade().map(|store| store.scrub_block(block)) else {
                return;
            };
            let pace = Duration::from_secs_f64(read_bytes as f64 / BYTES_PER_SECOND as f64);
            if !signal.sleep(pace) {
                return;
            }
        }
        let Some(store) = store.upgrade() else { return };
        store.folder_scrubbed(folder);
    }
}

impl Store {
    /// Verifies every block now, as fast as the disk allows. Returns how many were read. Blocks the caller.
    pub fn scrub(&self) -> u64 {
        let before = self.live.scrubbed_blocks.get();
        for folder in 0..FOLDERS {
            self.blocks_in(folder).into_iter().for_each(|block| {
                self.scrub_block(block);
            });
            self.folder_scrubbed(folder);
        }
        self.live.scrubbed_blocks.get() - before
    }

    fn folder_scrubbed(&self, folder: u16) {
        let done = u64::from(folder) + 1;
        self.live.scrub_percent.set(done * 100 / u64::from(FOLDERS));
        if folder + 1 == FOLDERS {
            self.live.scrub_passes.add(1);
        }
    }

    fn blocks_in(&self, folder: u16) -> Vec<BlockId> {
        match fs::read_dir(self.disk.folder(folder)) {
            Ok(entries) => entries
                .flatten()
                .filter_map(|entry| disk::parse_file_name(&entry.file_name()))
                .collect(),
            Err(error) => {
                if !is_exhaustion(&error) {
                    self.disk_failed("list a folder", &error);
                }
                Vec::new()
            }
        }
    }

    /// Verifies one block. Returns how many bytes were read.
    fn scrub_block(&self, block: BlockId) -> u64 {
        let Some(_pin) = self.pin(block) else { return 0 };
        let read = self.reread(block);
        match read {
            Ok(bytes) => {
                self.live.scrubbed_blocks.add(1);
                bytes
            }
            Err(error) => {
                self.read_failed(block, &error);
                0
            }
        }
    }

    fn reread(&self, block: BlockId) -> Result<u64, ReadError> {
        let (file, footer) = self.disk.open_block(block)?;
        // The scrub has to ask the disk, so pages in memory are dropped first, and again afterwards, to leave
        // memory to readers. Mapped pages stay, as a reader wants them. A failure to drop pages makes the
        // check less deep, and is no error.
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        self.disk.verify(&file, &footer)?;
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        Ok(footer.data_bytes)
    }
}
