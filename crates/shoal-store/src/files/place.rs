//! Where the bytes of a block lie on the disk.

use std::num::NonZeroU32;

/// Where the bytes of a block lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a file of its own, which is named after the block.
    File,
    /// In a segment, among other small blocks.
    Entry(Address),
}

/// Names a segment. Numbers increase, also across restarts, and are not used again.
pub(crate) type SegmentNumber = NonZeroU32;

/// An entry of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) segment: SegmentNumber,
    /// Its position among the entries of the segment.
    pub(crate) slot: u32,
}
