//! A range of a version that is being read, and how much of it was cached.

use std::sync::Arc;

use shoal_policy::{BlockId, Found};
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;

use super::BlockStream;

/// `X-Cache` examines only this many blocks of a range: 1 GiB at the default block size.
const EXAMINED_BLOCKS_MAX: u32 = 256;

/// A range of bytes to send.
pub struct Reading {
    /// The pinned version.
    pub version: Arc<Version>,
    /// The range of bytes to send.
    pub range: ByteRange,
    /// The stream of those bytes.
    pub blocks: Box<BlockStream>,
    /// How much of the range was cached when the request arrived.
    pub cached: Found,
}

/// Returns how much of `range` is cached, on disk or about to be written there. Examines only the first
/// blocks of a long range.
pub fn cached(version: &Version, range: ByteRange, holds: impl Fn(BlockId) -> bool) -> Found {
    let first = (range.start / version.block_bytes) as u32;
    let end = range.end.div_ceil(version.block_bytes) as u32;
    let considered = first..end.min(first.saturating_add(EXAMINED_BLOCKS_MAX));
    let total = considered.len();
    let held = considered.filter(|index| holds(version.block(*index)));
    match held.count() {
        held if held == total => Found::Complete,
        0 => Found::Nothing,
        _ => Found::Partial,
    }
}
