//! A block's bytes on the disk, wherever they lie: opened, verified, mapped.
//!
//! A block lies in a file of its own or in an entry of a segment. All code that reads blocks uses these
//! functions and does not distinguish the two.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use shoal_policy::BlockId;

use super::disk::{Disk, DiskOp, ReadError};
use super::footer::{Checksum, Footer};
use super::mapping::Mapping;
use super::place::{Address, Place};
use super::segment::{EntryHead, SegmentError};
use super::segment_file::SegmentFile;

/// Size of one read: large enough to keep a disk busy, small enough for the processor's cache.
const READ_BYTES: usize = 256 << 10;

/// Number of bytes read first from an entry; most heads and footers fit.
const ENTRY_GUESS_BYTES: u64 = 1024;

/// Where a block's bytes lie, with the means to read them.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    File,
    Entry(Entry),
}

/// The entry of a block in a segment.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) segment: Arc<SegmentFile>,
    pub(crate) slot: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A block's bytes, with their description.
pub(crate) struct Opened {
    source: Source,
    pub(crate) footer: Footer,
}

enum Source {
    File(File),
    Entry {
        segment: Arc<SegmentFile>,
        data_offset: u64,
    },
}

impl Location {
    pub(crate) fn place(&self) -> Place {
        match self {
            Self::File => Place::File,
            Self::Entry(entry) => Place::Entry(entry.address()),
        }
    }
}

impl Entry {
    pub(crate) fn address(&self) -> Address {
        Address {
            segment: self.segment.number,
            slot: self.slot,
        }
    }

    /// Maps the data, which are the last bytes of the entry.
    pub(crate) fn map(&self, data_bytes: u64) -> io::Result<Mapping> {
        let end = self.offset + self.bytes;
        Mapping::of_segment(&self.segment, (end - data_bytes) as usize..end as usize)
    }

    /// Reads head and footer.
    fn open(&self, disk: &Disk) -> Result<(EntryHead, Footer), ReadError> {
        let guess_bytes = ENTRY_GUESS_BYTES.min(self.bytes);
        let mut bytes = self.segment.read(disk, self.offset, guess_bytes)?;
        let head = EntryHead::decode(&bytes)?;
        if (head.segment, head.slot, head.entry_bytes()) != (self.segment.number, self.slot, self.bytes) {
            return Err(SegmentError::NotAnEntry.into());
        }
        if head.data_offset() > guess_bytes {
            bytes = self.segment.read(disk, self.offset, head.data_offset())?;
        }
        let footer = head.decode_footer(&bytes)?;
        Ok((head, footer))
    }
}

impl Opened {
    fn file(&self) -> &File {
        match &self.source {
            Source::File(file) => file,
            Source::Entry { segment, .. } => segment.file(),
        }
    }

    const fn data_offset(&self) -> u64 {
        match self.source {
            Source::File(_) => 0,
            Source::Entry { data_offset, .. } => data_offset,
        }
    }

    /// Maps the data, which should have been verified.
    pub(crate) fn map(&self) -> io::Result<Mapping> {
        let length = self.footer.data_bytes as usize;
        match &self.source {
            Source::File(file) => Mapping::of_file(file, length),
            Source::Entry { segment, data_offset } => {
                let start = *data_offset as usize;
                Mapping::of_segment(segment, start..start + length)
            }
        }
    }

    /// Compares the data with their checksum, as the disk holds them: cached pages are dropped first, and
    /// again afterwards to leave memory to readers. Mapped pages stay, because readers use them. If pages
    /// cannot be dropped, the check covers only memory, which is no error.
    pub(crate) fn reverify(&self, disk: &Disk) -> Result<(), ReadError> {
        let length = NonZeroU64::new(self.footer.data_bytes);
        let _ = fadvise(self.file(), self.data_offset(), length, Advice::DontNeed);
        self.verify(disk)?;
        let _ = fadvise(self.file(), self.data_offset(), length, Advice::DontNeed);
        Ok(())
    }

    /// Reads the data, which fills the page cache, and compares them with their checksum.
    pub(crate) fn verify(&self, disk: &Disk) -> Result<(), ReadError> {
        disk.check(DiskOp::Read)?;
        let (start, data_bytes) = (self.data_offset(), self.footer.data_bytes);
        // Starts reading all data ahead. A failed hint is ignored, because the reads below report errors.
        let _ = fadvise(self.file(), start, NonZeroU64::new(data_bytes), Advice::WillNeed);
        let mut buffer = vec![0; READ_BYTES.min(data_bytes as usize)];
        let mut checksum = Checksum::new();
        let mut offset = 0;
        while offset < data_bytes {
            let length = (data_bytes - offset).min(buffer.len() as u64) as usize;
            self.file().read_exact_at(&mut buffer[..length], start + offset)?;
            checksum.update(&buffer[..length]);
            offset += length as u64;
        }
        if checksum.finish() == self.footer.data_checksum {
            Ok(())
        } else {
            Err(ReadError::Checksum)
        }
    }
}

impl Disk {
    /// Opens a block and reads its description.
    pub(crate) fn open_block(&self, block: BlockId, location: &Location) -> Result<Opened, ReadError> {
        let opened = match location {
            Location::File => {
                let (file, footer) = self.open_file(block)?;
                Opened {
                    source: Source::File(file),
                    footer,
                }
            }
            Location::Entry(entry) => {
                let (head, footer) = entry.open(self)?;
                Opened {
                    source: Source::Entry {
                        segment: Arc::clone(&entry.segment),
                        data_offset: entry.offset + head.data_offset(),
                    },
                    footer,
                }
            }
        };
        if opened.footer.block() == block {
            Ok(opened)
        } else {
            Err(ReadError::OtherBlock)
        }
    }
}
