//! Stores a block: checks it, reserves room, writes, maps and renames the file, and admits the block.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;
use shoal_s3::object::Version;
use tokio::sync::oneshot;

use super::loader::Loader;
use super::staging::StagedFile;
use super::writers::{Urgency, Writers};
use crate::eviction::evictor::Evictor;
use crate::eviction::removal::Removal;
use crate::files::footer::{Checksum, Footer};
use crate::ground::Ground;

/// Stores blocks.
pub struct Publisher {
    pub(crate) ground: Arc<Ground>,
    pub(crate) evictor: Arc<Evictor>,
    pub(crate) removal: Arc<Removal>,
    pub(crate) loader: Arc<Loader>,
    pub(crate) writers: Arc<Writers>,
    /// Only versions with blocks of this size are accepted.
    pub(crate) block_bytes: u64,
    /// Sequence number of the next file written.
    pub(crate) sequence: AtomicU64,
}

impl Publisher {
    /// Sets the first sequence number, before anything is written.
    pub(crate) fn start_at(&self, sequence: u64) {
        let before = self.sequence.swap(sequence, Ordering::Relaxed);
        debug_assert_eq!(before, 0, "sequence numbers never decrease");
    }

    /// Checks that the disk accepts files and that the store has not stopped.
    pub(crate) fn accepts(&self) -> Result<(), Refusal> {
        if self.ground.health.is_paused() || self.ground.maintenance.is_stopped() {
            return Err(Refusal::Paused);
        }
        Ok(())
    }

    /// Returns a sequence number. Numbers increase across restarts.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Stores a block and returns it mapped.
    ///
    /// The `pieces` together are the whole block. If the block is already stored, `put` does nothing and
    /// returns the stored one. `put` returns when the block is on disk. Depending on `urgency`, it is written
    /// at once or when readers leave time for it.
    ///
    /// # Errors
    ///
    /// Fails with the [`Refusal`] that explains why the block was not cached.
    pub async fn put(
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

    /// As [`Publisher::put`], without waiting. `then` is called with the outcome on the thread that wrote the
    /// block, or dropped without a call if the threads have stopped.
    pub fn put_then(
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
        self.accepts()
    }

    fn put_now(
        self: &Arc<Self>,
        block: BlockId,
        version: &Version,
        pieces: &[Bytes],
    ) -> Result<Bytes, Refusal> {
        if let Some(bytes) = self.loader.load(block) {
            return Ok(bytes);
        }
        self.ground.ledger.admits(version.object, block)?;
        let sequence = self.next_sequence();
        let footer = Footer {
            index: block.index,
            data_bytes: version.block_len(block.index),
            data_checksum: Checksum::compute(pieces),
            sequence,
            version: version.clone(),
        };
        let encoded = footer.encode().ok_or(Refusal::TooLarge)?;
        let file_bytes = footer.data_bytes + encoded.len() as u64;
        let staged = StagedFile::write(self, sequence, pieces, &encoded, file_bytes)?;
        let mapping = staged.map(footer.data_bytes)?;
        staged.publish(&footer, mapping)
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}
