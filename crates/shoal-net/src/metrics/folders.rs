//! The folders of the objects that clients read most, in bounded memory (Space-Saving: Metwally, Agrawal and
//! El Abbadi, ICDT 2005).

use std::cmp::Reverse;
use std::collections::HashMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The number of folders that are counted. A folder with more than this part of all bytes is among them.
const COUNTED: usize = 128;

/// The levels of folders below a bucket that count separately: partitions of a table count together.
const LEVELS: usize = 2;

/// Counts bytes by folder.
#[derive(Debug, Default)]
pub struct Folders(Mutex<HashMap<Box<str>, Bytes>>);

#[derive(Clone, Copy, Debug, Default)]
struct Bytes {
    all: u64,
    from_lake: u64,
    /// At most this many of `all` were of folders that this one has replaced.
    doubtful: u64,
}

/// A folder, and the bytes that clients read below it. Bytes count half as much after an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FolderReads {
    /// `s3://bucket/folder/`
    pub folder: String,
    /// Bytes sent to clients, at most.
    pub bytes: u64,
    /// Those of them that came from the lake.
    pub lake_bytes: u64,
}

/// Returns the folder that the bytes of an object count for, as `bucket/folder/`.
pub fn folder_of(bucket: &str, key: &[u8]) -> String {
    let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let end = slashes.take(LEVELS).last().map_or(0, |(place, _)| place + 1);
    format!("{bucket}/{}", String::from_utf8_lossy(&key[..end]))
}

impl Folders {
    /// Counts bytes that clients got of an object in a folder, `lake_bytes` of them from the lake. If there
    /// are too many folders, this one replaces the one with the fewest bytes, and takes over its count.
    pub fn add(&self, folder: &str, bytes: u64, lake_bytes: u64) {
        let mut folders = self.0.lock();
        if !folders.contains_key(folder) {
            let mut taken = Bytes::default();
            if folders.len() == COUNTED {
                let least = folders.iter().min_by_key(|(_, bytes)| bytes.all);
                let least = least.map(|(folder, _)| folder.clone());
                let least = least.and_then(|least| folders.remove(&least)).unwrap_or_default();
                taken = Bytes {
                    all: least.all,
                    from_lake: 0,
                    doubtful: least.all,
                };
            }
            folders.insert(folder.into(), taken);
        }
        if let Some(count) = folders.get_mut(folder) {
            count.all = count.all.saturating_add(bytes);
            count.from_lake = count.from_lake.saturating_add(lake_bytes);
        }
    }

    /// Halves all counts, so that folders that are no longer read make room.
    pub fn halve(&self) {
        let mut folders = self.0.lock();
        folders.retain(|_, bytes| {
            for count in [&mut bytes.all, &mut bytes.from_lake, &mut bytes.doubtful] {
                *count /= 2;
            }
            bytes.all > 0
        });
    }

    /// Returns the folders with the most bytes, at most `most` of them. Those of whose bytes half may be of
    /// others are left out.
    pub fn top(&self, most: usize) -> Vec<FolderReads> {
        let folders = self.0.lock();
        let mut top: Vec<_> = folders
            .iter()
            .filter(|(_, bytes)| bytes.all > 2 * bytes.doubtful)
            .collect();
        top.sort_by_key(|(folder, bytes)| (Reverse(bytes.all), folder.to_string()));
        let shown = top.into_iter().take(most).map(|(folder, bytes)| FolderReads {
            folder: format!("s3://{folder}"),
            bytes: bytes.all,
            lake_bytes: bytes.from_lake,
        });
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTED, Folders, folder_of};

    #[test]
    fn a_folder_has_two_levels_below_its_bucket() {
        for (key, folder) in [
            ("a", "b/"),
            ("a/x", "b/a/"),
            ("a/b/x", "b/a/b/"),
            ("a/b/c/x", "b/a/b/"),
            ("/x", "b//"),
            ("", "b/"),
        ] {
            assert_eq!(folder_of("b", key.as_bytes()), folder, "{key:?}");
        }
    }

    #[test]
    fn the_folders_with_most_bytes_are_found_among_many() {
        let folders = Folders::default();
        for number in 0..50 * COUNTED as u64 {
            folders.add(&format!("b/{number}/"), 1, 0);
            folders.add(&format!("b/hot-{}/", number % 3), 60, 20);
        }
        let top = folders.top(10);
        let names: Vec<&str> = top.iter().map(|reads| &*reads.folder).collect();
        assert_eq!(names, ["s3://b/hot-0/", "s3://b/hot-1/", "s3://b/hot-2/"]);
        assert_eq!(top[0].lake_bytes * 3, top[0].bytes);
        assert_eq!(folders.0.lock().len(), COUNTED);
        assert_eq!(folders.top(2).len(), 2);
    }

    #[test]
    fn a_folder_that_is_no_longer_read_leaves() {
        let folders = Folders::default();
        folders.add("b/old/", 1000, 1000);
        (0..10).for_each(|_| folders.halve());
        assert_eq!(folders.top(10), []);
        assert!(folders.0.lock().is_empty());
    }
}
