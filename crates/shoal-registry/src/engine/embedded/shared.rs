//! The state shared by readers and the writer.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redb::{ReadTransaction, ReadableDatabase};

use super::database::{self, Database};
use super::recent::Recent;
use super::sessions::Sessions;
use crate::engine::{EngineError, Revision};

/// The state shared by readers and the writer.
pub(super) struct Shared {
    /// `None` while the file is unusable.
    pub(super) database: RwLock<Option<Arc<Database>>>,
    pub(super) recent: Mutex<Recent>,
    pub(super) sessions: Mutex<Sessions>,
}

/// The newest state when a read began.
pub(super) struct Newest {
    pub(super) revision: Revision,
    pub(super) transaction: ReadTransaction,
    /// Keeps the file open while it is read.
    #[expect(dead_code, reason = "held, not used")]
    database: Arc<Database>,
}

impl Shared {
    /// The newest state.
    pub(super) fn newest(&self) -> Result<Newest, EngineError> {
        let database = self.database.read().clone().ok_or_else(out_of_use)?;
        let begun = database.begin_read().map_err(redb::Error::from);
        let newest = begun.and_then(|transaction| {
            Ok(Newest {
                revision: database::revision(&transaction)?,
                transaction,
                database,
            })
        });
        newest.map_err(|error| unreadable(&error))
    }
}

pub(super) fn unreadable(error: &redb::Error) -> EngineError {
    EngineError::Unavailable(format!("its file cannot be read: {error}"))
}

pub(super) fn out_of_use() -> EngineError {
    EngineError::Unavailable("its file cannot be used; the log says why".into())
}
