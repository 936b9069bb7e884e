//! The record of a write: its keys, parts and digests, and the manifest by which the lake gets it; and that
//! of a removal.

pub(crate) mod acknowledged;
pub(crate) mod checksums;
pub(crate) mod format;
pub(crate) mod keys;
pub(crate) mod manifest;
pub(crate) mod part_layout;
pub(crate) mod scope;
pub(crate) mod tombstone;
pub(crate) mod writing;
