//! Reads blocks and their descriptions from the disk, and handles failed reads.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use shoal_base::clock;
use shoal_policy::{BlockId, ObjectId};
use shoal_s3::object::Version;

use crate::counters::RemovalReason;
use crate::eviction::removal::Removal;
use crate::files::disk::ReadError;
use crate::files::mapping::Mapping;
use crate::ground::Ground;
use crate::ground::health::is_exhaustion;

/// Reads blocks. All of its methods may wait for the disk.
pub(crate) struct Loader {
    pub(crate) ground: Arc<Ground>,
    pub(crate) removal: Arc<Removal>,
}

impl Loader {
    /// Returns the block, verified and mapped, and counts a use if `is_used`. `None` if the block is not
    /// stored or is damaged.
    pub(crate) fn load(&self, block: BlockId, is_used: bool) -> Option<Bytes> {
        let _read = self.ground.ledger.begin_read(block)?;
        // Another reader may have loaded it while this one waited for a thread.
        let resident = self.ground.ledger.resident(block, is_used);
        if resident.is_some() {
            return resident;
        }
        let read = self.read_in(block, is_used);
        read.unwrap_or_else(|error| {
            self.read_failed(block, &error);
            None
        })
    }

    /// Returns the lake's description of the latest stored version of `object`, read from the footer of one
    /// of its blocks.
    pub(crate) fn describe(&self, object: ObjectId) -> Option<Arc<Version>> {
        loop {
            let block = self.ground.ledger.any_block_of(object)?;
            match self.ground.disk.open_block(block) {
                Ok((_, footer)) => return Some(Arc::new(footer.version)),
                // The failed block was removed from the index, so the next iteration tries another one.
                Err(error) if self.read_failed(block, &error) => {}
                Err(_) => return None,
            }
        }
    }

    /// Returns the lake's description of the version that a block belongs to. `None` if the block is not
    /// stored.
    pub(crate) fn version_of(&self, block: BlockId) -> Option<Arc<Version>> {
        let _read = self.ground.ledger.begin_read(block)?;
        let opened = self.ground.disk.open_block(block);
        let opened = opened.inspect_err(|error| {
            self.read_failed(block, error);
        });
        opened.ok().map(|(_, footer)| Arc::new(footer.version))
    }

    /// Handles a failed read: removes the block or marks the disk as failed, depending on the error. Returns
    /// true if the block was removed.
    pub(crate) fn read_failed(&self, block: BlockId, error: &ReadError) -> bool {
        let reason = match error {
            ReadError::Io(error) if is_exhaustion(error) => {
                self.ground.health.exhausted();
                tracing::warn!(?block, %error, "a block could not be read for a reason other than the disk");
                return false;
            }
            // The disk works, but the file is missing or a directory.
            ReadError::Io(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::IsADirectory
                ) =>
            {
                RemovalReason::Unreadable
            }
            ReadError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                self.ground.health.failed("read a block", error);
                RemovalReason::Unreadable
            }
            ReadError::Io(_) | ReadError::Footer(_) | ReadError::OtherBlock | ReadError::Checksum => {
                RemovalReason::Corrupt
            }
        };
        self.removal.condemn(block, reason, error);
        true
    }

    /// Reads a block with `pread`, where a failing disk returns an error, before mapping it, where it would
    /// raise a signal.
    fn read_in(&self, block: BlockId, is_used: bool) -> Result<Option<Bytes>, ReadError> {
        let (file, footer) = self.ground.disk.open_block(block)?;
        self.ground.disk.verify(&file, &footer)?;
        if let Some(mapping) = self.ground.ledger.mappings.mapping(block) {
            mapping.populate()?;
            return Ok(self.ground.ledger.mappings.refreshed(block, clock::instant()));
        }
        let mapping = Mapping::new(&file, footer.data_bytes as usize)?;
        Ok(self.ground.ledger.keep_mapped(block, mapping, is_used))
    }
}
