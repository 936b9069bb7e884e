//! Block files: what is in them, their folder, and their pages in memory.

pub(crate) mod blocking;
pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod footer;
pub mod mapped_files;
pub(crate) mod mapping;
