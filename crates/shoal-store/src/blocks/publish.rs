//! Stores a block: checks it, reserves room, writes it to a file of its own or to a segment, maps and admits
//! it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;
use shoal_policy::quotas::QuotaIds;
use shoal_policy::residency::Reservation;
use shoal_s3::object::Version;
use tokio::sync::oneshot;

use super::loader::Loader;
use super::writers::{Urgency, Writers};
use crate::appender::Appender;
use crate::eviction::evictor::Evictor;
use crate::eviction::removal::Removal;
use crate::files::disk::TempFile;
use crate::files::footer::{Checksum, Footer};
use crate::files::location::Location;
use crate::files::mapping::Mapping;
use crate::files::segment_file::NewEntry;
use crate::ground::{BlockEvent, Ground};
use crate::ledger::quota_room::RoomInQuotas;
use crate::ledger::segments::charge_bytes;

/// How a block is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storing {
    /// How soon it has to be written.
    pub urgency: Urgency,
    /// The quotas that it counts in; those that the store does not have are ignored.
    pub quotas: QuotaIds,
}

impl From<Urgency> for Storing {
    /// The block counts in no quota.
    fn from(urgency: Urgency) -> Self {
        let quotas = QuotaIds::default();
        Self { urgency, quotas }
    }
}

