//! Locks, creates, opens and checks the files of the folder.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{DatabaseError, ReadableDatabase, StorageBackend};

use super::database::{self, Changing, Database};
use super::witness::{PRIVATE_FILE, Witness};
use crate::engine::{Revision, Room};

/// Memory for pages of the file.
const CACHE_BYTES: usize = 64 << 20;

const DATABASE: &str = "registry.redb";
const WITNESS: &str = "registry.newest";
const LOCK: &str = "registry.lock";

/// Hides the names and records of objects from other users of the machine.
const PRIVATE_FOLDER: u32 = 0o700;

/// A registry in a folder could not be opened: it is in use, its files are damaged or missing, or the
/// operating system returned an error.
#[derive(Debug, thiserror::Error)]
#[error("the registry in {} {problem}", folder.display())]
pub struct OpenError {
    folder: PathBuf,
    problem: String,
}

impl OpenError {
    fn in_use(folder: &Path, holder: &str) -> Self {
        let hint = "a folder serves one process; stop that one, or use etcd for several nodes";
        let (folder, problem) = (folder.into(), format!("is in use by {holder}\nhint: {hint}"));
        Self { folder, problem }
    }

    fn damaged(folder: &Path, found: &str) -> Self {
        let hint = "restore the whole folder from a copy; acknowledged writes that are not at the lake are lost \
                    without it";
        let (folder, problem) = (folder.into(), format!("is damaged: {found}\nhint: {hint}"));
        Self { folder, problem }
    }

    fn io(folder: &Path, error: &io::Error) -> Self {
        let (folder, problem) = (folder.into(), format!("cannot be opened: {error}"));
        Self { folder, problem }
    }
}

/// Opens the storage of a `redb` file; a test passes one that fails.
pub(super) type OpenFile = Box<dyn Fn(File) -> Result<Box<dyn StorageBackend>, DatabaseError> + Send>;

/// A folder that this process has locked.
pub(super) struct Folder {
    path: PathBuf,
    open_file: OpenFile,
    sync_failed: Arc<AtomicBool>,
    lock: File,
}

impl Drop for Folder {
    /// Unlocks the folder explicitly, because a child process between `fork` and `exec` also holds the file
    /// open.
    fn drop(&mut self) {
        let _ = self.lock.unlock();
    }
}

impl Folder {
    /// Locks a folder, creating it if needed.
    pub(super) fn lock(path: &Path) -> Result<Self, OpenError> {
        Self::lock_with(path, Box::new(|file| Ok(Box::new(FileBackend::new(file)?))))
    }

