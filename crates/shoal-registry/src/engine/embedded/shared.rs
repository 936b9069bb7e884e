//! The state shared by readers and the writer.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redb::{ReadTransaction, ReadableDatabase};

use super::database::Database;
use super::recent::Recent;
use super::sessions::Sessions;
use crate::engine::EngineError;

/// The state shared by readers and the writer.
pub(super) struct Shared {
    /// `None` while the file is unusable.
    pub(super) database: RwLock<Option<Arc<Database>>>,
    pub(super) recent: Mutex<Recent>,
    pub(super) sessions: Mutex<Sessions>,
}

impl Shared {
    /// Runs `read` on the newest state. The file stays open meanwhile.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, EngineError> {
        let database = self.database.read().clone().ok_or_else(out_of_use)?;
        let begun = database.begin_read().map_err(redb::Error::from);
        let read = begun.and_then(|transaction| read(&transaction));
        read.map_err(|error| EngineError::Unavailable(format!("its file cannot be read: {error}")))
    }
}

pub(super) fn out_of_use() -> EngineError {
    EngineError::Unavailable("its file cannot be used; the log says why".into())
}
