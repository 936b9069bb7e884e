//! Reads blocks and their descriptions from the disk, and handles failed reads.

use std::sync::Arc;

use bytes::Bytes;
use shoal_base::clock;
use shoal_policy::{BlockId, ObjectId};
use shoal_s3::object::Version;

use crate::eviction::removal::Removal;
use crate::files::disk::ReadError;
use crate::files::location::Opened;
use crate::ground::Ground;
use crate::ledger::BlockRead;

/// Reads blocks. All of its methods may wait for the disk.
pub(crate) struct Loader {
    pub(crate) ground: Arc<Ground>,
    pub(crate) removal: Arc<Removal>,
}

impl Loader {
    /// Returns the block, verified and mapped, and counts a use if `is_used`. `None` if the block is not
    /// stored or is damaged.
    pub(crate) fn load(&self, block: BlockId, is_used: bool) -> Option<Bytes> {
        let read = self.ground.ledger.begin_read(block)?;
        // Another reader may have loaded it while this one waited for a thread.
        let resident = self.ground.ledger.resident(block, is_used);
        if resident.is_some() {
            return resident;
        }
        let mapped = self.read_in(&read, is_used);
        mapped.unwrap_or_else(|error| {
            self.removal.read_failed(block, &error);
            None
        })
    }

    /// Returns the lake's description of the latest stored version of `object`, read from the footer of one
    /// of its blocks.
    pub(crate) fn describe(&self, object: ObjectId) -> Option<Arc<Version>> {
        loop {
            let block = self.ground.ledger.any_block_of(object)?;
            let Some(read) = self.ground.ledger.begin_read(block) else {
                continue;
            };
            match self.open(&read) {
                Ok(opened) => return Some(Arc::new(opened.footer.version)),
                // The failed block was removed from the index, so the next iteration tries another one.
                Err(error) if self.removal.read_failed(block, &error) => {}
                Err(_) => return None,
            }
        }
    }

    /// Returns the lake's description of the version that a block belongs to. `None` if the block is not
    /// stored.
    pub(crate) fn version_of(&self, block: BlockId) -> Option<Arc<Version>> {
        let read = self.ground.ledger.begin_read(block)?;
        let opened = self.open(&read).inspect_err(|error| {
            self.removal.read_failed(block, error);
        });
        opened.ok().map(|opened| Arc::new(opened.footer.version))
    }

    /// Opens a block and reads its description.
    pub(crate) fn open(&self, read: &BlockRead<'_>) -> Result<Opened, ReadError> {
        self.ground.disk.open_block(read.block, &read.location)
    }

    /// Reads a block with `pread`, where a failing disk returns an error, before mapping it, where it would
    /// raise a signal.
    fn read_in(&self, read: &BlockRead<'_>, is_used: bool) -> Result<Option<Bytes>, ReadError> {
        let opened = self.open(read)?;
        opened.verify(&self.ground.disk)?;
        if let Some(mapping) = self.ground.ledger.mappings.mapping(read.block) {
            mapping.populate()?;
            return Ok(self
                .ground
                .ledger
                .mappings
                .refreshed(read.block, clock::instant()));
        }
        let mapping = opened.map()?;
        Ok(self.ground.ledger.keep_mapped(read, mapping, is_used))
    }
}
