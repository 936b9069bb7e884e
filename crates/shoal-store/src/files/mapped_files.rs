//! Maps addresses of mapped bytes back to their files.
//!
//! A hit leaves this process as bytes of a mapped file, and the kernel copies them into the socket. For
//! medium sizes it is cheaper to pass the file to the kernel instead (`sendfile`), which then sends the pages
//! without copying them. For large sizes the copy is cheaper. The socket code sees only addresses, which are
//! unique in the process, so there is one table for the process.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::RwLock;
use rustix::process::{Resource, getrlimit};

/// The sizes, in bytes, for which pages are sent instead of copied. Two sizes were measured: 64 KiB, where it
/// saves a third of the server's processor time, and 4 MiB, where the copy is cheaper. The bounds themselves
/// were not measured.
pub const SENDFILE_BYTES: RangeInclusive<usize> = 32 << 10..=512 << 10;

/// The maximum number of files kept open for this.
const FILES_MAX: u64 = 1024;

/// Files take at most one in this many of the process's file descriptors; the rest are for clients.
const DESCRIPTORS_A_FILE: u64 = 8;

/// Mapped files by their first address.
static MAPPED_FILES: RwLock<BTreeMap<usize, Entry>> = RwLock::new(BTreeMap::new());

struct Entry {
    file: Arc<File>,
    length: usize,
}

/// Keeps a mapping in the table. Must be dropped before the mapping is.
#[derive(Debug)]
pub struct MappedFile {
    address: usize,
}

/// Registers a mapping whose `bytes` are the first bytes of `file`. Returns `None` if no part of them is
/// large enough or if there are too many descriptors; the bytes are then copied.
///
/// The bytes must be those of a mapping that outlives the returned value.
pub fn register(bytes: &[u8], file: &File) -> Option<MappedFile> {
    if bytes.len() < *SENDFILE_BYTES.start() {
        return None;
    }
    let address = bytes.as_ptr().addr();
    let mut files = MAPPED_FILES.write();
    if files.len() as u64 >= files_max() {
        return None;
    }
    let entry = Entry {
        file: Arc::new(file.try_clone().ok()?),
        length: bytes.len(),
    };
    let before = files.insert(address, entry);
    debug_assert!(before.is_none(), "two mappings have no address in common");
    Some(MappedFile { address })
}

fn files_max() -> u64 {
    let descriptors = getrlimit(Resource::Nofile).current;
    descriptors.map_or(FILES_MAX, |descriptors| {
        FILES_MAX.min(descriptors / DESCRIPTORS_A_FILE)
    })
}

/// Returns the file that contains `bytes`, and their offset in it.
pub fn find(bytes: &[u8]) -> Option<(Arc<File>, u64)> {
    if !SENDFILE_BYTES.contains(&bytes.len()) {
        return None;
    }
    let address = bytes.as_ptr().addr();
    let files = MAPPED_FILES.read();
    let (first, entry) = files.range(..=address).next_back()?;
    let offset = address - first;
    (offset + bytes.len() <= entry.length).then(|| (Arc::clone(&entry.file), offset as u64))
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let gone = MAPPED_FILES.write().remove(&self.address);
        debug_assert!(gone.is_some(), "a mapping is removed once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_file_for_as_long_as_it_is_mapped() {
        let file = tempfile::tempfile().unwrap();
        // The real location of the bytes does not matter here; only addresses are compared.
        let bytes = vec![0_u8; 100 << 10];
        assert!(find(&bytes).is_none());
        let guard = register(&bytes, &file).unwrap();
        assert_eq!(find(&bytes).unwrap().1, 0);
        assert_eq!(find(&bytes[5000..90_000]).unwrap().1, 5000);
        drop(guard);
        assert!(find(&bytes).is_none());
    }

    #[test]
    fn bytes_not_wholly_inside_a_mapping_have_no_file() {
        let file = tempfile::tempfile().unwrap();
        let bytes = vec![0_u8; 200 << 10];
        let _backing = register(&bytes[..100 << 10], &file).unwrap();
        assert!(find(&bytes[50 << 10..150 << 10]).is_none());
        assert!(find(&bytes[100 << 10..]).is_none());
        assert!(find(&bytes[..1 << 10]).is_none(), "not worth it");
        assert!(register(&[0; 100], &file).is_none(), "not worth it");
    }
}