/// Stores blocks.
pub struct Publisher {
    pub(crate) ground: Arc<Ground>,
    pub(crate) appender: Arc<Appender>,
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
    /// returns the stored one, which counts in the quotas of whoever stored it first. `put` returns when the
    /// block is on disk.
    ///
    /// # Errors
    ///
    /// Fails with the [`Refusal`] that explains why the block was not cached.
    pub async fn put(
        self: &Arc<Self>,
        block: BlockId,
        version: Arc<Version>,
        pieces: Vec<Bytes>,
        storing: impl Into<Storing>,
    ) -> Result<Bytes, Refusal> {
        let (done, outcome) = oneshot::channel();
        self.put_then(block, version, pieces, storing, move |stored| {
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
        storing: impl Into<Storing>,
        then: impl FnOnce(Result<Bytes, Refusal>) + Send + 'static,
    ) {
        let Storing { urgency, quotas } = storing.into();
        let data_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        if let Err(refusal) = self.check(block, &version, data_bytes) {
            self.ground.refused(block, refusal);
            return then(Err(refusal));
        }
        let publisher = Arc::clone(self);
        let submitted = self.writers.submit(urgency, data_bytes, move || {
            let stored = publisher.put_now(block, &version, &pieces, quotas);
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
        quotas: QuotaIds,
    ) -> Result<Bytes, Refusal> {
        if let Some(bytes) = self.loader.load(block, true) {
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
            quotas,
        };
        let encoded = footer.encode().ok_or(Refusal::TooLarge)?;
        if self.appender.takes(footer.data_bytes, encoded.len() as u64) {
            let entry = NewEntry {
                stored: &footer.stored(),
                footer: &encoded,
                data: pieces,
            };
            let charge_bytes = charge_bytes(entry.entry_bytes());
            let in_quotas = self.evictor.reserve_in_quotas(quotas, charge_bytes)?;
            return self.append(&entry, in_quotas);
        }
        let file_bytes = footer.data_bytes + encoded.len() as u64;
        let charge_bytes = self.ground.disk.charge_bytes(file_bytes);
        let in_quotas = self.evictor.reserve_in_quotas(quotas, charge_bytes)?;
        let staged = StagedFile::write(self, sequence, pieces, &encoded, file_bytes)?;
        let mapping = staged.map(footer.data_bytes)?;
        staged.publish(&footer, mapping, in_quotas)
    }

    /// Stores a block in a segment. Returns its bytes.
    fn append(&self, entry: &NewEntry<'_>, in_quotas: RoomInQuotas<'_>) -> Result<Bytes, Refusal> {
        let room = self.evictor.reserve(charge_bytes(entry.entry_bytes()))?;
        let mut room = Some((room, in_quotas));
        let stored = self.append_in(&mut room, entry);
        if let Some((unused, _)) = room {
            self.ground.ledger.cancel(unused);
        }
        stored
    }

    /// As [`Publisher::append`]. Takes the room if the block is admitted.
    fn append_in(
        &self,
        room: &mut Option<(Reservation, RoomInQuotas<'_>)>,
        entry: &NewEntry<'_>,
    ) -> Result<Bytes, Refusal> {
        let (ground, block) = (&self.ground, entry.stored.id);
        loop {
            if let Some(bytes) = self.appender.shortage_bytes(entry.entry_bytes()) {
                self.appender
                    .begin(entry.entry_bytes(), self.evictor.reserve(bytes)?)?;
            }
            let name = ground.disk.lock_name(block);
            if ground.ledger.contains(block) {
                drop(name);
                return self.loader.load(block, true).ok_or(Refusal::NoRoom);
            }
            let appended = self.appender.append(entry, |written| {
                let mapping = written.map(entry.data_bytes());
                let mapping = mapping.map_err(|error| (written.clone(), error))?;
                let (room, in_quotas) = room.take().expect("a block is admitted once");
                let location = Location::Entry(written.clone());
                Ok(ground
                    .ledger
                    .admit(room, in_quotas, entry.stored, &location, mapping))
            });
            drop(name);
            match appended {
                Ok(Some(Ok((bytes, unmapped)))) => {
                    // Unmapping is slow, so it happens outside the locks.
                    drop(unmapped);
                    self.was_stored(block, entry.data_bytes());
                    return Ok(bytes);
                }
                Ok(Some(Err((unmapped, error)))) => {
                    self.removal.abandon_entry(unmapped);
                    return Err(ground.health.write_failed("map a block", &error));
                }
                // Other blocks have filled the segment.
                Ok(None) => {}
                Err(error) => return Err(ground.health.write_failed("write a block", &error)),
            }
        }
    }

    /// Counts and reports a block that was admitted.
    fn was_stored(&self, block: BlockId, data_bytes: u64) {
        self.ground.counters.stored_blocks.add(1);
        self.ground.notify(block, data_bytes, BlockEvent::Stored);
    }
}

const STAGED: &str = "a staged file is taken once, at its end";

/// A file under its temporary name, with its room. Dropping it removes it from the disk.
pub(crate) struct StagedFile {
    pub(super) publisher: Arc<Publisher>,
    /// `None` once the file is published.
    staged: Option<(TempFile, Reservation)>,
}

impl StagedFile {
    /// Reserves room for `file_bytes`, and writes `pieces` and `footer` to a temporary file, to which more
    /// may be appended.
    ///
    /// # Errors
    ///
    /// Fails if there is no room or the disk fails; the file is then removed.
    pub(crate) fn write(
        publisher: &Arc<Publisher>,
        number: u64,
        pieces: &[Bytes],
        footer: &[u8],
        file_bytes: u64,
    ) -> Result<Self, Refusal> {
        let ground = &publisher.ground;
        let mut room = publisher.evictor.reserve(ground.disk.charge_bytes(file_bytes))?;
        let written = ground
            .disk
            .write_temp(number, pieces, footer)
            .map_err(|error| ground.health.write_failed("write a block", &error))
            .and_then(|file| {
                // Some file systems allocate more than the estimate.
                ground.ledger.extend_to(&mut room, file.allocated_bytes)?;
                Ok(file)
            });
        match written {
            Ok(file) => Ok(Self {
                publisher: Arc::clone(publisher),
                staged: Some((file, room)),
            }),
            Err(refusal) => {
                publisher.removal.abandon(number, room);
                Err(refusal)
            }
        }
    }

    /// Appends `footer` after `data_bytes` of data, and extends the reservation if necessary.
    ///
    /// # Errors
    ///
    /// Fails if there is no room or the disk fails.
    pub(crate) fn append(&mut self, data_bytes: u64, footer: &[u8]) -> Result<(), Refusal> {
        let ground = &self.publisher.ground;
        let (file, room) = self.staged.as_mut().expect(STAGED);
        let charge_bytes = ground.disk.charge_bytes(data_bytes + footer.len() as u64);
        ground.ledger.extend_to(room, charge_bytes)?;
        let appended = ground.disk.append(file, footer);
        appended.map_err(|error| ground.health.write_failed("write", &error))
    }

    /// Returns the room that the file takes, in bytes.
    pub(crate) fn room_bytes(&self) -> u64 {
        let (_, room) = self.staged.as_ref().expect(STAGED);
        room.bytes()
    }

    /// Maps the first `data_bytes` of the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be mapped.
    pub(crate) fn map(&self, data_bytes: u64) -> Result<Mapping, Refusal> {
        let (file, _) = self.staged.as_ref().expect(STAGED);
        let mapped = Mapping::of_file(&file.file, data_bytes as usize);
        mapped.map_err(|error| self.publisher.ground.health.write_failed("map a block", &error))
    }

    /// Renames the file to the name of the block that `footer` describes, and admits the block. `mapping`
    /// must map its data. Returns the bytes of the stored block. If another task stored it first, that file
    /// stays, because readers may hold it, and this one is removed.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be renamed.
    pub(crate) fn publish(
        mut self,
        footer: &Footer,
        mapping: Mapping,
        in_quotas: RoomInQuotas<'_>,
    ) -> Result<Bytes, Refusal> {
        let publisher = Arc::clone(&self.publisher);
        let ground = &publisher.ground;
        let stored = footer.stored();
        let name = ground.disk.lock_name(stored.id);
        if ground.ledger.contains(stored.id) {
            drop(name);
            drop(self);
            return publisher.loader.load(stored.id, true).ok_or(Refusal::NoRoom);
        }
        let (file, room) = self.staged.take().expect(STAGED);
        if let Err(error) = ground.disk.publish(&file, stored.id) {
            drop(name);
            let refusal = if error.kind() == io::ErrorKind::IsADirectory {
                tracing::warn!(
                    path = %ground.disk.block_path(stored.id).display(),
                    hint = "move it out of the store",
                    "a folder has the path of a block; the block is not stored",
                );
                Refusal::Obstructed
            } else {
                ground.health.write_failed("name a block", &error)
            };
            publisher.removal.abandon(file.number, room);
            return Err(refusal);
        }
        let (bytes, unmapped) = ground
            .ledger
            .admit(room, in_quotas, &stored, &Location::File, mapping);
        drop(name);
        // Unmapping is slow, so it happens outside the locks.
        drop(unmapped);
        publisher.was_stored(stored.id, footer.data_bytes);
        Ok(bytes)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some((file, room)) = self.staged.take() {
            self.publisher.removal.abandon(file.number, room);
        }
    }
}
