//! Ownership of the store's folder: it belongs to Shoal alone, has a known format, and is used by one node at
//! a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::error::StoreError;

/// The content of the marker. A build that reads only format 3 would not count the room of segments, so it
/// must refuse the folder.
const FORMAT: &str = "format 4\n";

/// The marker of an earlier build, which keeps small blocks in files. They stay until they are evicted.
const FORMER_FORMAT: &str = "format 3\n";

/// The file that marks the folder as a store. It is locked while a process uses the folder.
pub(crate) const MARKER: &str = "shoal-store";

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
    if found.is_empty() || found == FORMER_FORMAT {
        // If this breaks off, the marker is empty, and is written by the next start.
        marker
            .set_len(0)
            .and_then(|()| marker.write_all(FORMAT.as_bytes()))
            .map_err(failed("write the marker"))?;
    } else if found != FORMAT {
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
        assert_eq!(fs::read_to_string(folder.path().join(MARKER)).unwrap(), FORMAT);
    }

    #[test]
    fn a_store_of_the_former_format_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MARKER), super::FORMER_FORMAT).unwrap();
        drop(lock(folder.path()).unwrap());
        assert_eq!(fs::read_to_string(folder.path().join(MARKER)).unwrap(), FORMAT);
        drop(lock(folder.path()).unwrap());
    }
}
