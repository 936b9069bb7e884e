//! The requests of a trace, and the blocks that they touch. Names are dense numbers instead of digests.

use std::num::NonZeroU64;
use std::ops::Range;

use shoal_policy::PartOf;
use shoal_policy::fingerprint::Fingerprint;

use crate::clock::Time;

/// One request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The time of the request since the first request of the trace, if the recording has times.
    pub at: Time,
    /// The client, numbered from 0; 0 for all requests if the recording names no clients.
    pub client: u32,
    /// The object, numbered from 0.
    pub object: u32,
    /// Length of the object, if the recording has it.
    pub object_bytes: u64,
    /// First byte of the requested range.
    pub offset_bytes: u64,
    /// Length of the requested range.
    pub bytes: u64,
    /// The operation on the range.
    pub operation: Operation,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Reads bytes of an object.
    Read,
    /// Replaces the object: cached blocks of it are out of date.
    Write,
    /// Removes the object.
    Delete,
}

/// One block of one object. Objects are numbered from 0 as they appear in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// The object that contains the block.
    pub object: u32,
    /// Position in the object, counted in blocks from 0.
    pub index: u32,
}

impl Block {
    /// The fingerprint of the block in rings and samples.
    pub const fn fingerprint(self) -> Fingerprint {
        Fingerprint::of_number((self.object as u64) << 32 | self.index as u64)
    }
}

impl PartOf for Block {
    type Whole = u32;

    fn whole(&self) -> u32 {
        self.object
    }

    fn index(&self) -> u32 {
        self.index
    }
}

/// The unit of caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granularity {
    /// Whole objects, as in web caches and most published simulators.
    Objects,
    /// Aligned pieces of this many bytes; the last piece of an object is short.
    Blocks(NonZeroU64),
}

/// The maximum number of blocks of an object. A write visits each of them, and their numbers must fit into
/// [`Block::index`].
pub const OBJECT_BLOCKS_MAX: u64 = 1 << 26;

impl Granularity {
    /// Pieces of `bytes`, which must not be zero.
    pub fn blocks(bytes: u64) -> Self {
        Self::Blocks(NonZeroU64::new(bytes).expect("a block has bytes"))
    }

    /// The blocks that a range of `bytes` from `offset_bytes` touches. Even an empty read touches one.
    pub fn touched(self, offset_bytes: u64, bytes: u64) -> Range<u32> {
        match self {
            Self::Objects => 0..1,
            Self::Blocks(size) => {
                let index =
                    |block| u32::try_from(block).expect("no object is cut into more blocks than allowed");
                let first = offset_bytes / size;
                let end = offset_bytes.saturating_add(bytes).div_ceil(size.get());
                index(first)..index(end.max(first + 1))
            }
        }
    }

    /// Returns true if an object of `object_bytes` has at most [`OBJECT_BLOCKS_MAX`] blocks. Readers of
    /// traces and experiments refuse other objects.
    pub fn allows(self, object_bytes: u64) -> bool {
        match self {
            Self::Objects => true,
            Self::Blocks(size) => object_bytes.div_ceil(size.get()) <= OBJECT_BLOCKS_MAX,
        }
    }

    /// The blocks of a request, each with its bytes.
    pub fn blocks_of(self, access: &Access) -> impl Iterator<Item = (Block, u64)> {
        let Access {
            object, object_bytes, ..
        } = *access;
        self.touched(access.offset_bytes, access.bytes)
            .map(move |index| (Block { object, index }, self.block_bytes(object_bytes, index)))
    }

    /// The number of blocks of an object of `object_bytes`.
    pub fn count(self, object_bytes: u64) -> u32 {
        self.touched(0, object_bytes).end
    }

    /// The size in bytes of the block at `index` of an object of `object_bytes`.
    pub fn block_bytes(self, object_bytes: u64, index: u32) -> u64 {
        match self {
            Self::Objects => object_bytes,
            Self::Blocks(size) => object_bytes
                .saturating_sub(u64::from(index) * size.get())
                .min(size.get()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Granularity, OBJECT_BLOCKS_MAX};

    #[test]
    fn a_read_touches_every_block_it_overlaps() {
        let blocks = Granularity::blocks(10);
        for (offset, bytes, touched) in [
            (0, 10, 0..1),
            (0, 11, 0..2),
            (9, 1, 0..1),
            (9, 2, 0..2),
            (10, 10, 1..2),
            (25, 0, 2..3),
        ] {
            assert_eq!(blocks.touched(offset, bytes), touched, "{offset}+{bytes}");
        }
        assert_eq!(Granularity::Objects.touched(500, 1000), 0..1);
    }

    #[test]
    fn an_object_that_is_allowed_can_be_cut() {
        let blocks = Granularity::blocks(10);
        let largest = 10 * OBJECT_BLOCKS_MAX;
        assert!(blocks.allows(largest) && !blocks.allows(largest + 1));
        assert_eq!(u64::from(blocks.count(largest)), OBJECT_BLOCKS_MAX);
        // An empty read at the end touches one more.
        assert_eq!(blocks.touched(largest, 0).len(), 1);
        assert!(Granularity::Objects.allows(u64::MAX));
    }

    #[test]
    fn the_blocks_of_an_object_have_its_bytes() {
        let blocks = Granularity::blocks(10);
        for object_bytes in [1, 9, 10, 11, 30] {
            let sizes = (0..blocks.count(object_bytes)).map(|index| blocks.block_bytes(object_bytes, index));
            assert_eq!(sizes.sum::<u64>(), object_bytes);
        }
    }
}
