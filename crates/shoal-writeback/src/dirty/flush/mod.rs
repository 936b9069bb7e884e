//! How dirty objects reach the lake: when, at which pace, and byte for byte as they were acknowledged.

pub(crate) mod cleaner;
pub(crate) mod flush_transfers;
pub(crate) mod pacing;
mod packer;
mod removals;
mod unpacker;
