//! Ownership of the store's folder: it belongs to Shoal alone, has a known format, and is used by one node at
//! a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::footer::FORMAT;
use crate::pinning::journal::JournalError;

/// The file that marks the folder as a store. It is locked while a process uses the folder.
pub(crate) const MARKER: &str = "shoal-store";

/// Why a store cannot be opened. Each message includes a remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process uses the folder.
    #[error("store {}: another node uses this folder\nhint: give each node a [store] path of its own", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is not empty and has no marker file.
    #[error(
        "store {}: the folder is not empty and holds no store\nhint: set [store] path to a new or empty folder; nothing in this one was touched",
        path.display()
    )]
    NotAStore {
        /// The folder.
        path: PathBuf,
    },
    /// The store was written by another release.
    #[error("store {}: its format is {found:?}, this node reads format {FORMAT}\nhint: flush its dirty objects with the release that wrote them (shoal flush), then empty the folder", path.display())]
    OtherFormat {
        /// The folder.
        path: PathBuf,
        /// The format that its marker names.
        found: String,
    },
    /// The capacity is too small for the folders and a few blocks.
    #[error("store {}: a capacity of {capacity_bytes} bytes is too small\nhint: set [store] capacity to {least_bytes} bytes or more", path.display())]
    TooSmall {
        /// The folder.
        path: PathBuf,
        /// The configured capacity.
        capacity_bytes: u64,
        /// The minimum capacity.
        least_bytes: u64,
    },
    /// The journal of pins cannot be read, or exceeds the capacity.
    #[error("store {}: the journal of pins cannot be opened: {error}\nhint: the node needs to read and write node/pins there; without that file nothing is pinned", path.display())]
    Journal {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        error: JournalError,
    },
    /// The file system refused an operation.
    #[error("store {}: cannot {action}: {error}\nhint: {}", path.display(), hint(error))]
    Io {
        /// The folder.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The error of the file system.
        #[source]
        error: io::Error,
    },
}

impl StoreError {
    /// Wraps an error of the file system with the operation and the folder.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io {
            path: path.into(),
            action,
            error,
        }
    }
}

/// Returns the remedy to show to operators for an error of the file system.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "its file system is mounted read-only: mount it writable (a file system that found errors turns read-only \
             by itself), or set [store] path to another folder"
        }
        io::ErrorKind::PermissionDenied => {
            "the user that runs the node must own the folder and its content, or set [store] path to another one"
        }
        io::ErrorKind::StorageFull => "the disk is full: make room, or set [store] path to another disk",
        _ => "the node needs to create, write and lock files there",
    }
}

/// Locks a store's folder against other processes until dropped.
#[derive(Debug)]
pub(crate) struct FolderLock {
    /// The lock is released when the file is closed or the process ends, even by a crash.
    marker: File,
}

impl Drop for FolderLock {
    /// Unlocks explicitly, because a child process between `fork` and `exec` still holds the file open.
    fn drop(&mut self) {
        let _ = self.marker.unlock();
    }
}

/// Creates the folder or checks its marker, and locks it.
///
/// # Errors
///
/// Fails if the folder is in use, is not a store of this format, or cannot be used.
pub(crate) fn lock(path: &Path) -> Result<FolderLock, StoreError> {
    let failed = |action| StoreError::io(path, action);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed("create the folder"))?;
    if !is_lockable(path).map_err(failed("list the folder"))? {
        return Err(StoreError::NotAStore { path: path.into() });
    }
    let mut marker = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path.join(MARKER))
        .map_err(failed("open the marker"))?;
    match marker.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { path: path.into() }),
        Err(TryLockError::Error(error)) => return Err(failed("lock the marker")(error)),
    }
    let mut found = String::new();
    marker
        .read_to_string(&mut found)
        .map_err(failed("read the marker"))?;
    let ours = format!("format {FORMAT}\n");
    if found.is_empty() {
        marker
            .write_all(ours.as_bytes())
            .map_err(failed("write the marker"))?;
    } else if found != ours {
        return Err(StoreError::OtherFormat {
            path: path.into(),
            found: found.trim_end().into(),
        });
    }
    Ok(FolderLock { marker })
}

/// Returns true if a folder has the marker, or is empty apart from files that file systems create themselves.
fn is_lockable(path: &Path) -> io::Result<bool> {
    let mut empty = true;
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if name == MARKER {
            return Ok(true);
        }
        empty &= name == "lost+found";
    }
    Ok(empty)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{FORMAT, MARKER, StoreError, lock};

    #[test]
    fn a_new_folder_an_empty_one_and_our_own_are_locked() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        drop(lock(&path).unwrap());
        drop(lock(&path).unwrap());
        fs::create_dir_all(parent.path().join("mount/lost+found")).unwrap();
        lock(&parent.path().join("mount")).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_with_what_to_do_about_it() {
        // Not even root may create a folder there.
        let error = lock(std::path::Path::new("/proc/self/store")).unwrap_err();
        let told = error.to_string();
        assert!(
            told.starts_with("store /proc/self/store: cannot create the folder: ")
                && told.contains("\nhint: "),
            "{told}"
        );
        let hint = |code| super::hint(&std::io::Error::from_raw_os_error(code));
        assert!(hint(libc::EROFS).contains("mounted read-only"));
        assert!(hint(libc::EACCES).contains("own the folder"));
        assert!(hint(libc::ENOSPC).contains("make room"));
    }

    #[test]
    fn a_folder_is_locked_once_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let error = lock(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }));
        assert!(error.to_string().contains("\nhint: "));
        drop(first);
        lock(folder.path()).unwrap();
    }

    #[test]
    fn a_folder_with_other_files_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "…").unwrap();
        assert!(matches!(lock(folder.path()), Err(StoreError::NotAStore { .. })));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_format_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MARKER), "format 9\n").unwrap();
        let error = lock(folder.path()).unwrap_err();
        assert!(
            matches!(&error, StoreError::OtherFormat { found, .. } if found == "format 9"),
            "{error}"
        );
        assert_eq!(
            fs::read_to_string(folder.path().join(MARKER)).unwrap(),
            "format 9\n"
        );
    }

    #[test]
    fn a_folder_is_free_although_a_child_still_has_its_marker_open() {
        let folder = tempfile::tempdir().unwrap();
        let locked = lock(folder.path()).unwrap();
        // As a child has it between `fork` and `exec`.
        let inherited = locked.marker.try_clone().unwrap();
        drop(locked);
        lock(folder.path()).unwrap();
        drop(inherited);
    }

    #[test]
    fn a_marker_that_was_created_but_not_written_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MARKER), "").unwrap();
        drop(lock(folder.path()).unwrap());
        assert_eq!(
            fs::read_to_string(folder.path().join(MARKER)).unwrap(),
            format!("format {FORMAT}\n")
        );
    }
}
