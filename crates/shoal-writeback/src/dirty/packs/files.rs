//! The tables of one map as files of this node, mapped into memory.
//!
//! Nothing is synced, as for blocks. The tail of a table is checked whenever the file is opened, and a block
//! whenever it is read, so a file that a power failure tore is noticed and brought from the lake again.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt as _};
use parking_lot::Mutex;
use shoal_net::endpoint::BoxError;
use shoal_pack::table::{Damaged, DamagedBlock, Listed, Names, Table};
use shoal_policy::admission::Refusal;
use shoal_store::{FileRoom, Store};
use tempfile::NamedTempFile;
use tokio::task::spawn_blocking;

/// The files of one map. Each file in the folder is a table that is open here, but for those that are being
/// received.
pub(crate) struct TableFiles {
    folder: PathBuf,
    store: Arc<Store>,
    open: Mutex<Vec<Arc<Table>>>,
}

/// A table was not received, and nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReceived {
    /// The bytes did not come to their end.
    #[error("it broke off: {0}")]
    BrokenOff(#[source] BoxError),
    /// It is not a table, or not as it was written.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// A block of it is not as it was written.
    #[error(transparent)]
    DamagedBlock(#[from] DamagedBlock),
    /// It has another length than was announced.
    #[error("it has another length than was announced")]
    OtherLength,
    /// The cache has no room for it.
    #[error("the cache of this node has no room for it ({0}); raise its capacity")]
    NoRoom(Refusal),
    /// This node's disk failed.
    #[error("the disk of this node failed: {0}")]
    Disk(#[from] io::Error),
}

/// A table that is being received.
struct NewTable {
    file: NamedTempFile,
    room: FileRoom,
    missing_bytes: u64,
}

impl TableFiles {
    /// Opens the tables that an earlier process left in this folder of the store. All other files there are
    /// removed. Blocks.
    ///
    /// # Errors
    ///
    /// The folder cannot be made, listed or cleared.
    pub(crate) fn open(store: &Arc<Store>, folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut open = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let table = open_kept(store, &entry.path(), entry.metadata()?.len());
            match table.filter(|table| entry.file_name() == *name_of(&table.listed())) {
                Some(table) => open.push(Arc::new(table)),
                None => fs::remove_file(entry.path())?,
            }
        }
        Ok(Self {
            folder,
            store: Arc::clone(store),
            open: Mutex::new(open),
        })
    }

    /// Returns the table that is listed so, if it is here.
    pub(crate) fn find(&self, listed: &Listed) -> Option<Arc<Table>> {
        let open = self.open.lock();
        open.iter().find(|table| table.listed() == *listed).cloned()
    }

    /// Receives a table of `size_bytes`, and checks all of it.
    ///
    /// # Errors
    ///
    /// The table is not here.
    pub(crate) async fn receive<E: Into<BoxError>>(
        &self,
        size_bytes: u64,
        bytes: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<Arc<Table>, NotReceived> {
        let (folder, room) = (self.folder.clone(), FileRoom::new(&self.store));
        let mut new = on_disk(move || NewTable::begin(&folder, room, size_bytes)).await?;
        let mut bytes = std::pin::pin!(bytes);
        while let Some(more) = bytes
            .try_next()
            .await
            .map_err(|error| NotReceived::BrokenOff(error.into()))?
        {
            new = on_disk(move || new.add(&more)).await?;
        }
        let folder = self.folder.clone();
        let table = Arc::new(on_disk(move || new.keep(&folder, size_bytes)).await?);
        let mut open = self.open.lock();
        // One that was received at the same time has the same bytes, and lost its name to this one.
        open.retain(|other| other.listed() != table.listed());
        open.push(Arc::clone(&table));
        Ok(table)
    }

    /// Removes all tables but these. Maps that have them keep them alive.
    pub(crate) fn retain(&self, listed: &[Listed]) {
        self.remove(|table| !listed.contains(&table.listed()));
    }

    /// Removes a table that turned out to be damaged, so that it is received again.
    pub(crate) fn forget(&self, number: u64) {
        self.remove(|table| table.place().number == number);
    }

    fn remove(&self, is_removed: impl Fn(&Table) -> bool) {
        self.open.lock().retain(|table| {
            if !is_removed(table) {
                return true;
            }
            let path = self.folder.join(name_of(&table.listed()));
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "a table of packs was not removed from the disk");
            }
            false
        });
    }
}

impl NewTable {
    fn begin(folder: &Path, mut room: FileRoom, size_bytes: u64) -> Result<Self, NotReceived> {
        room.hold(size_bytes).map_err(NotReceived::NoRoom)?;
        Ok(Self {
            file: NamedTempFile::new_in(folder)?,
            room,
            missing_bytes: size_bytes,
        })
    }

    fn add(mut self, bytes: &Bytes) -> Result<Self, NotReceived> {
        let missing_bytes = self.missing_bytes.checked_sub(bytes.len() as u64);
        self.missing_bytes = missing_bytes.ok_or(NotReceived::OtherLength)?;
        self.file.write_all(bytes)?;
        Ok(self)
    }

    /// Opens the table, reads all of its rows, and gives its file the final name.
    fn keep(self, folder: &Path, size_bytes: u64) -> Result<Table, NotReceived> {
        if self.missing_bytes > 0 {
            return Err(NotReceived::OtherLength);
        }
        let table = open_table(self.file.as_file(), size_bytes, self.room)?;
        table.rows(Names::default()).try_for_each(|row| row.map(drop))?;
        let kept = self.file.persist(folder.join(name_of(&table.listed())));
        kept.map_err(|not_kept| not_kept.error)?;
        Ok(table)
    }
}

/// Opens a file that an earlier process left.
fn open_kept(store: &Store, path: &Path, size_bytes: u64) -> Option<Table> {
    let mut room = FileRoom::new(store);
    room.hold(size_bytes).ok()?;
    open_table(&File::open(path).ok()?, size_bytes, room).ok()
}

fn open_table(file: &File, size_bytes: u64, room: FileRoom) -> Result<Table, NotReceived> {
    // An empty file cannot be mapped, and is no table.
    let length = usize::try_from(size_bytes).ok().filter(|length| *length > 0);
    let bytes = room.map(file, length.ok_or(Damaged::End)?)?;
    Ok(Table::open(bytes)?)
}

/// Returns the name of a table's file. Numbers are not used twice, unless a registry was lost.
fn name_of(listed: &Listed) -> String {
    format!("{}-{:016x}", listed.number, listed.checksum)
}

/// Does work that may wait for the disk.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, NotReceived> + Send + 'static,
) -> Result<T, NotReceived> {
    spawn_blocking(work).await.expect("work on tables does not panic")
}
