//! Files being written: each has a reservation and a temporary name until it is published.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use crate::eviction::evictor::Evictor;
use crate::eviction::removal::Removal;
use crate::files::disk::TempFile;
use crate::files::footer::Footer;
use crate::files::mapping::Mapping;
use crate::ground::Ground;

/// Why a staged file always has its parts.
const STAGED: &str = "a staged file is taken once, at its end";

/// Writes files under temporary names.
pub(crate) struct Staging {
    ground: Arc<Ground>,
    evictor: Arc<Evictor>,
    removal: Arc<Removal>,
    /// Sequence number of the next file written.
    sequence: AtomicU64,
}

/// A file under its temporary name, with its room. Dropping it removes it from the disk.
pub(crate) struct StagedFile {
    staging: Arc<Staging>,
    /// `None` once the file is published.
    staged: Option<(TempFile, Reservation)>,
}

/// The outcome of publishing a file as a block.
pub(crate) enum Published {
    /// The file was published. The bytes are mapped.
    Stored(Bytes),
    /// Another task stored the block first. Its file stays, because readers may hold it, and this one is
    /// removed.
    AlreadyHere,
}

impl Staging {
    pub(crate) fn new(ground: &Arc<Ground>, evictor: &Arc<Evictor>, removal: &Arc<Removal>) -> Self {
        Self {
            ground: Arc::clone(ground),
            evictor: Arc::clone(evictor),
            removal: Arc::clone(removal),
            sequence: AtomicU64::new(0),
        }
    }

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

    /// Reserves room for `file_bytes`, and writes `pieces` and `footer` to a temporary file, to which more
    /// may be appended.
    ///
    /// # Errors
    ///
    /// Fails if there is no room or the disk fails; the file is then removed.
    pub(crate) fn write(
        self: &Arc<Self>,
        number: u64,
        pieces: &[Bytes],
        footer: &[u8],
        file_bytes: u64,
    ) -> Result<StagedFile, Refusal> {
        let mut room = self.evictor.reserve(self.ground.disk.charge_bytes(file_bytes))?;
        let written = self
            .ground
            .disk
            .write_temp(number, pieces, footer)
            .map_err(|error| self.ground.health.write_failed("write a block", &error))
            .and_then(|file| {
                // Some file systems allocate more than the estimate.
                self.ground.ledger.extend_to(&mut room, file.allocated_bytes)?;
                Ok(file)
            });
        match written {
            Ok(file) => Ok(self.stage(file, room)),
            Err(refusal) => {
                self.removal.abandon(number, room);
                Err(refusal)
            }
        }
    }

    fn stage(self: &Arc<Self>, file: TempFile, room: Reservation) -> StagedFile {
        StagedFile {
            staging: Arc::clone(self),
            staged: Some((file, room)),
        }
    }

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

impl StagedFile {
    /// Appends `footer` after `data_bytes` of data, and extends the reservation if necessary.
    ///
    /// # Errors
    ///
    /// Fails if there is no room or the disk fails.
    pub(crate) fn append(&mut self, data_bytes: u64, footer: &[u8]) -> Result<(), Refusal> {
        let staging = &self.staging;
        let (file, room) = self.staged.as_mut().expect(STAGED);
        let charge_bytes = staging.ground.disk.charge_bytes(data_bytes + footer.len() as u64);
        staging.ground.ledger.extend_to(room, charge_bytes)?;
        staging
            .ground
            .disk
            .append(file, footer)
            .map_err(|error| staging.ground.health.write_failed("write", &error))
    }

    /// Maps the first `data_bytes` of the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be mapped.
    pub(crate) fn map(&self, data_bytes: u64) -> Result<Mapping, Refusal> {
        let (file, _) = self.staged.as_ref().expect(STAGED);
        Mapping::new(&file.file, data_bytes as usize)
            .map_err(|error| self.staging.ground.health.write_failed("map a block", &error))
    }

    /// Renames the file to the name of the block that `footer` describes, and admits the block. `mapping`
    /// must map its data.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be renamed.
    pub(crate) fn publish(mut self, footer: &Footer, mapping: Mapping) -> Result<Published, Refusal> {
        let staging = Arc::clone(&self.staging);
        let block = footer.block();
        let name = staging.ground.disk.lock_name(block);
        if staging.ground.ledger.contains(block) {
            drop(name);
            return Ok(Published::AlreadyHere);
        }
        let (file, room) = self.staged.take().expect(STAGED);
        if let Err(error) = staging.ground.disk.publish(&file, block) {
            drop(name);
            let refusal = staging.rename_failed(block, &error);
            staging.removal.abandon(file.number, room);
            return Err(refusal);
        }
        let (object, extent) = (footer.version.object, footer.version.extent());
        let (bytes, unmapped) =
            staging
                .ground
                .ledger
                .admit(room, object, (block, extent), footer.sequence, mapping);
        drop(name);
        // Unmapping is slow, so it happens outside the locks.
        drop(unmapped);
        staging.ground.counters.stored_blocks.add(1);
        Ok(Published::Stored(bytes))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some((file, room)) = self.staged.take() {
            self.staging.removal.abandon(file.number, room);
        }
    }
}
