//! The settings of a store.

use std::path::PathBuf;

use shoal_policy::eviction::PolicyName;
use shoal_policy::eviction::c2p::Completeness;

/// Where blocks are kept, how many bytes they may take, and which of them leave first.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreConfig {
    /// A folder that only this node uses.
    pub path: PathBuf,
    /// Bytes on disk never exceed this.
    pub capacity_bytes: u64,
    /// The policy that chooses which blocks leave when room is needed. `None`: the default policy, or
    /// another one where the node knows better.
    pub policy: Option<PolicyName>,
    /// Definition of a complete object, for a policy that keeps objects complete.
    pub completeness: Completeness,
    /// The part of the room that pinned blocks may take.
    pub pinned_share: Share,
    /// Size of a block; changing it makes the stored blocks useless, but no answer wrong.
    pub block_bytes: u64,
}

/// A part of the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// In percent.
    pub percent: u32,
}

impl Share {
    /// The largest part that pinned blocks may take: the rest is for blocks that come and go.
    pub const MAX: Self = Self { percent: 80 };

    /// The part of so many bytes.
    pub const fn of(self, bytes: u64) -> u64 {
        (bytes as u128 * self.percent as u128 / 100) as u64
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            path: "/var/cache/shoal".into(),
            capacity_bytes: 100 << 30,
            policy: None,
            completeness: Completeness::default(),
            pinned_share: Share { percent: 50 },
            block_bytes: 4 << 20,
        }
    }
}
