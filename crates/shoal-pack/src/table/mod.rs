//! Tables of the map from names to packs: sorted, immutable, read whole. `docs/reference/map-format.md` has
//! the layout byte by byte.
//!
//! A [`Table`] is an object of the lake. A [`TableBuilder`] writes it, and nothing here does I/O: a table may
//! be a file that is mapped into memory. All tables of a root, newest first, are a [`Map`].
//!
//! # Which row of a name is right
//!
//! That of the newest table that has the name. The root's list decides which table is newer, and no sequence
//! is compared: a table is committed before a later change of its names begins, and a merged table takes the
//! place of those that it was made of. Sequences order the versions in packs, for the case that all tables
//! are lost.
//!
//! # Trust
//!
//! [`Table::open`] checks the end, which holds a checksum for each block; a block is checked whenever it is
//! read. Any bytes yield rows or an error. To open them takes at most twice [`TAIL_BYTES_MAX`] of memory.

mod about;
mod builder;
mod map;
mod reader;
mod records;

#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::Bytes;
use shoal_base::encoding::Malformed;
use ulid::Ulid;

pub use self::builder::{Finished, Refused, TableBuilder};
pub use self::map::{Live, Map, Merge, NotListed, RowCount, Tombstones, merge};
pub use self::reader::{Rows, Table};
pub use self::records::{BlockProblem, Damaged, DamagedBlock, Section};
use crate::records::{ENTRY_BYTES, EXTRA_BYTES, LOCAL_BYTES};
use crate::{Description, Member};

/// The size of a block in bytes, unless its only row is larger.
pub const BLOCK_BYTES: usize = 4096;

/// The bytes of all blocks of a table at most: about ten million rows.
pub const BLOCKS_BYTES_MAX: u64 = 1 << 30;

/// The bytes of the tail of a table at most: what a reader keeps in memory.
pub const TAIL_BYTES_MAX: usize = 32 << 20;

/// The bytes at most of what rows have in common. Rows beyond it repeat what they have in common.
pub const COMMONS_BYTES_MAX: usize = 1 << 20;

/// The tables of a map at most, beside the one that lists them.
pub const LISTED_MAX: usize = 4096;

/// The bytes that a description has in a table less than in a pack: those of the sequence, and half of the
/// ETag.
const DENSER_BYTES: usize = 32;

/// The row of a name in a table, with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// The object is in a pack.
    Packed(Packed),
    /// The name has been removed from the map.
    Tombstone {
        /// Orders the removal among the versions of the name.
        sequence: u64,
    },
}

/// An object in a pack, as a table has it. It keeps the bytes of its table alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The pack.
    pub pack: Ulid,
    /// The bytes of the pack that are those of the object.
    pub range: Range<u64>,
    /// The CRC-32 of the object's bytes, as ZIP defines it.
    pub crc32: u32,
    /// Orders the versions of the name across packs: the greatest is the newest.
    pub sequence: u64,
    /// Encoded: what other objects have, too.
    common: Bytes,
    /// Encoded: the rest of the description.
    own: Bytes,
}

impl Packed {
    /// Returns the row of a member of a pack.
    pub fn new(pack: Ulid, member: &Member) -> Self {
        let description = member.description();
        let about = about::encode(&description);
        Self {
            pack,
            range: member.range.clone(),
            crc32: member.crc32,
            sequence: description.sequence,
            common: about.common.into(),
            own: about.own.into(),
        }
    }

    /// Returns the bytes that the object takes in a pack, its header and its entry included. Only the widths
    /// of a few numbers are left out.
    pub fn bytes_in_pack(&self, key: &[u8]) -> u64 {
        let description_bytes = self.common.len() + self.own.len() + DENSER_BYTES;
        let headers_bytes = LOCAL_BYTES + ENTRY_BYTES + EXTRA_BYTES + 2 * key.len() + description_bytes;
        headers_bytes as u64 + self.range.end - self.range.start
    }

    /// Decodes all that the table says of the object, which is all that its pack does.
    ///
    /// # Errors
    ///
    /// The table was not written by a [`TableBuilder`].
    pub fn description(&self) -> Result<Description, Malformed> {
        about::decode(self)
    }
}

/// A name with what a table, or a map, says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<T = Row> {
    /// The key of the object.
    pub key: Bytes,
    /// The object, or its tombstone.
    pub row: T,
}

/// Names to iterate over, in their order. The default is all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// They begin with this.
    pub prefix: &'a [u8],
    /// They are not below this.
    pub from: &'a [u8],
}

/// A table as a root or another table lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number. No other table of the map ever has it.
    pub number: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its checksum: of the tail, which holds those of its blocks.
    pub checksum: u64,
}

/// The place of a table in its map: the map as it is once the table is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of the table: the greatest of its map.
    pub number: u64,
    /// The tables whose rows go before its rows, newest first. Only a table made of older ones has some.
    pub newer: Vec<Listed>,
    /// The tables whose rows go after its rows, newest first.
    pub older: Vec<Listed>,
}

impl Place {
    /// Returns true if each number occurs once, and that of the table is the greatest.
    fn is_consistent(&self) -> bool {
        let others = self.newer.iter().chain(&self.older);
        let mut numbers: Vec<u64> = others.map(|listed| listed.number).collect();
        numbers.sort_unstable();
        numbers.push(self.number);
        numbers.len() <= LISTED_MAX + 1 && numbers.is_sorted_by(|one, next| one < next)
    }
}
