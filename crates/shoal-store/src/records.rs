//! Records of dirty versions, which must not be lost while the lake does not have them. Their blocks do not
//! leave to make room.
//!
//! To the store, a record is bytes, with a checksum behind them, in a file named after the version. It is
//! written and renamed like a block, and takes room like one. A block's footer cannot say that the block is
//! dirty: the footer describes the block, and a block becomes clean without a new file.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_policy::VersionId;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use super::blocking::run_blocking;
use super::disk::{self, Disk};
use super::footer::Checksum;
use super::ledger::Ledger;
use super::staging::Staging;

/// Bytes of the checksum at the end of a record.
const CHECKSUM_BYTES: usize = 8;

/// The records, and the room that each takes.
pub(super) struct Records {
    disk: Arc<Disk>,
    ledger: Arc<Ledger>,
    staging: Arc<Staging>,
    rooms: Mutex<HashMap<VersionId, Reservation>>,
}

impl Records {
    pub(super) fn new(disk: &Arc<Disk>, ledger: &Arc<Ledger>, staging: &Arc<Staging>) -> Self {
        Self {
            disk: Arc::clone(disk),
            ledger: Arc::clone(ledger),
            staging: Arc::clone(staging),
            rooms: Mutex::default(),
        }
    }

    /// Writes the record of a version, in place of its earlier one.
    pub(super) async fn keep(self: &Arc<Self>, version: VersionId, record: Vec<u8>) -> Result<(), Refusal> {
        self.staging.accepts()?;
        let records = Arc::clone(self);
        let kept = run_blocking(move || records.keep_now(version, record)).await;
        kept.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Drops the record of a version, whose blocks become like all others.
    pub(super) async fn discard(self: &Arc<Self>, version: VersionId) -> io::Result<()> {
        let records = Arc::clone(self);
        run_blocking(move || records.discard_now(version))
            .await
            .unwrap_or(Ok(()))
    }

    /// Returns every record whose checksum is right.
    pub(super) async fn all(self: &Arc<Self>) -> Vec<(VersionId, Vec<u8>)> {
        let records = Arc::clone(self);
        run_blocking(move || records.all_now()).await.unwrap_or_default()
    }

    /// Reserves room for the records that are on the disk, and keeps their blocks from leaving.
    ///
    /// # Errors
    ///
    /// Fails if the folder of records cannot be listed.
    pub(super) fn restore(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.disk.records_folder())? {
            let entry = entry?;
            let Some(version) = disk::parse_version(&entry.file_name()) else {
                continue;
            };
            let charge_bytes = self.disk.charge_bytes(entry.metadata()?.len());
            match self.ledger.reserve_free(charge_bytes) {
                Ok(room) => {
                    self.ledger.protect(version);
                    self.rooms.lock().insert(version, room);
                }
                Err(refusal) => {
                    tracing::error!(%version, ?refusal, "the disk no longer has room for the record of a dirty object");
                }
            }
        }
        Ok(())
    }

    fn keep_now(&self, version: VersionId, mut record: Vec<u8>) -> Result<(), Refusal> {
        let checksum = Checksum::of(&[Bytes::copy_from_slice(&record)]);
        record.extend_from_slice(&checksum.to_le_bytes());
        let number = self.staging.next_sequence();
        let record_bytes = record.len() as u64;
        let staged = self.staging.write(number, &[record.into()], &[], record_bytes)?;
        let room = staged.publish_record(version)?;
        let before = self.rooms.lock().insert(version, room);
        match before {
            Some(before) => self.ledger.cancel(before),
            None => self.ledger.protect(version),
        }
        Ok(())
    }

    fn discard_now(&self, version: VersionId) -> io::Result<()> {
        self.disk.remove_record(version)?;
        let room = self.rooms.lock().remove(&version);
        if let Some(room) = room {
            self.ledger.cancel(room);
            self.ledger.unprotect(version);
        }
        Ok(())
    }

    fn all_now(&self) -> Vec<(VersionId, Vec<u8>)> {
        let versions: Vec<VersionId> = self.rooms.lock().keys().copied().collect();
        let mut records = Vec::with_capacity(versions.len());
        for version in versions {
            match read(&self.disk, version) {
                Ok(record) => records.push((version, record)),
                Err(error) if !is_torn(&error) => {
                    tracing::error!(%version, %error, "the record of a dirty object cannot be read; its blocks stay until a restart reads it");
                }
                Err(error) => {
                    tracing::error!(%version, %error, "the record of a dirty object is torn: the object is lost");
                    if let Err(error) = self.discard_now(version) {
                        tracing::warn!(%version, %error, "an unreadable record cannot be removed");
                    }
                }
            }
        }
        records
    }
}

fn is_torn(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
    )
}

fn read(disk: &Disk, version: VersionId) -> io::Result<Vec<u8>> {
    let mut record = disk.read_record(version)?;
    let body = record.len().checked_sub(CHECKSUM_BYTES);
    let body = body.ok_or(io::ErrorKind::UnexpectedEof)?;
    let checksum = record.split_off(body);
    if Checksum::of(&[Bytes::copy_from_slice(&record)]).to_le_bytes()[..] == checksum {
        Ok(record)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its checksum is wrong",
        ))
    }
}
