//! A range of a version that is being read, and how much of it was cached.

use std::sync::Arc;

use shoal_policy::BlockId;
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;

use super::BlockStream;

/// `X-Cache` examines only this many blocks of a range: 1 GiB at the default block size.
const RESIDENCY_BLOCKS_MAX: u32 = 256;

/// A range of bytes to send.
pub struct Reading {
    /// The pinned version.
    pub version: Arc<Version>,
    /// The range of bytes to send.
    pub range: ByteRange,
    /// The stream of those bytes.
    pub blocks: Box<BlockStream>,
    /// How much of the range was cached when the request arrived.
    pub residency: Residency,
}

/// How much of a range was cached, on disk or about to be written there, when the request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Every block.
    All,
    /// Some blocks.
    Some,
    /// No block.
    None,
}

impl Residency {
    /// Returns how much of `range` is cached. Examines only the first blocks of a long range.
    pub fn of(version: &Version, range: ByteRange, holds: impl Fn(BlockId) -> bool) -> Self {
        let first = (range.start / version.block_bytes) as u32;
        let end = range.end.div_ceil(version.block_bytes) as u32;
        let considered = first..end.min(first.saturating_add(RESIDENCY_BLOCKS_MAX));
        let total = considered.len();
        let held = considered.filter(|index| holds(version.block(*index)));
        match held.count() {
            held if held == total => Self::All,
            0 => Self::None,
            _ => Self::Some,
        }
    }
}
