//! The nodes that cache together: which they are, what they ask and send each other, and which blocks they
//! hold.

pub mod cache_events;
pub mod coherence;
pub mod cooperation;
pub mod directory;
pub mod messages;
pub mod obtain;
pub mod peer;
pub mod temporary_keys;
