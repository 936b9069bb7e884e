//! The layout of a store's folder, and how its files are made durable.
//!
//! ```text
//! pieces/00 … pieces/ff  one file for each piece, named after its key
//! incoming/              files being written, each locked by its writer
//! clock                  an empty file whose timestamps read the file system's clock
//! ```
//!
//! Other files in the folder are left alone. Several nodes may share the folder over a shared file system.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crc_fast::{CrcAlgorithm, checksum};
use rustix::fs::{
    CWD, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens, renameat_with,
};
use rustix::io::Errno;
use shoal_base::chance;

use crate::tier::store::check_key;

/// Number of folders that pieces are spread over.
const FOLDERS: u16 = 256;

/// Replaces `/` in file names. Keys never contain `_`.
const SLASH: &str = "_";

/// A file system operation, checked before it is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderOp {
    /// Create a file for a new piece.
    Create,
    /// Write bytes of a piece.
    Write,
    /// Sync a file.
    SyncFile,
    /// Rename a written file to its final name.
    Publish,
    /// Sync a folder, which makes its entries durable.
    SyncFolder,
    /// Open or read a piece.
    Read,
    /// Unlink a file.
    Remove,
}

/// Decides if an operation fails before it reaches the file system. Tests use it to simulate failing disks.
pub type FolderFault = dyn Fn(FolderOp) -> io::Result<()> + Send + Sync;

/// The folder, and the faults that tests inject.
pub(super) struct Layout {
    root: PathBuf,
    pub(super) fault: Option<Arc<FolderFault>>,
}

impl Layout {
    /// Creates missing folders durably, and removes the files of crashed writers.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        create_folder(root)?;
        let root = root.canonicalize()?;
        let layout = Self { root, fault: None };
        for folder in ["pieces", "incoming"] {
            create_folder(&layout.root.join(folder))?;
        }
        let pieces = layout.root.join("pieces");
        for number in 0..FOLDERS {
            match new_folder(&layout.folder(number)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        sync_folder(&pieces)?;
        layout.now()?;
        layout.remove_leftovers()?;
        Ok(layout)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the error that a test injects for the operation, if any.
    pub(super) fn check(&self, op: FolderOp) -> io::Result<()> {
        self.fault.as_ref().map_or(Ok(()), |fault| fault(op))
    }

    /// Returns the file system's time, which is a server's if the folder is on one.
    pub(super) fn now(&self) -> io::Result<SystemTime> {
        let clock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.root.join("clock"))?;
        // Changing timestamps needs no space, so it also works on a full disk.
        let at = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
        let times = Timestamps {
            last_access: at(UTIME_OMIT),
            last_modification: at(UTIME_NOW),
        };
        futimens(&clock, &times)?;
        clock.metadata()?.modified()
    }

    /// Creates a file for a new piece, and locks it so that no other process considers it a leftover.
    pub(super) fn create(&self) -> io::Result<(File, PathBuf)> {
        self.check(FolderOp::Create)?;
        loop {
            let name = format!("{:016x}{:016x}", chance::bits(), chance::bits());
            let path = self.root.join("incoming").join(name);
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            match file.try_lock() {
                // A process that opened the store may have removed the file before it was locked.
                Ok(()) if file.metadata()?.nlink() == 0 => {}
                Err(TryLockError::WouldBlock) => {}
                // Not all file systems support locks. On those, leftovers stay.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok((file, path)),
            }
        }
    }

    /// Renames a written file to the name of its piece, durably.
    pub(super) fn publish(&self, written: &Path, key: &str) -> io::Result<()> {
        self.check(FolderOp::Publish)?;
        let path = self.path(key);
        rename_to_new(written, &path)?;
        let synced = self
            .check(FolderOp::SyncFolder)
            .and_then(|()| sync_folder(&self.folder(folder_of(key))));
        synced.inspect_err(|_| {
            // The first error is returned. If this removal fails too, a listing finds the piece.
            let _ = fs::remove_file(&path);
        })
    }

    /// Opens the file of a piece. Does not block on a pipe, and does not follow links out of the folder.
    pub(super) fn open_piece(&self, key: &str) -> io::Result<File> {
        self.check(FolderOp::Read)?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(self.path(key))
    }

    /// Unlinks a piece, if it exists.
    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        self.unlink(&self.path(key))
    }

    /// Unlinks a file, if it exists.
    pub(super) fn unlink(&self, path: &Path) -> io::Result<()> {
        self.check(FolderOp::Remove)?;
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Calls `found` with the key of every piece, in arbitrary order.
    pub(super) fn for_each_key(&self, mut found: impl FnMut(String)) -> io::Result<()> {
        for number in 0..FOLDERS {
            for entry in fs::read_dir(self.folder(number))? {
                let name = entry?.file_name();
                let key = name.to_str().map(|name| name.replace(SLASH, "/"));
                // Files that are not pieces are left alone.
                if let Some(key) = key.filter(|key| check_key(key).is_ok() && folder_of(key) == number) {
                    found(key);
                }
            }
        }
        Ok(())
    }

    /// Returns the metadata of a piece's file, if it exists.
    pub(super) fn metadata(&self, key: &str) -> io::Result<Option<Metadata>> {
        match fs::symlink_metadata(self.path(key)) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the files of writers that have ended: those that no process has locked.
    fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.root.join("incoming"))? {
            let path = entry?.path();
            let leftover = match OpenOptions::new().write(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            if leftover.try_lock().is_ok() {
                self.unlink(&path)?;
            }
        }
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder(folder_of(key)).join(key.replace('/', SLASH))
    }

    fn folder(&self, number: u16) -> PathBuf {
        self.root.join(format!("pieces/{number:02x}"))
    }
}

/// Syncs a folder, which makes its entries durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a folder and its parents durably. Parents that an earlier process created just before a crash are
/// synced, too.
fn create_folder(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        // A relative path of one component is in the current folder.
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    match new_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(parent)?;
            new_folder(path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    match sync_folder(parent) {
        // A parent that this process may not read was not created by it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

fn new_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Renames a file. Fails if the new name exists.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Network file systems do not support the flag. Keys are unique, so this check is only a second line
        // of defence.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if to.try_exists()? => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

fn folder_of(key: &str) -> u16 {
    checksum(CrcAlgorithm::Crc64Nvme, key.as_bytes()) as u16 % FOLDERS
}
