//! A block's data in memory: pages of its own file, or a part of the pages of its segment.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::pages::Pages;
use super::segment_file::SegmentFile;

/// The mapped data of a block.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// All of these pages.
    Own(Pages),
    /// This range of the pages of a segment, which stays on the disk for as long.
    Part {
        segment: Arc<SegmentFile>,
        range: Range<usize>,
    },
}

impl Mapping {
    /// Maps the first `length` bytes of a block's own `file`. Blocks while pages are read.
    pub(crate) fn of_file(file: &File, length: usize) -> io::Result<Self> {
        Ok(Self::Own(Pages::populated(file, length)?))
    }

    /// Maps a range of a segment. Blocks while pages are read.
    pub(crate) fn of_segment(segment: &Arc<SegmentFile>, range: Range<usize>) -> io::Result<Self> {
        segment.pages()?.populate(range.clone())?;
        Ok(Self::Part {
            segment: Arc::clone(segment),
            range,
        })
    }

    /// Returns true if every page is in memory, so that reading it does not wait for a disk.
    pub(crate) fn is_resident(&self) -> bool {
        let (pages, range) = self.pages();
        pages.are_resident(range)
    }

    /// Reads evicted pages back into memory, as far as the kernel can.
    pub(crate) fn populate(&self) -> io::Result<()> {
        let (pages, range) = self.pages();
        pages.populate(range)
    }

    fn pages(&self) -> (&Pages, Range<usize>) {
        match self {
            Self::Own(pages) => (pages, 0..pages.as_ref().len()),
            Self::Part { segment, range } => {
                let pages = segment.pages().expect("a part is of a mapped segment");
                (pages, range.clone())
            }
        }
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        let (pages, range) = self.pages();
        &pages.as_ref()[range]
    }
}
