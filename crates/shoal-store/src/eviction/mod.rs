//! How blocks leave: their layers and worths, room made for others, and the removal of files.

pub(crate) mod cache_events;
pub(crate) mod emptying;
pub(crate) mod evictor;
pub(crate) mod layers;
pub(crate) mod quarantine;
pub(crate) mod removal;
pub(crate) mod worths;
