//! Records of dirty versions, which must not be lost while the lake does not have them. Their blocks do not
//! leave to make room.
//!
//! To the store, a record is bytes, with a checksum behind them, in a file named after the version. It is
//! written aside and renamed like a block, and takes room like one. A block's footer cannot say that the
//! block is dirty: the footer describes the block, and a block becomes clean without a new file.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use shoal_policy::VersionId;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;
use tokio::sync::Notify;

use super::disk::{self, Disk};
use super::footer::Checksum;
use super::{Store, on_pool};

/// Bytes of the checksum at the end of a record.
const CHECKSUM_BYTES: usize = 8;

/// The room that records take, and the signal for when dirty blocks keep others from being written.
#[derive(Debug, Default)]
pub(super) struct Records {
    rooms: parking_lot::Mutex<HashMap<VersionId, Reservation>>,
    pressed: Notify,
}

/// Keeps the blocks of a version from leaving to make room until it is dropped.
#[derive(Debug)]
pub struct Protection {
    store: Arc<Store>,
    version: VersionId,
}

impl Drop for Protection {
    fn drop(&mut self) {
        self.store.ledger.lock().release(self.version);
    }
}

impl Store {
    /// Keeps blocks of `version`, present and future ones, from leaving to make room.
    pub fn protect(self: &Arc<Self>, version: VersionId) -> Protection {
        self.ledger.lock().protect(version);
        Protection {
            store: Arc::clone(self),
            version,
        }
    }

    /// Writes the facts about a dirty version that must survive a restart, in place of its earlier record.
    /// The version's blocks do not leave to make room until the record is dropped.
    pub async fn keep_record(self: &Arc<Self>, version: VersionId, record: Vec<u8>) -> Result<(), Refusal> {
        if self.takes_no_blocks() {
            return Err(Refusal::Paused);
        }
        let store = Arc::clone(self);
        let kept = on_pool(move || store.keep_record_now(version, record)).await;
        kept.unwrap_or(Err(Refusal::Exhausted))
    }

    /// Drops the record of a version that is no longer dirty: its blocks become like all others. Fails if the
    /// disk does; then the record may be found again.
    pub async fn drop_record(self: &Arc<Self>, version: VersionId) -> io::Result<()> {
        let store = Arc::clone(self);
        on_pool(move || store.drop_record_now(version))
            .await
            .unwrap_or(Ok(()))
    }

    /// Returns every record on the disk whose checksum is right. Torn records are logged and removed: their
    /// blocks have no name any more. Records that cannot be read are logged and kept.
    pub async fn records(self: &Arc<Self>) -> Vec<(VersionId, Vec<u8>)> {
        let store = Arc::clone(self);
        on_pool(move || store.records_now()).await.unwrap_or_default()
    }

    /// Waits until room is short and dirty blocks are the obstacle.
    pub async fn pressed(&self) {
        self.records.pressed.notified().await;
    }

    /// Signals that room is short. If dirty blocks are here, the task that makes them clean should act.
    pub(super) fn press(&self) {
        if self.ledger.lock().has_protected() {
            self.records.pressed.notify_one();
        }
    }

    fn keep_record_now(&self, version: VersionId, mut record: Vec<u8>) -> Result<(), Refusal> {
        let checksum = Checksum::of(&[Bytes::copy_from_slice(&record)]);
        record.extend_from_slice(&checksum.to_le_bytes());
        let number = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut room = self.reserve(self.disk.charge_bytes(record.len() as u64))?;
        let written = self
            .write_temp(number, &[record.into()], &[], &mut room)
            .and_then(|aside| {
                let named = self.disk.publish_record(&aside, version);
                named.map_err(|error| self.write_failed("rename", &error))
            });
        if let Err(refusal) = written {
            self.abandon(number, room);
            return Err(refusal);
        }
        let before = self.records.rooms.lock().insert(version, room);
        let mut ledger = self.ledger.lock();
        match before {
            Some(before) => ledger.residency.cancel(before),
            None => ledger.protect(version),
        }
        Ok(())
    }

    fn drop_record_now(&self, version: VersionId) -> io::Result<()> {
        self.disk.remove_record(version)?;
        if let Some(room) = self.records.rooms.lock().remove(&version) {
            let mut ledger = self.ledger.lock();
            ledger.residency.cancel(room);
            ledger.release(version);
        }
        Ok(())
    }

    fn records_now(&self) -> Vec<(VersionId, Vec<u8>)> {
        let versions: Vec<VersionId> = self.records.rooms.lock().keys().copied().collect();
        let mut records = Vec::with_capacity(versions.len());
        for version in versions {
            match read(&self.disk, version) {
                Ok(record) => records.push((version, record)),
                Err(error) if !is_torn(&error) => {
                    tracing::error!(%version, %error, "the record of a dirty object cannot be read; its blocks stay until a restart can");
                }
                Err(error) => {
                    tracing::error!(%version, %error, "the record of a dirty object is torn: the object is lost");
                    if let Err(error) = self.drop_record_now(version) {
                        tracing::warn!(%version, %error, "an unreadable record cannot be removed");
                    }
                }
            }
        }
        records
    }

    /// Reserves room for the records that are on the disk, and keeps their blocks from leaving.
    pub(super) fn recover_records(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.disk.records())? {
            let entry = entry?;
            let Some(version) = disk::parse_version(&entry.file_name()) else {
                continue;
            };
            let charge_bytes = self.disk.charge_bytes(entry.metadata()?.len());
            let mut rooms = self.records.rooms.lock();
            let mut ledger = self.ledger.lock();
            match ledger.residency.reserve(charge_bytes) {
                Ok(room) => {
                    ledger.protect(version);
                    rooms.insert(version, room);
                }
                Err(refusal) => {
                    tracing::error!(%version, ?refusal, "the disk has no room any more for the record of a dirty object");
                }
            }
        }
        Ok(())
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
