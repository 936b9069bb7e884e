//! An engine in one folder, for one process.
//!
//! # Durability
//!
//! The engine acknowledges a transaction when its bytes are on the disk: written, and `fsync` has returned. A
//! crash of the process or a loss of power loses nothing acknowledged, if the disk keeps what it has
//! confirmed. If that disk is lost, everything in the registry is lost; etcd survives the loss of a disk.
//!
//! After a failed `fsync` the content of the disk is unknown. The engine then refuses all requests until the
//! process is restarted.
//!
//! # A full disk
//!
//! The engine rejects a `Put` that would leave less than 16 MiB on the disk, so that deletes succeed on a
//! full disk. Under a quota, which the engine cannot see, deletes may fail too. The file does not shrink; its
//! free pages are reused.
//!
//! # Files
//!
//! - `registry.redb`: keys and values, a database of `redb`. Each page carries a checksum, and the whole file
//!   is checked when it is opened.
//! - `registry.newest`: the newest revision that was acknowledged. `redb` repairs a file by returning to
//!   the previous state; this file distinguishes a transaction interrupted by a crash from one that the disk
//!   lost.
//! - `registry.lock`: locked by the process that uses the folder; holds its id.
//!
//! A folder with damaged or incomplete files is rejected and not changed.

mod database;
mod folder;
mod recent;
mod sessions;
mod shared;
mod witness;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use redb::ReadTransaction;
use shoal_base::clock;

pub use folder::OpenError;

use folder::Folder;
use sessions::Sessions;
use shared::Shared;
use writer::Writer;

use super::looks::Looks;
use super::{Engine, EngineError, Outcome, Page, Range, Room, SessionId, Stored, Transaction};

/// Maximum size of the values in one page.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Maximum number of threads that read keys concurrently.
const LOOKS: usize = 2;

/// A registry in a local folder.
pub struct Embedded {
    shared: Arc<Shared>,
    looks: Looks,
    /// Dropped last: it waits for the transactions under way, and unlocks the folder.
    writer: Writer,
}

impl Embedded {
    /// Opens the registry in `folder`, creating it if needed. Blocks while it reads the whole file.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        Self::open_in(Folder::lock(folder)?)
    }

    fn open_in(folder: Folder) -> Result<Self, OpenError> {
        let (database, witness, revision) = folder.open()?;
        let shared = Arc::new(Shared {
            database: RwLock::new(Some(Arc::new(database))),
            recent: Mutex::default(),
            sessions: Mutex::new(Sessions::new(shoal_base::chance::bits())),
        });
        let writer = Writer::start(folder, witness, revision, Arc::clone(&shared));
        Ok(Self {
            shared,
            looks: Looks::new(LOOKS),
            writer,
        })
    }

    /// Reads keys from the newest state.
    async fn read_keys(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Stored>>, EngineError> {
        let shared = Arc::clone(&self.shared);
        self.read(move |newest| {
            let revision = database::revision(newest)?;
            let found = keys.iter().map(|key| database::get(newest, key));
            let found: Vec<_> = found.collect::<Result<_, _>>()?;
            let mut recent = shared.recent.lock();
            for (key, found) in keys.into_iter().zip(&found) {
                recent.keep(revision, key, found.clone());
            }
            Ok(found)
        })
        .await
    }

    /// Runs `read` on the newest state, on a thread that may block.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, EngineError> {
        let shared = Arc::clone(&self.shared);
        let reading = tokio::task::spawn_blocking(move || shared.read(read)).await;
        reading.map_err(|stopped| EngineError::Unavailable(stopped.to_string()))?
    }
}

#[async_trait]
impl Engine for Embedded {
    async fn get_together(&self, keys: &[Bytes]) -> Result<Vec<Option<Stored>>, EngineError> {
        let known: Result<Vec<_>, _> = {
            // All cached values are those of one state while the cache is locked.
            let mut recent = self.shared.recent.lock();
            keys.iter().map(|key| recent.find(key)).collect()
        };
        if let Ok(found) = known {
            return Ok(found);
        }
        self.looks.look(keys.to_vec(), |keys| self.read_keys(keys)).await
    }

    async fn range(&self, range: Range) -> Result<Page, EngineError> {
        self.read(move |newest| database::range(newest, &range, PAGE_BYTES_MAX))
            .await
    }

    async fn count(&self, prefix: &[u8]) -> Result<u64, EngineError> {
        let prefix = Bytes::copy_from_slice(prefix);
        self.read(move |newest| database::count(newest, &prefix)).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, EngineError> {
        transaction.check()?;
        self.writer.commit(transaction).await
    }

    /// The file may grow until only the reserve of the disk is left.
    async fn room(&self) -> Result<Room, EngineError> {
        let folder = self.writer.folder.clone();
        let looking = tokio::task::spawn_blocking(move || folder::room(&folder));
        let looked = looking.await.map_err(|stopped| stopped.to_string());
        let room = looked.and_then(|room| room.map_err(|error| error.to_string()));
        room.map_err(EngineError::Unavailable)
    }

    async fn open_session(&self, time_to_live: Duration) -> Result<SessionId, EngineError> {
        let session = self.shared.sessions.lock().open(time_to_live, clock::instant());
        // It may end before the session that the writer waits for.
        self.writer.look_again();
        Ok(session)
    }

    async fn renew_session(&self, session: SessionId) -> Result<(), EngineError> {
        self.shared.sessions.lock().renew(session, clock::instant())
    }

    async fn close_session(&self, session: SessionId) -> Result<(), EngineError> {
        self.shared.sessions.lock().close(session)?;
        // Every transaction removes the keys of sessions that have ended.
        self.writer.commit(Transaction::default()).await.map(drop)
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("folder", &self.writer.folder)
            .finish_non_exhaustive()
    }
}
