//! Files of blocks and segments: what is in them, their folder, and their pages in memory.

pub(crate) mod disk;
pub(crate) mod error;
pub(crate) mod folder;
pub(crate) mod footer;
pub(crate) mod location;
pub mod mapped_files;
pub(crate) mod mapping;
pub(crate) mod pages;
pub(crate) mod place;
pub(crate) mod segment;
pub(crate) mod segment_file;
