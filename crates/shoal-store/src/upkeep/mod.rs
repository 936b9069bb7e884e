//! The start of a store, and what runs in the background.

pub(crate) mod found_segments;
pub(crate) mod maintenance;
pub(crate) mod opening;
pub(crate) mod recovery;
pub(crate) mod scrub;
pub(crate) mod unflushed;