    pub(super) fn lock_with(path: &Path, open_file: OpenFile) -> Result<Self, OpenError> {
        let failed = |error| OpenError::io(path, &error);
        if !path.is_dir() {
            let created = DirBuilder::new()
                .recursive(true)
                .mode(PRIVATE_FOLDER)
                .create(path);
            created.map_err(failed)?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync_folder(parent.unwrap_or(Path::new("."))).map_err(failed)?;
        }
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_FILE)
            .open(path.join(LOCK));
        let mut lock = lock.map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => write_holder(&mut lock).map_err(failed)?,
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::in_use(path, &read_holder(&mut lock)));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        make_private(path);
        Ok(Self {
            path: path.to_owned(),
            open_file,
            sync_failed: Arc::default(),
            lock,
        })
    }

    /// Opens the files, creating them in an empty folder. Removes the keys of an earlier process's sessions.
    pub(super) fn open(&self) -> Result<(Database, Witness, Revision), OpenError> {
        let (has_database, has_witness) = (self.has(DATABASE)?, self.has(WITNESS)?);
        if !has_database && !has_witness {
            self.create_database()?;
        }
        let (database, revision) = self.open_database()?;
        let mut witness = match (has_witness, revision) {
            (true, _) => self.check_witness(revision)?,
            // Just created, or a crash happened between the two files.
            (false, Revision(0)) => self.create_witness()?,
            (false, _) => return Err(self.damaged(&format!("{WITNESS} is missing"))),
        };
        let revision = self.end_sessions(&database, revision)?;
        witness.write(revision.0).map_err(|error| self.io(&error))?;
        Ok((database, witness, revision))
    }

    /// Opens an existing database, verifying all checksums.
    pub(super) fn open_database(&self) -> Result<(Database, Revision), OpenError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(DATABASE));
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.damaged(&format!("{DATABASE} is missing")),
            _ => self.io(&error),
        })?;
        if file.metadata().map_err(|error| self.io(&error))?.len() == 0 {
            return Err(self.damaged(&format!("{DATABASE} is empty")));
        }
        let database = self.redb(file)?;
        let revision = database.begin_read().map_err(redb::Error::from);
        let revision = revision.and_then(|transaction| database::revision(&transaction));
        let revision = revision.map_err(|error| self.database_error(error))?;
        Ok((database, revision))
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Free room on its disk.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        free_bytes(&self.path).ok()
    }

    /// Returns true if the disk has refused an `fsync`.
    pub(super) fn sync_failed(&self) -> bool {
        self.sync_failed.load(Ordering::Acquire)
    }

    fn has(&self, file: &str) -> Result<bool, OpenError> {
        self.path.join(file).try_exists().map_err(|error| self.io(&error))
    }

    /// Writes a file under a temporary name first, so that it is never seen incomplete.
    fn create_database(&self) -> Result<(), OpenError> {
        let new = self.path.join(format!("{DATABASE}.new"));
        let created = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(PRIVATE_FILE)
            .open(&new);
        let file = created.map_err(|error| self.io(&error))?;
        let copy = file.try_clone().map_err(|error| self.io(&error))?;
        let database = self.redb(copy)?;
        database::create(&database).map_err(|error| self.database_error(error))?;
        database
            .close()
            .map_err(|error| self.database_error(error.into()))?;
        let named = file.sync_all().and_then(|()| self.give_name(&new, DATABASE));
        named.map_err(|error| self.io(&error))
    }

    fn create_witness(&self) -> Result<Witness, OpenError> {
        let new = self.path.join(format!("{WITNESS}.new"));
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(self.io(&error));
        }
        let witness = Witness::create(&new, 0);
        let named = witness.and_then(|witness| self.give_name(&new, WITNESS).map(|()| witness));
        named.map_err(|error| self.io(&error))
    }

    fn check_witness(&self, revision: Revision) -> Result<Witness, OpenError> {
        let witness = Witness::open(&self.path.join(WITNESS)).map_err(|error| self.io(&error))?;
        let (witness, newest) =
            witness.ok_or_else(|| self.damaged(&format!("{WITNESS} holds no revision")))?;
        if revision.0 < newest {
            return Err(self.damaged(&format!("{DATABASE} has revision {}, not {newest}", revision.0)));
        }
        Ok(witness)
    }

    fn end_sessions(&self, database: &Database, revision: Revision) -> Result<Revision, OpenError> {
        let ended = || -> Result<Revision, redb::Error> {
            let transaction = database.begin_write()?;
            let mut changing = Changing::new(&transaction)?;
            let next = Revision(revision.0 + 1);
            let removed = changing.remove_keys_of(|_| true)?;
            changing.set_revision(next)?;
            drop(changing);
            if removed.is_empty() {
                transaction.abort()?;
                Ok(revision)
            } else {
                transaction.commit()?;
                Ok(next)
            }
        };
        ended().map_err(|error| self.database_error(error))
    }

    fn redb(&self, file: File) -> Result<Database, OpenError> {
        let file = (self.open_file)(file).map_err(|error| self.database_error(error.into()))?;
        let noting = SyncRecorder {
            file,
            failed: Arc::clone(&self.sync_failed),
        };
        let opened = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .set_check_integrity_on_open(true)
            .create_with_backend(noting);
        opened.map_err(|error| self.database_error(error.into()))
    }

    fn give_name(&self, new: &Path, name: &str) -> io::Result<()> {
        fs::rename(new, self.path.join(name))?;
        sync_folder(&self.path)
    }

    fn database_error(&self, error: redb::Error) -> OpenError {
        match error {
            // Damage of the head, and reads beyond the end of a file that was cut off.
            redb::Error::Io(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
                ) =>
            {
                self.io(&error)
            }
            redb::Error::DatabaseAlreadyOpen => OpenError::in_use(&self.path, "another program"),
            error => self.damaged(&format!("{DATABASE}: {error}")),
        }
    }

    fn damaged(&self, found: &str) -> OpenError {
        OpenError::damaged(&self.path, found)
    }

    fn io(&self, error: &io::Error) -> OpenError {
        OpenError::io(&self.path, error)
    }
}

