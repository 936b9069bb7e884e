//! Stores a block: checks it, reserves room, writes, maps and renames the file, and admits the block.

use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;
use shoal_s3::object::Version;
use tokio::sync::oneshot;

use super::loader::Loader;
use super::staging::{Published, StagedFile, Staging};
use super::writers::{Urgency, Writers};
use crate::files::footer::{Checksum, Footer};
use crate::files::mapping::Mapping;
use crate::ground::Ground;
use crate::ground::watch::BlockEvent;

/// Stores blocks.
pub(crate) struct Publisher {
    pub(crate) ground: Arc<Ground>,
    pub(crate) staging: Arc<Staging>,
    loader: Arc<Loader>,
    pub(crate) writers: Arc<Writers>,
    block_bytes: u64,
}

impl Publisher {
    /// Creates a publisher that accepts only versions with blocks of `block_bytes`.
    pub(crate) fn new(
        ground: &Arc<Ground>,
        staging: &Arc<Staging>,
        loader: &Arc<Loader>,
        writers: &Arc<Writers>,
        block_bytes: u64,
    ) -> Self {
        Self {
            ground: Arc::clone(ground),
            staging: Arc::clone(staging),
            loader: Arc::clone(loader),
            writers: Arc::clone(writers),
            block_bytes,
        }
    }

    /// Stores a block and returns it mapped.
    pub(crate) async fn put(
        self: &Arc<Self>,
        block: BlockId,
        version: Arc<Version>,
        pieces: Vec<Bytes>,
        urgency: Urgency,
    ) -> Result<Bytes, Refusal> {
        let (done, outcome) = oneshot::channel();
        self.put_then(block, version, pieces, urgency, move |stored| {
            // The caller may be gone, but the block was also stored for later readers.
            let _ = done.send(stored);
        });
        outcome.await.unwrap_or(Err(Refusal::Exhausted))
    }

    /// As [`Publisher::put`], without waiting.
    pub(crate) fn put_then(
        self: &Arc<Self>,
        block: BlockId,
        version: Arc<Version>,
        pieces: Vec<Bytes>,
        urgency: Urgency,
        then: impl FnOnce(Result<Bytes, Refusal>) + Send + 'static,
    ) {
        let data_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        if let Err(refusal) = self.check(block, &version, data_bytes) {
            self.ground.refused(block, refusal);
            return then(Err(refusal));
        }
        let publisher = Arc::clone(self);
        let submitted = self.writers.submit(urgency, data_bytes, move || {
            let stored = publisher.put_now(block, &version, &pieces);
            // Drop the pieces first, because the callback releases their share of the memory window.
            drop(pieces);
            then(stored.inspect_err(|&refusal| publisher.ground.refused(block, refusal)));
        });
        if submitted.is_none() {
            self.ground.refused(block, Refusal::Exhausted);
        }
    }

    /// Checks that `data_bytes` of `version` can be this block, and that the store accepts blocks.
    pub(crate) fn check(&self, block: BlockId, version: &Version, data_bytes: u64) -> Result<(), Refusal> {
        let is_block = version.id == block.version
            && version.id == Version::id_of(version.object, &version.etag, version.size_bytes)
            && version.block_bytes == self.block_bytes
            && block.index < version.block_count()
            && data_bytes == version.block_len(block.index);
        if !is_block {
            return Err(Refusal::Mismatched);
        }
        self.staging.accepts()
    }

    /// Publishes a file with data and footer as a block. Returns the bytes of the stored block, which may be
    /// one that another task stored first.
    pub(crate) fn publish(
        &self,
        footer: &Footer,
        staged: StagedFile,
        mapping: Mapping,
    ) -> Result<Bytes, Refusal> {
        match staged.publish(footer, mapping)? {
            Published::Stored(bytes) => {
                self.ground
                    .watch
                    .notify(footer.block(), footer.data_bytes, BlockEvent::Stored);
                Ok(bytes)
            }
            Published::AlreadyHere => self.loader.load(footer.block()).ok_or(Refusal::NoRoom),
        }
    }

    fn put_now(&self, block: BlockId, version: &Version, pieces: &[Bytes]) -> Result<Bytes, Refusal> {
        if let Some(bytes) = self.loader.load(block) {
            return Ok(bytes);
        }
        self.ground.ledger.admits(version.object, block)?;
        let sequence = self.staging.next_sequence();
        let footer = Footer {
            index: block.index,
            data_bytes: version.block_len(block.index),
            data_checksum: Checksum::compute(pieces),
            sequence,
            version: version.clone(),
        };
        let encoded = footer.encode().ok_or(Refusal::TooLarge)?;
        let file_bytes = footer.data_bytes + encoded.len() as u64;
        let staged = self.staging.write(sequence, pieces, &encoded, file_bytes)?;
        let mapping = staged.map(footer.data_bytes)?;
        self.publish(&footer, staged, mapping)
    }
}
