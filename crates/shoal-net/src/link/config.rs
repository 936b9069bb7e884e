//! `[lake] bandwidth`

use serde::{Deserialize, Serialize};

use crate::words;

/// A rate, the same in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Selects if each node has that rate, or the nodes of the cluster share it.
    pub scope: BandwidthScope,
}

words! {
    /// The scope of a bandwidth.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum BandwidthScope {
        /// Each node has that bandwidth.
        #[default]
        Node = "node",
        /// All nodes of the cluster share it.
        Cluster = "cluster",
    }
}
