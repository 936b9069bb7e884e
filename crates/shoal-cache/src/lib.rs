//! The cache of one node and of nodes together: reads, blocks, fetches, writes through.

pub mod blocks;
pub mod cache_events;
pub mod coherence;
pub mod cooperation;
pub mod directory;
pub mod exchange;
pub mod fetch;
pub mod freshness;
pub mod grants;
pub mod gwf;
pub mod lake;
pub mod lake_health;
pub mod messages;
pub mod obtain;
pub mod peer;
pub mod read;
pub mod read_context;
pub mod single_flight;
pub mod split;
pub mod tier;
pub mod write;

pub use obtain::Obtain;
pub use peer::{BlockRequest, CallerName, Peer, PeerConnector};
