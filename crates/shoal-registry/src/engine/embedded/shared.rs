//! The state shared by readers and the writer.

use std::cmp::Ordering;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redb::{ReadTransaction, ReadableDatabase};
use shoal_base::clock;

use super::database::{self, Database};
use super::recent::Recent;
use super::sessions::Sessions;
use super::snapshots::{Snapshot, Snapshots};
use crate::engine::{EngineError, Revision};

/// The state shared by readers and the writer.
pub(super) struct Shared {
    /// `None` while the file is unusable.
    pub(super) database: RwLock<Option<Arc<Database>>>,
    pub(super) recent: Mutex<Recent>,
    pub(super) sessions: Mutex<Sessions>,
    pub(super) snapshots: Mutex<Snapshots>,
}

impl Shared {
    /// The newest state.
    pub(super) fn newest(&self) -> Result<Snapshot, EngineError> {
        let database = self.database.read().clone().ok_or_else(out_of_use)?;
        let transaction = database
            .begin_read()
            .map_err(|error| EngineError::Unavailable(error.to_string()))?;
        Snapshot::new(database, transaction).map_err(unreadable)
    }

    /// The state at a revision.
    pub(super) fn at(&self, revision: Revision) -> Result<Arc<Snapshot>, EngineError> {
        if let Some(kept) = self.snapshots.lock().find(revision, clock::instant()) {
            return Ok(kept);
        }
        let newest = self.newest()?;
        match revision.cmp(&newest.revision) {
            Ordering::Less => Err(EngineError::Compacted),
            Ordering::Equal => Ok(Arc::new(newest)),
            Ordering::Greater => Err(EngineError::Refused(format!(
                "there is no revision {} yet",
                revision.0
            ))),
        }
    }
}

impl Snapshot {
    fn new(database: Arc<Database>, transaction: ReadTransaction) -> Result<Self, redb::Error> {
        let revision = database::revision(&transaction)?;
        Ok(Self {
            revision,
            transaction,
            database,
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
pub(super) fn unreadable(error: redb::Error) -> EngineError {
    EngineError::Unavailable(format!("its file cannot be read: {error}"))
}

pub(super) fn out_of_use() -> EngineError {
    EngineError::Unavailable("its file cannot be used; the log says why".into())
}
