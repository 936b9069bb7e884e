//! The settings of a store.

use std::path::PathBuf;

use shoal_policy::eviction::PolicyName;
use shoal_policy::quotas::QuotaId;

/// Where blocks are stored, how many bytes they may take, and which eviction policy applies.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreConfig {
    /// A folder that only this node uses.
    pub path: PathBuf,
    /// Upper bound of the bytes on disk.
    pub capacity_bytes: u64,
    /// The eviction policy. `None` selects the default policy, or the one that suits the node's
    /// configuration.
    pub policy: Option<PolicyName>,
    /// The share of the room that pinned blocks may take, in percent. Not a setting: with half the room,
    /// neither pins nor the other blocks starve.
    pub pinned_percent: u8,
    /// Size of a block. After a change, stored blocks of another size are discarded.
    pub block_bytes: u64,
    /// The quotas at the start, each with its room in bytes. They are settings of their own, and change while
    /// the store is open.
    pub quotas: Vec<(QuotaId, u64)>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            path: "/var/cache/shoal".into(),
            capacity_bytes: 100 << 30,
            policy: None,
            pinned_percent: 50,
            block_bytes: 4 << 20,
            quotas: Vec::new(),
        }
    }
}
