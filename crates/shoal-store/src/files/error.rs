//! Why a store does not open, and why a record is not written.

use std::io;
use std::path::PathBuf;

use shoal_policy::admission::Refusal;

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
    #[error("store {}: its format is {found:?}, this node reads formats 3 and 4\nhint: flush its dirty objects with the release that wrote them (shoal flush), then empty the folder", path.display())]
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

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The store has no room for it.
    #[error("there is no room on the disk: {}", .0.as_str())]
    NoRoom(Refusal),
    /// The disk failed.
    #[error(transparent)]
    Io(#[from] io::Error),
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

#[cfg(test)]
mod tests {
    #[test]
    fn an_error_of_the_file_system_says_what_to_do_about_it() {
        let hint = |code| super::hint(&std::io::Error::from_raw_os_error(code));
        assert!(hint(libc::EROFS).contains("mounted read-only"));
        assert!(hint(libc::EACCES).contains("own the folder"));
        assert!(hint(libc::ENOSPC).contains("make room"));
    }
}
