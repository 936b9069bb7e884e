//! `[lake] bandwidth`

use serde::{Deserialize, Serialize};

/// A rate, the same in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Selects if each node has that rate, or the nodes of the cluster share it.
    pub scope: BandwidthScope,
}

/// The scope of a bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BandwidthScope {
    /// Each node has that bandwidth.
    #[default]
    Node,
    /// All nodes of the cluster share it.
    Cluster,
}

impl BandwidthScope {
    /// Returns the word on pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Cluster => "cluster",
        }
    }
}
