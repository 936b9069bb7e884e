//! The settings of a store.

use std::path::PathBuf;

use shoal_policy::eviction::PolicyName;

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
    /// Size of a block; changing it makes the stored blocks useless, but no answer wrong.
    pub block_bytes: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            path: "/var/cache/shoal".into(),
            capacity_bytes: 100 << 30,
            policy: None,
            block_bytes: 4 << 20,
        }
    }
}
