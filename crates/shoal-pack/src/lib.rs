//! Packs: many small objects as one ZIP file, so that a lake stores them with one request and nobody needs
//! Shoal to get them back. `docs/reference/pack-format.md` has the layout byte by byte.
//!
//! A pack is a narrow form of ZIP with one way to write it. Members are stored and not compressed, sorted by
//! key, without a gap from the first byte to the directory; local headers have no extra field. So the
//! directory at the end is enough to read any member by a ranged GET. [`PackBuilder`] writes packs,
//! [`read_tail`] reads the directory, and nothing here does I/O.
//!
//! The bounds below keep offsets and counts within the fields of plain ZIP: ZIP64 is never needed, and
//! readers that do not know it open every pack.
//!
//! # No library
//!
//! The builder knows the length before the first byte and passes the bytes of members on without a copy; the
//! writers of `zip` 9, `rawzip` 0.5 and `async_zip` 0.0.19 copy all bytes into a `Write` or `AsyncWrite`.
//! Their readers accept ZIP files as they occur: with bytes before and after, with an end record in a
//! comment, with another count than the end record says. This reader refuses all of that, so that a pack has
//! one meaning. `rawzip`, the best fit, would leave us every check of [`Damaged`] and do the small part, the
//! fixed fields of three records. So this crate writes and reads them, and tests its packs with Info-ZIP,
//! Python and Java.

mod builder;
mod description;
mod names;
mod records;
pub mod table;
mod tail;

#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::Bytes;
use crc_fast::CrcAlgorithm;

pub use self::builder::{Pack, PackBuilder, Refused};
pub use self::description::{Description, Part};
pub use self::tail::{Damaged, EntryProblem, Reading, read_tail};

/// The members of a pack at most. ZIP reserves 65,535, which would mean ZIP64.
pub const MEMBERS_MAX: usize = 65_534;

/// The bytes of a pack at most. Some readers of ZIP keep offsets in 32 bits with a sign.
pub const PACK_BYTES_MAX: u64 = 1 << 30;

/// The bytes of a directory at most: what a reader of a pack allocates, beside 100 bytes a member.
pub const DIRECTORY_BYTES_MAX: u64 = 16 << 20;

/// The bytes of a key at most, as S3 has it.
pub const KEY_BYTES_MAX: usize = 1024;

/// An object in a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The key of the object.
    pub key: Bytes,
    /// The bytes of the pack that are those of the object.
    pub range: Range<u64>,
    /// The CRC-32 of the object's bytes, as ZIP defines it.
    pub crc32: u32,
    /// An encoded [`Description`].
    description: Bytes,
}

impl Member {
    /// Decodes what the pack says of the object.
    pub fn description(&self) -> Description {
        Description::decode(&self.description).expect("a member has a description that decodes")
    }

    /// Returns true if `bytes` are those of the object, by their number and CRC-32.
    pub fn is_made_of(&self, bytes: &[u8]) -> bool {
        self.range.end - self.range.start == bytes.len() as u64 && self.crc32 == crc32(bytes)
    }
}

/// Returns the CRC-32 of bytes, as ZIP defines it.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}
