//! How a block gets into the store: it is checked, given room, written aside, mapped, renamed, admitted.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;
use tokio::sync::oneshot;

use super::Store;
use super::disk::TempFile;
use super::eviction_log::Absence;
use super::footer::{Checksum, Footer};
use super::is_exhaustion;
use super::mapping::Mapping;
use super::removal::{FileName, PendingRemoval, Room};
use super::writers::Urgency;
use crate::clock;
use crate::s3::object::Version;

impl Store {
    /// Stores a block and returns it mapped.
    ///
    /// The `pieces` together are the whole block. If the block is already here, `put` does nothing and
    /// returns the stored one. A refusal is no error: the block is not cached, and the name of the refusal
    /// says why. `put` returns when the block is on disk: soon, or when readers leave time for it, depending
    /// on `urgency`.
    pub async fn put(
        self: &Arc<Self>,
        block: BlockId,
        version: Arc<Version>,
        pieces: Vec<Bytes>,
        urgency: Urgency,
    ) -> Result<Bytes, Refusal> {
        let (done, outcome) = oneshot::channel();
        self.put_then(block, version, pieces, urgency, move |stored| {
            // The caller may be gone; the block was stored for later readers, too.
            let _ = done.send(stored);
        });
        outcome.await.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Like [`Store::put`], for callers that do not wait. `then` receives the outcome on the thread that
    /// wrote the block. It is dropped without a call if the threads have stopped.
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
            self.refused(block, refusal);
            return then(Err(refusal));
        }
        let store = Arc::clone(self);
        let handed = self.writers.hand_over(urgency, data_bytes, move || {
            let stored = store.put_now(block, &version, &pieces);
            // The callback gives back the room in memory that the pieces took.
            drop(pieces);
            then(stored.inspect_err(|refusal| store.refused(block, *refusal)));
        });
        if handed.is_none() {
            self.refused(block, Refusal::Exhausted);
        }
    }

    fn refused(&self, block: BlockId, refusal: Refusal) {
        self.live.refused(refusal);
        self.eviction_log.note(block, Absence::Refused(refusal));
    }

    pub(super) fn check(&self, block: BlockId, version: &Version, data_bytes: u64) -> Result<(), Refusal> {
        let is_block = version.id == block.version
            && version.id == Version::id_of(version.object, &version.etag, version.size_bytes)
            && version.block_bytes == self.block_bytes
            && block.index < version.block_count()
            && data_bytes == version.block_len(block.index);
        if !is_block {
            return Err(Refusal::Mismatched);
        }
        if self.takes_no_blocks() {
            return Err(Refusal::Paused);
        }
        Ok(())
    }

    pub(super) fn takes_no_blocks(&self) -> bool {
        self.paused.load(Ordering::Acquire) || self.maintenance.is_stopped()
    }

    fn put_now(&self, block: BlockId, version: &Version, pieces: &[Bytes]) -> Result<Bytes, Refusal> {
        if let Some(bytes) = self.load_now(block) {
            return Ok(bytes);
        }
        self.ledger.lock().residency.policy().admits(block)?;
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        let footer = describe(block, version, pieces, number);
        let encoded = footer.encode().ok_or(Refusal::TooLarge)?;
        let mut room = self.reserve(self.disk.charge_bytes(footer.data_bytes + encoded.len() as u64))?;
        let written = self
            .write_temp(number, pieces, &encoded, &mut room)
            .and_then(|aside| {
                let mapping = Mapping::of(&aside.file, footer.data_bytes as usize);
                Ok((
                    aside,
                    mapping.map_err(|error| self.write_failed("map a block", &error))?,
                ))
            });
        match written {
            Ok((aside, mapping)) => self.publish(&footer, &aside, mapping, room),
            Err(refusal) => {
                self.abandon(number, room);
                Err(refusal)
            }
        }
    }

    /// Reserves room, and evicts if there is none: the watermarks keep some room free, but a burst may outrun
    /// them.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation, Refusal> {
        let mut uses = self.mappings.take_uses();
        loop {
            let reserved = {
                let mut ledger = self.ledger.lock();
                ledger.touch(&std::mem::take(&mut uses));
                let reserved = ledger.reserve(bytes, &self.mappings);
                if ledger.residency.is_crowded() {
                    self.maintenance.wake();
                }
                reserved
            };
            match reserved {
                Ok(room) => return Ok(room),
                Err((refusal, victims)) if victims.is_empty() => {
                    self.press();
                    return Err(refusal);
                }
                Err((_, victims)) => self.evicted(victims),
            }
        }
    }

    pub(super) fn write_temp(
        &self,
        number: u64,
        pieces: &[Bytes],
        footer: &[u8],
        room: &mut Reservation,
    ) -> Result<TempFile, Refusal> {
        let aside = self
            .disk
            .write_temp(number, pieces, footer)
            .map_err(|error| self.write_failed("write a block", &error))?;
        // Unusual file systems may take more room than the common ones.
        let beyond = aside.allocated_bytes.saturating_sub(room.bytes());
        self.ledger.lock().residency.extend(room, beyond)?;
        Ok(aside)
    }

    pub(super) fn publish(
        &self,
        footer: &Footer,
        aside: &TempFile,
        mapping: Mapping,
        room: Reservation,
    ) -> Result<Bytes, Refusal> {
        let block = footer.block();
        let name = self.lock_name(block);
        let renamed = if self.contains(block) {
            None
        } else {
            Some(self.disk.publish(aside, block))
        };
        match renamed {
            Some(Ok(())) => {
                let mut ledger = self.ledger.lock();
                ledger.admit(room, block, footer.version.object, footer.sequence);
                let bytes = self.mappings.insert(block, mapping, clock::instant());
                let unmapped = ledger.mapped(block, footer.data_bytes, &self.mappings);
                drop(ledger);
                drop(name);
                drop(unmapped);
                self.live.stored_blocks.add(1);
                Ok(bytes)
            }
            Some(Err(error)) => {
                drop(name);
                let refusal = if error.kind() == io::ErrorKind::IsADirectory {
                    let path = self.disk.block_path(block);
                    tracing::warn!(
                        path = %path.display(),
                        hint = "move it out of the store",
                        "a folder stands where a block would be; the block is not stored",
                    );
                    Refusal::Obstructed
                } else {
                    self.write_failed("name a block", &error)
                };
                self.abandon(aside.number, room);
                Err(refusal)
            }
            None => {
                // Another task stored the block while this one wrote: that block stays, as readers may hold
                // it.
                drop(name);
                drop(mapping);
                self.abandon(aside.number, room);
                self.load_now(block).ok_or(Refusal::NoRoom)
            }
        }
    }

    /// Removes a file that was written aside and is not going to be published.
    pub(super) fn abandon(&self, number: u64, room: Reservation) {
        self.depart(PendingRemoval::new(
            FileName::TempFile(number),
            Room::Reserved(room),
            None,
        ));
    }

    pub(super) fn write_failed(&self, action: &str, error: &io::Error) -> Refusal {
        if is_exhaustion(error) {
            self.live.io_errors.add(1);
            return Refusal::Exhausted;
        }
        self.disk_failed(action, error);
        Refusal::Paused
    }
}

fn describe(block: BlockId, version: &Version, pieces: &[Bytes], sequence: u64) -> Footer {
    Footer {
        index: block.index,
        data_bytes: version.block_len(block.index),
        data_checksum: Checksum::of(pieces),
        sequence,
        version: version.clone(),
    }
}
