//! Files being written: each has a reservation and a temporary name until it is published.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use super::publish::Publisher;
use crate::files::disk::TempFile;
use crate::files::footer::Footer;
use crate::files::mapping::Mapping;
use crate::ground::BlockEvent;

/// Why a staged file always has its parts.
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

    /// Maps the first `data_bytes` of the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be mapped.
    pub(crate) fn map(&self, data_bytes: u64) -> Result<Mapping, Refusal> {
        let (file, _) = self.staged.as_ref().expect(STAGED);
        let mapped = Mapping::new(&file.file, data_bytes as usize);
        mapped.map_err(|error| self.publisher.ground.health.write_failed("map a block", &error))
    }

    /// Renames the file to the name of the block that `footer` describes, and admits the block. `mapping`
    /// must map its data. Returns the bytes of the stored block. If another task stored it first, that file
    /// stays, because readers may hold it, and this one is removed.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be renamed.
    pub(crate) fn publish(mut self, footer: &Footer, mapping: Mapping) -> Result<Bytes, Refusal> {
        let publisher = Arc::clone(&self.publisher);
        let ground = &publisher.ground;
        let stored = footer.stored();
        let name = ground.disk.lock_name(stored.id);
        if ground.ledger.contains(stored.id) {
            drop(name);
            drop(self);
            return publisher.loader.load(stored.id).ok_or(Refusal::NoRoom);
        }
        let (file, room) = self.staged.take().expect(STAGED);
        if let Err(error) = ground.disk.publish(&file, stored.id) {
            drop(name);
            let refusal = publisher.rename_failed(stored.id, &error);
            publisher.removal.abandon(file.number, room);
            return Err(refusal);
        }
        let (bytes, unmapped) = ground.ledger.admit(room, &stored, mapping);
        drop(name);
        // Unmapping is slow, so it happens outside the locks.
        drop(unmapped);
        ground.counters.stored_blocks.add(1);
        ground.notify(stored.id, footer.data_bytes, BlockEvent::Stored);
        Ok(bytes)
    }
}

impl Publisher {
    fn rename_failed(&self, block: BlockId, error: &io::Error) -> Refusal {
        if error.kind() != io::ErrorKind::IsADirectory {
            return self.ground.health.write_failed("name a block", error);
        }
        tracing::warn!(
            path = %self.ground.disk.block_path(block).display(),
            hint = "move it out of the store",
            "a folder has the path of a block; the block is not stored",
        );
        Refusal::Obstructed
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some((file, room)) = self.staged.take() {
            self.publisher.removal.abandon(file.number, room);
        }
    }
}