/// A file that records a failed `fsync`.
#[derive(Debug)]
struct SyncRecorder {
    file: Box<dyn StorageBackend>,
    failed: Arc<AtomicBool>,
}

/// The folder is locked instead.
impl StorageBackend for SyncRecorder {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.file.sync_data();
        if synced.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// Room reserved for transactions without a `Put`, so that keys can always be deleted.
pub(super) const RESERVE_BYTES: u64 = 16 << 20;

/// How full the registry in a folder is.
pub(super) fn room(folder: &Path) -> io::Result<Room> {
    let used_bytes = fs::metadata(folder.join(DATABASE))?.len();
    let free_bytes = free_bytes(folder)?.saturating_sub(RESERVE_BYTES);
    Ok(Room {
        used_bytes,
        quota_bytes: used_bytes + free_bytes,
    })
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(folder)?;
    Ok(disk.f_bavail * disk.f_frsize)
}

/// Removes other users' access to the folder and its files, which earlier builds left readable. A folder of
/// another owner is not changed.
fn make_private(folder: &Path) {
    let files = [DATABASE, WITNESS, LOCK].map(|file| (folder.join(file), PRIVATE_FILE));
    let all = std::iter::once((folder.to_owned(), PRIVATE_FOLDER)).chain(files);
    for (path, mode) in all {
        match fs::set_permissions(&path, Permissions::from_mode(mode)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "other users of this machine may read the registry");
            }
            _ => {}
        }
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn write_holder(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.write_all(std::process::id().to_string().as_bytes())
}

fn read_holder(lock: &mut File) -> String {
    let mut holder = String::new();
    let read = lock
        .rewind()
        .and_then(|()| lock.take(32).read_to_string(&mut holder));
    match (read, holder.parse::<u32>()) {
        (Ok(_), Ok(process)) if process == std::process::id() => "this process".into(),
        (Ok(_), Ok(process)) => format!("process {process}"),
        _ => "another process".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::Folder;

    #[test]
    fn no_other_user_may_enter_the_folder_or_read_its_files() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("made/registry");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for is_new in [true, false] {
            if !is_new {
                for entry in fs::read_dir(&path).unwrap() {
                    fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(0o644)).unwrap();
                }
                fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            }
            let folder = Folder::lock(&path).unwrap();
            drop(folder.open().unwrap());
            assert_eq!(mode(&path), 0o700, "new: {is_new}");
            let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            let files: Vec<_> = files.collect();
            assert_eq!(files.len(), 3);
            assert!(
                files.iter().all(|file| mode(file) == 0o600),
                "{files:?}, new: {is_new}"
            );
        }
    }

    #[test]
    fn a_folder_is_free_although_a_child_still_has_its_lock_open() {
        let folder = tempfile::tempdir().unwrap();
        let locked = Folder::lock(folder.path()).unwrap();
        // As a child has it between `fork` and `exec`.
        let inherited = locked.lock.try_clone().unwrap();
        drop(locked);
        Folder::lock(folder.path()).unwrap();
        drop(inherited);
    }
}
