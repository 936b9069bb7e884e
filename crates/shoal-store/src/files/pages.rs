//! Pages of files in memory. This is the only unsafe code of the store.
//!
//! A mapping is sound as long as nothing truncates the file or rewrites what readers hold of it. The store
//! never does: a block's data are written once, before they are handed out. Afterwards the file is only
//! renamed or unlinked, and an unlinked file lives until it is unmapped. A segment has its full length before
//! it is mapped; entries that are appended later lie behind those that readers hold, and the marks before
//! them are handed to none. The store's folder is locked against other nodes.
//!
//! **The remaining risk.** A page that was dropped from memory and can no longer be read from the disk raises
//! SIGBUS when this process touches it. Pages are therefore read with `pread` first, where a failing disk is
//! an error and not a signal, and [`Pages::are_resident`] is checked before a hit is handed out. A page can
//! still be reclaimed between that check and its use. When the kernel touches the page, it answers `EFAULT`,
//! and one connection breaks: `writev` to a plain socket, which is how hits leave, and the copy by the kernel
//! that the node makes before TLS. Three cases are left: bytes between nodes that are authenticated and not
//! encrypted, the bodies of dirty objects on their way to the lake, and files of the node that are mapped
//! ([`FileRoom::map`]). If their disk fails at the moment when they are touched, the process is
//! killed.
//!
//! [`FileRoom::map`]: crate::FileRoom::map
#![allow(unsafe_code)] // mmap, madvise and mincore take addresses; each call says why it is sound

use std::fs::File;
use std::io;
use std::ops::Range;

use memmap2::{Mmap, MmapOptions};

use super::mapped_files::{self, MappedFile, SENDFILE_BYTES};

/// Read-only pages of a file.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Dropped before the pages.
    _registered: Option<MappedFile>,
    pages: Mmap,
}

impl Pages {
    /// Maps the first `length` bytes of a block's own `file` and fills the page tables. Blocks while pages
    /// are read.
    pub(crate) fn populated(file: &File, length: usize) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.len(length).populate();
        // SAFETY: nothing shortens or rewrites a block's data, see the module.
        let pages = unsafe { options.map(file) }?;
        let is_sent = SENDFILE_BYTES.contains(&length);
        Ok(Self {
            _registered: is_sent.then(|| mapped_files::register(&pages, file)).flatten(),
            pages,
        })
    }

    /// Maps a file of at least `length` bytes that `sendfile` is of no use for: a segment, whose blocks are
    /// too small, or a file of the node.
    pub(crate) fn unsent(file: &File, length: usize) -> io::Result<Self> {
        // SAFETY: nothing shortens such a file or rewrites what readers hold of it, see the module.
        let pages = unsafe { MmapOptions::new().len(length).map(file) }?;
        Ok(Self {
            _registered: None,
            pages,
        })
    }

    /// Returns true if every page of the range is in memory, so that reading it does not wait for a disk.
    ///
    /// Costs a system call: 0.2 µs for 4 KiB, about 1.5 µs for 4 MiB.
    pub(crate) fn are_resident(&self, range: Range<usize>) -> bool {
        // One byte per page; blocks of usual size need one call.
        const PAGES: usize = 1024;
        let page_bytes = rustix::param::page_size();
        self.whole_pages(range).chunks(PAGES * page_bytes).all(|pages| {
            let mut resident = [0_u8; PAGES];
            let count = pages.len().div_ceil(page_bytes);
            // SAFETY: the range lies in our mapping and starts on a page; `resident` has a byte for each page
            // of it.
            let answer = unsafe {
                libc::mincore(
                    pages.as_ptr().cast_mut().cast(),
                    pages.len(),
                    resident.as_mut_ptr(),
                )
            };
            answer == 0 && resident[..count].iter().all(|page| page & 1 == 1)
        })
    }

    /// Reads the pages of the range into memory, as far as the kernel can.
    pub(crate) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        let pages = self.whole_pages(range);
        let advice = rustix::mm::Advice::LinuxPopulateRead;
        // SAFETY: the range lies in our mapping; reading pages in has no observable effect.
        unsafe { rustix::mm::madvise(pages.as_ptr().cast_mut().cast(), pages.len(), advice) }?;
        Ok(())
    }

    /// Extends a range to the beginning of its first page.
    fn whole_pages(&self, range: Range<usize>) -> &[u8] {
        let start = range.start - range.start % rustix::param::page_size();
        &self.pages[start..range.end]
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        &self.pages
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use rustix::fs::{Advice, fadvise};

    use super::Pages;

    fn mapped(length: usize) -> (tempfile::TempDir, File, Pages, Vec<u8>) {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let data: Vec<u8> = (0..length + 100).map(|position| (position % 251) as u8).collect();
        fs::write(folder.path().join("block"), &data).unwrap();
        let file = File::open(folder.path().join("block")).unwrap();
        let mapping = Pages::populated(&file, length).unwrap();
        (folder, file, mapping, data)
    }

    #[test]
    fn a_mapping_shows_the_data_and_not_what_follows_it() {
        for length in [1, 4095, 4096, 4097, 5 << 20] {
            let (_folder, _file, mapping, data) = mapped(length);
            assert!(mapping.as_ref() == &data[..length]);
            assert!(mapping.are_resident(0..length));
        }
    }

    #[test]
    fn a_part_is_resident_wherever_it_begins() {
        let (_folder, file, _, data) = mapped(100_000);
        let segment = Pages::unsent(&file, 100_000).unwrap();
        for range in [0..1, 4095..4097, 5000..70_000, 99_999..100_000] {
            segment.populate(range.clone()).unwrap();
            assert!(segment.are_resident(range.clone()));
            assert!(segment.as_ref()[range.clone()] == data[range]);
        }
    }

    #[test]
    fn a_mapping_outlives_the_name_of_its_file() {
        let (folder, file, mapping, data) = mapped(10_000);
        drop(file);
        fs::remove_file(folder.path().join("block")).unwrap();
        assert!(mapping.as_ref() == &data[..10_000]);
    }

    #[test]
    fn pages_that_left_memory_are_noticed_and_come_back() {
        let (_folder, file, mapping, data) = mapped(5 << 20);
        file.sync_all().unwrap();
        // Pages leave the cache only when nothing maps them any more.
        drop(mapping);
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let cold = Pages {
            _registered: None,
            // SAFETY: no other code changes the file of this test.
            pages: unsafe { memmap2::MmapOptions::new().len(5 << 20).map(&file) }.unwrap(),
        };
        if cold.are_resident(0..5 << 20) {
            return; // a file system in memory has nowhere else to keep its pages
        }
        cold.populate(0..5 << 20).unwrap();
        assert!(cold.are_resident(0..5 << 20));
        assert!(cold.as_ref() == &data[..5 << 20]);
    }
}
