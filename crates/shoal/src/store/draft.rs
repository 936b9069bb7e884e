//! Blocks whose version is not known yet because it has not been committed. They are written aside as they
//! arrive and named afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;
use shoal_policy::{BlockId, VersionId};

use super::Store;
use super::disk::TempFile;
use super::footer::{Checksum, Footer};
use super::mapping::Mapping;
use super::on_pool;
use super::writers::Urgency;
use crate::s3::object::Version;

/// Room reserved for a footer that is not known yet. Most footers are far shorter; a longer one reserves
/// more.
const FOOTER_BYTES: u64 = 1024;

/// The bytes of a block on this disk, without a name. Dropping it removes them from the disk.
pub struct Draft {
    store: Arc<Store>,
    aside: TempFile,
    data_bytes: u64,
    data_checksum: u64,
    /// Taken when the draft becomes a block.
    room: Option<Reservation>,
}

impl Store {
    /// Writes the bytes of a block to disk, where they wait for their name. The `pieces` together are the
    /// whole block.
    pub async fn draft(self: &Arc<Self>, pieces: Vec<Bytes>) -> Result<Draft, Refusal> {
        let data_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let drafted = if self.takes_no_blocks() {
            Err(Refusal::Paused)
        } else {
            let store = Arc::clone(self);
            self.writers
                .run(Urgency::Now, data_bytes, move || {
                    store.draft_now(&pieces, data_bytes)
                })
                .await
                .unwrap_or(Err(Refusal::Exhausted))
        };
        drafted.inspect_err(|&refusal| self.live.refused(refusal))
    }

    fn draft_now(self: Arc<Self>, pieces: &[Bytes], data_bytes: u64) -> Result<Draft, Refusal> {
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut room = self.reserve(self.disk.charge_bytes(data_bytes + FOOTER_BYTES))?;
        match self.write_temp(number, pieces, &[], &mut room) {
            Ok(aside) => Ok(Draft {
                aside,
                data_bytes,
                data_checksum: Checksum::of(pieces),
                room: Some(room),
                store: self,
            }),
            Err(refusal) => {
                self.abandon(number, room);
                Err(refusal)
            }
        }
    }
}

impl Store {
    /// Takes its name from a block and returns it as a draft of the same bytes. Fails if the block is not
    /// here, or is damaged.
    pub async fn unname(self: &Arc<Self>, block: BlockId) -> Result<Draft, Refusal> {
        let store = Arc::clone(self);
        let draft = on_pool(move || store.unname_now(block)).await;
        draft.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Gives the blocks of version `known_as` that are here to `version`, each under its index. Returns the
    /// indexes of all blocks of `version` that are here afterwards.
    pub async fn rename_version(self: &Arc<Self>, known_as: VersionId, version: Arc<Version>) -> Vec<u32> {
        let _protection = self.protect(known_as);
        for index in self.blocks_of(known_as) {
            let block = BlockId {
                version: known_as,
                index,
            };
            let renamed = match self.unname(block).await {
                Ok(draft) => draft.name(Arc::clone(&version), index).await,
                Err(refusal) => Err(refusal),
            };
            if let Err(refusal) = renamed {
                tracing::debug!(?block, ?refusal, "a block does not get another name");
            }
        }
        self.blocks_of(version.id)
    }

    fn unname_now(self: Arc<Self>, block: BlockId) -> Result<Draft, Refusal> {
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        let name = self.lock_name(block);
        let footer = match self.disk.open_block(block) {
            Ok((_, footer)) => footer,
            Err(error) => {
                drop(name);
                self.read_failed(block, &error);
                return Err(Refusal::Mismatched);
            }
        };
        let mut ledger = self.ledger.lock();
        let Some((leaving, mapping)) = ledger.remove(block, &self.mappings).pop() else {
            return Err(Refusal::Mismatched);
        };
        let room = ledger.residency.retake(leaving);
        drop(ledger);
        match self.disk.unpublish(block, number, footer.data_bytes) {
            Ok(aside) => {
                drop(name);
                drop(mapping);
                Ok(Draft {
                    store: Arc::clone(&self),
                    aside,
                    data_bytes: footer.data_bytes,
                    data_checksum: footer.data_checksum,
                    room: Some(room),
                })
            }
            Err(error) => {
                let refusal = self.write_failed("rename", &error);
                self.abandon(number, room);
                Err(refusal)
            }
        }
    }
}

impl Draft {
    /// Turns the draft into block `index` of `version`.
    pub async fn name(self, version: Arc<Version>, index: u32) -> Result<(), Refusal> {
        let store = Arc::clone(&self.store);
        let named = on_pool(move || self.name_now(&version, index)).await;
        let named = named.unwrap_or(Err(Refusal::Exhausted));
        named.inspect_err(|&refusal| store.live.refused(refusal))
    }

    fn name_now(mut self, version: &Version, index: u32) -> Result<(), Refusal> {
        let block = version.block(index);
        self.store.check(block, version, self.data_bytes)?;
        let footer = Footer {
            index,
            data_bytes: self.data_bytes,
            data_checksum: self.data_checksum,
            // Taken now, as it tells which version of an object was stored last.
            sequence: self.store.sequence.fetch_add(1, Ordering::Relaxed),
            version: version.clone(),
        };
        let encoded = footer.encode().ok_or(Refusal::TooLarge)?;
        let mapping = self.complete(&encoded)?;
        let room = self.room.take().expect("a draft has room until it has a name");
        self.store
            .publish(&footer, &self.aside, mapping, room)
            .map(|_| ())
    }

    /// Writes the footer behind the data, and maps the data.
    fn complete(&mut self, footer: &[u8]) -> Result<Mapping, Refusal> {
        let store = &self.store;
        let room = self.room.as_mut().expect("a draft has room until it has a name");
        let charge = store.disk.charge_bytes(self.data_bytes + footer.len() as u64);
        let beyond = charge.saturating_sub(room.bytes());
        store.ledger.lock().residency.extend(room, beyond)?;
        store
            .disk
            .append(&self.aside, footer)
            .map_err(|error| store.write_failed("write", &error))?;
        Mapping::of(&self.aside.file, self.data_bytes as usize)
            .map_err(|error| store.write_failed("map", &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            self.store.abandon(self.aside.number, room);
        }
    }
}
