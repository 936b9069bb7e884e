//! Limits of a node.

use std::time::Duration;

/// Time without progress on a body after which the connection of a client or a peer is closed. SDKs wait as
/// long.
pub const STALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Limits; beyond them clients wait, and eventually get `503 SlowDown`.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Requests in flight on the node.
    pub requests: usize,
    /// Requests in flight of one identity; `None` for half of `requests`, so that a second identity always
    /// finds room. Not a setting.
    pub requests_per_identity: Option<usize>,
    /// Concurrent requests to the lake. Not a setting: the node finds out how many of these the lake can use.
    pub lake_requests: usize,
    /// Bytes being fetched from the lake and not yet on disk: the memory window of the read path.
    pub fill_bytes: u64,
    /// Blocks fetched ahead of one reader.
    pub read_ahead_blocks: usize,
    /// Retries at the lake, in percent of its requests. Not a setting: a tenth more load is little for a lake
    /// that works, and too little to keep one down that does not.
    pub retry_budget_percent: u32,
}

impl Limits {
    /// Returns the most open client connections. Clients keep about as many idle as they use.
    pub fn connections(&self) -> usize {
        self.requests.saturating_mul(2)
    }

    /// Returns the most requests in flight of one identity.
    pub fn requests_per_identity(&self) -> usize {
        self.requests_per_identity
            .unwrap_or_else(|| self.requests.div_ceil(2))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 4096,
            requests_per_identity: None,
            lake_requests: 512,
            fill_bytes: 256 << 20,
            read_ahead_blocks: 4,
            retry_budget_percent: 10,
        }
    }
}
