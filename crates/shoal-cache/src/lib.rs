//! The cache of one node and of nodes together: reads, blocks, fetches, writes through.

pub mod blocks;
pub mod early;
pub mod exchange;
pub mod fetch;
pub mod grants;
pub mod gwf;
pub mod held;
pub mod job_reads;
pub mod lake;
pub mod nodes;
pub mod quotas;
pub mod read;
pub mod single_flight;
pub mod split;
pub mod write;

pub use fetch::read_context;
pub use grants::freshness;
pub use lake::health as lake_health;
pub use nodes::obtain::Obtain;
pub use nodes::peer::{BlockRequest, CallerName, Peer};
pub use nodes::{cache_events, coherence, cooperation, directory, messages, obtain, peer, temporary_keys};
