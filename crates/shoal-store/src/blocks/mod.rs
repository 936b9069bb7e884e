//! Blocks on their way to the disk and from it.

pub(crate) mod draft;
pub(crate) mod loader;
pub(crate) mod publish;
pub(crate) mod writers;
