//! The files of the logs that a history is read from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Folders in folders that are searched for logs.
const DEPTH_MAX: usize = 8;
/// Maximum number of files of a folder.
pub const FILES_MAX: usize = 1_000_000;

/// The files below a path cannot be listed.
#[derive(Debug, Error)]
pub enum LogFilesError {
    /// A file or a folder cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A folder has more than [`FILES_MAX`] files, or too many folders in folders.
    #[error("{} has too many files, or folders in folders", .0.display())]
    TooMany(PathBuf),
}

/// Returns a file, or all files in a folder and in the folders in it, in the order of their names and of the
/// numbers in them. Hidden ones are left out.
///
/// # Errors
///
/// Fails if something cannot be read, or if there are too many files.
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, LogFilesError> {
    let mut files = Vec::new();
    collect(path, 0, &mut files)?;
    Ok(files)
}

fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), LogFilesError> {
    let failed = |source| LogFilesError::Unreadable {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(failed)?;
    entries.sort_by_cached_key(|path| counted_order(path));
    let is_hidden = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    for entry in entries.into_iter().filter(|entry| !is_hidden(entry)) {
        if depth == DEPTH_MAX || files.len() == FILES_MAX {
            return Err(LogFilesError::TooMany(path.to_owned()));
        }
        collect(&entry, depth + 1, files)?;
    }
    Ok(())
}

/// Sorts `events_10_app` after `events_2_app`: numbers in names by their size. Each part is a text and the
/// number behind it.
fn counted_order(path: &Path) -> Vec<(String, Option<u64>)> {
    let name = path.to_string_lossy();
    let mut parts = vec![(String::new(), None)];
    for character in name.chars() {
        let (text, number) = parts.last_mut().expect("there is a part from the beginning on");
        match (character.to_digit(10), *number) {
            (Some(digit), begun) => {
                let more = begun.unwrap_or(0_u64).saturating_mul(10);
                *number = Some(more.saturating_add(u64::from(digit)));
            }
            (None, None) => text.push(character),
            (None, Some(_)) => parts.push((character.to_string(), None)),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::files_of;

    /// Returns the names of these files of a folder, as they are read.
    fn read_order(names: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let files = files_of(folder.path()).unwrap();
        let names = files.iter().map(|path| path.file_name().unwrap());
        names.map(|name| name.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_files_of_a_folder_are_read_in_the_order_of_their_numbers() {
        let names = [
            "events_10_app",
            "events_2_app",
            "events_1_app",
            ".hidden",
            "appstatus_app",
        ];
        assert_eq!(
            read_order(&names),
            ["appstatus_app", "events_1_app", "events_2_app", "events_10_app"]
        );
    }

    #[test]
    fn access_logs_are_read_in_the_order_of_their_times() {
        let names = [
            "2026-11-20-00-00-09-F00D",
            "2026-11-20-00-17-28-BEEF",
            "2026-11-20-01-00-00-0001",
            "2026-11-20-23-59-59-CAFE",
            "2026-11-21-00-00-00-0000",
        ];
        assert_eq!(read_order(&names), names);
    }

    #[test]
    fn a_link_that_leads_back_ends() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        assert!(files_of(folder.path()).is_err());
    }
}
