//! Limits of a node.

use std::time::Duration;

/// Limits; beyond them clients wait, and eventually get `503 SlowDown`.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Open client connections.
    pub connections: usize,
    /// Requests in flight on the node.
    pub requests: usize,
    /// Requests in flight of one identity.
    pub requests_per_identity: usize,
    /// Concurrent requests to the lake.
    pub lake_requests: usize,
    /// Bytes being fetched from the lake and not yet on disk: the memory window of the read path.
    pub fill_bytes: u64,
    /// Bytes kept mapped for hits.
    pub mapped_bytes: u64,
    /// Blocks fetched ahead of one reader.
    pub read_ahead_blocks: usize,
    /// Time limit for a request head.
    pub header_timeout: Duration,
    /// Time after which an idle connection is closed.
    pub idle_timeout: Duration,
    /// Time without progress on a body after which the connection of a client or a peer is closed.
    pub stall_timeout: Duration,
    /// Retries at the lake, in percent of its requests.
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
