//! Blocks of a version that is not committed yet, so that its ID is unknown. They are written as they arrive
//! and named later.

use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::admission::Refusal;
use shoal_policy::quotas::QuotaIds;
use shoal_s3::object::Version;

use super::publish::{Publisher, StagedFile};
use super::writers::Urgency;
use crate::files::footer::{Checksum, Footer};
use crate::ground::blocking::run_blocking;

/// Room reserved for the footer, whose length is unknown yet. Most footers are far shorter; a longer one
/// reserves more.
const FOOTER_BYTES: u64 = 1024;

/// The bytes of a block on this disk, without a name. Dropping it removes them from the disk.
pub struct Draft {
    staged: StagedFile,
    data_bytes: u64,
    data_checksum: u64,
}

/// Drafts.
impl Publisher {
    /// Writes the bytes of a block to disk under a temporary name. The `pieces` together are the whole block.
    ///
    /// # Errors
    ///
    /// Fails if there is no room, if the disk fails, or if the store has stopped.
    pub async fn draft(self: &Arc<Self>, pieces: Vec<Bytes>) -> Result<Draft, Refusal> {
        let drafted = self.write_draft(pieces).await;
        drafted.inspect_err(|&refusal| self.ground.counters.refusals.count(refusal))
    }

    async fn write_draft(self: &Arc<Self>, pieces: Vec<Bytes>) -> Result<Draft, Refusal> {
        self.accepts()?;
        let data_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let publisher = Arc::clone(self);
        let work = move || {
            let (number, file_bytes) = (publisher.next_sequence(), data_bytes + FOOTER_BYTES);
            Ok(Draft {
                staged: StagedFile::write(&publisher, number, &pieces, &[], file_bytes)?,
                data_bytes,
                data_checksum: Checksum::compute(&pieces),
            })
        };
        let written = self.writers.run(Urgency::Now, data_bytes, work).await;
        written.unwrap_or(Err(Refusal::Exhausted))
    }
}

impl Draft {
    /// Turns the draft into block `index` of `version`, which counts in these quotas from now on. Returns
    /// when the block is stored.
    ///
    /// # Errors
    ///
    /// Fails as [`Publisher::put`] does, and removes the bytes from the disk.
    pub async fn name(self, version: Arc<Version>, index: u32, quotas: QuotaIds) -> Result<(), Refusal> {
        let ground = Arc::clone(&self.staged.publisher.ground);
        let named = run_blocking(move || self.name_now(&version, index, quotas)).await;
        let named = named.unwrap_or(Err(Refusal::Exhausted));
        named.inspect_err(|&refusal| ground.counters.refusals.count(refusal))
    }

    fn name_now(mut self, version: &Version, index: u32, quotas: QuotaIds) -> Result<(), Refusal> {
        let publisher = Arc::clone(&self.staged.publisher);
        publisher.check(version.block(index), version, self.data_bytes)?;
        let footer = Footer {
            index,
            data_bytes: self.data_bytes,
            data_checksum: self.data_checksum,
            // Assigned now, because sequence numbers determine which version of an object was stored last.
            sequence: publisher.next_sequence(),
            version: version.clone(),
            quotas,
        };
        let encoded = footer.encode().ok_or(Refusal::TooLarge)?;
        self.staged.append(self.data_bytes, &encoded)?;
        let mapping = self.staged.map(self.data_bytes)?;
        let charge_bytes = self.staged.room_bytes();
        let in_quotas = publisher.evictor.reserve_in_quotas(quotas, charge_bytes)?;
        self.staged.publish(&footer, mapping, in_quotas).map(drop)
    }
}
