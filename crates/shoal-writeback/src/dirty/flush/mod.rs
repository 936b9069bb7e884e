//! How dirty objects reach the lake: when, at which pace, and byte for byte as they were acknowledged.

pub(crate) mod cleaner;
pub(crate) mod flush_transfers;
pub(crate) mod lake_writer;
pub(crate) mod pacing;
mod removals;
