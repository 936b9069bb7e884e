//! Blocks whose version is not known yet because it has not been committed. They are written as they arrive
//! and named afterwards.

use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::admission::Refusal;
use shoal_policy::{BlockId, VersionId};
use shoal_s3::object::Version;

use super::blocking::run_blocking;
use super::counters::LiveCounters;
use super::footer::{Checksum, Footer};
use super::ledger::Ledger;
use super::loader::Loader;
use super::publish::Publisher;
use super::staging::{StagedFile, Staging, UnnameError};
use super::writers::{Urgency, Writers};

/// Room reserved for a footer that is not known yet. Most footers are far shorter; a longer one reserves
/// more.
const FOOTER_BYTES: u64 = 1024;

/// Writes drafts, and turns blocks back into drafts.
pub(super) struct Drafts {
    ledger: Arc<Ledger>,
    staging: Arc<Staging>,
    loader: Arc<Loader>,
    publisher: Arc<Publisher>,
    writers: Arc<Writers>,
    counters: Arc<LiveCounters>,
}

/// The bytes of a block on this disk, without a name. Dropping it removes them from the disk.
pub struct Draft {
    drafts: Arc<Drafts>,
    staged: StagedFile,
    data_bytes: u64,
    data_checksum: u64,
}

impl Drafts {
    pub(super) fn new(
        ledger: &Arc<Ledger>,
        staging: &Arc<Staging>,
        loader: &Arc<Loader>,
        publisher: &Arc<Publisher>,
        writers: &Arc<Writers>,
        counters: &Arc<LiveCounters>,
    ) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            staging: Arc::clone(staging),
            loader: Arc::clone(loader),
            publisher: Arc::clone(publisher),
            writers: Arc::clone(writers),
            counters: Arc::clone(counters),
        }
    }

    /// Writes the bytes of a block to disk, where they wait for their name.
    pub(super) async fn draft(self: &Arc<Self>, pieces: Vec<Bytes>) -> Result<Draft, Refusal> {
        let drafted = self.write(pieces).await;
        drafted.inspect_err(|&refusal| self.counters.refused(refusal))
    }

    /// Takes its name from a block and returns it as a draft of the same bytes.
    pub(super) async fn unname(self: &Arc<Self>, block: BlockId) -> Result<Draft, Refusal> {
        let drafts = Arc::clone(self);
        let draft = run_blocking(move || drafts.unname_now(block)).await;
        draft.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Gives the blocks of version `known_as` that are here to `version`.
    pub(super) async fn rename_version(
        self: &Arc<Self>,
        known_as: VersionId,
        version: Arc<Version>,
    ) -> Vec<u32> {
        let _protection = self.ledger.protection(known_as);
        for index in self.ledger.blocks_of(known_as) {
            let block = BlockId {
                version: known_as,
                index,
            };
            let renamed = match self.unname(block).await {
                Ok(draft) => draft.name(Arc::clone(&version), index).await,
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = renamed {
                tracing::debug!(?block, ?refusal, "a block could not be renamed");
            }
        }
        self.ledger.blocks_of(version.id)
    }

    async fn write(self: &Arc<Self>, pieces: Vec<Bytes>) -> Result<Draft, Refusal> {
        self.staging.accepts()?;
        let data_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let drafts = Arc::clone(self);
        let work = move || drafts.write_now(&pieces, data_bytes);
        let written = self.writers.run(Urgency::Now, data_bytes, work).await;
        written.unwrap_or(Err(Refusal::Exhausted))
    }

    fn write_now(self: Arc<Self>, pieces: &[Bytes], data_bytes: u64) -> Result<Draft, Refusal> {
        let number = self.staging.next_sequence();
        let staged = self
            .staging
            .write(number, pieces, &[], data_bytes + FOOTER_BYTES)?;
        Ok(Draft {
            staged,
            data_bytes,
            data_checksum: Checksum::of(pieces),
            drafts: self,
        })
    }

    fn unname_now(self: Arc<Self>, block: BlockId) -> Result<Draft, Refusal> {
        match self.staging.unname(block) {
            Ok((staged, footer)) => Ok(Draft {
                staged,
                data_bytes: footer.data_bytes,
                data_checksum: footer.data_checksum,
                drafts: self,
            }),
            Err(UnnameError::Refused(refusal)) => Err(refusal),
            Err(UnnameError::Unreadable(error)) => {
                self.loader.read_failed(block, &error);
                Err(Refusal::Mismatched)
            }
        }
    }
}

impl Draft {
    /// Turns the draft into block `index` of `version`. Returns when the block is stored.
    ///
    /// # Errors
    ///
    /// Refuses as [`Store::put`](super::Store::put) does; then the bytes are removed from the disk.
    pub async fn name(self, version: Arc<Version>, index: u32) -> Result<(), Refusal> {
        let counters = Arc::clone(&self.drafts.counters);
        let named = run_blocking(move || self.name_now(&version, index)).await;
        let named = named.unwrap_or(Err(Refusal::Exhausted));
        named.inspect_err(|&refusal| counters.refused(refusal))
    }

    fn name_now(mut self, version: &Version, index: u32) -> Result<(), Refusal> {
        let publisher = &self.drafts.publisher;
        publisher.check(version.block(index), version, self.data_bytes)?;
        let footer = Footer {
            index,
            data_bytes: self.data_bytes,
            data_checksum: self.data_checksum,
            // Taken now, as it tells which version of an object was stored last.
            sequence: self.drafts.staging.next_sequence(),
            version: version.clone(),
        };
        let encoded = footer.encode().ok_or(Refusal::TooLarge)?;
        self.staged.append(self.data_bytes, &encoded)?;
        let mapping = self.staged.map(self.data_bytes)?;
        publisher.publish(&footer, self.staged, mapping).map(|_| ())
    }
}
