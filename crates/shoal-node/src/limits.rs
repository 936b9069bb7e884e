//! The bounds of a node, which the modules that hold them read.

use std::time::Duration;

/// Bounds; beyond them clients wait, and finally get `503 SlowDown`.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Open client connections.
    pub connections: usize,
    /// Requests in flight on the node.
    pub requests: usize,
    /// Requests in flight of one identity.
    pub requests_per_identity: usize,
    /// Requests at the lake at a time, at most.
    pub lake_requests: usize,
    /// Bytes being fetched from the lake and not yet on disk: the memory window of the read path.
    pub fill_bytes: u64,
    /// Bytes kept mapped for hits.
    pub mapped_bytes: u64,
    /// Blocks fetched ahead of one reader.
    pub read_ahead_blocks: usize,
    /// A request head must arrive within this time.
    pub header_timeout: Duration,
    /// A connection without a request is closed after this time.
    pub idle_timeout: Duration,
    /// A body that makes no progress for this time ends the connection of a client or another node.
    pub stall_timeout: Duration,
    /// Lake retries, as a share of requests in percent.
    pub retry_budget_percent: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 8192,
            requests: 4096,
            requests_per_identity: 2048,
            lake_requests: 512,
            fill_bytes: 256 << 20,
            mapped_bytes: 1 << 30,
            read_ahead_blocks: 4,
            header_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_mins(5),
            stall_timeout: Duration::from_mins(1),
            retry_budget_percent: 10,
        }
    }
}
