//! `[cooperation]`

use std::net::SocketAddr;
use std::time::Duration;

use shoal_base::secret::Secret;
use shoal_net::words;

use crate::split::SplitRule;

words! {
    /// How nodes work together.
    pub enum CooperationMode {
        /// Not at all: the node talks to the lake and to no other node.
        Solo = "solo",
        /// In layers, by consistent hashing (D3N).
        Hierarchy = "hierarchy",
        /// By a directory that says which nodes hold a block (D4N). While it does not answer, as in
        /// `Hierarchy`.
        Directory = "directory",
    }
}

/// Whether this node shares blocks with others, and how it finds them.
#[derive(Clone, Debug, PartialEq)]
pub struct CooperationConfig {
    /// How nodes work together.
    pub mode: CooperationMode,
    /// Where other nodes reach this one: blocks by TCP, gossip by UDP, on the same port.
    pub listen: SocketAddr,
    /// The address under which other nodes reach this one, if it is not `listen`.
    pub advertise: Option<SocketAddr>,
    /// Nodes to ask for the others, as `host:port` of their `listen`; a node may be its own seed.
    pub seeds: Vec<String>,
    /// Names of the parts of `node.topology`, innermost first. The first is the node itself, L1; each further
    /// one is a layer of the nodes that share the topology up to that part.
    pub layers: Vec<String>,
    /// How many blocks are at home here, in percent of an ordinary node's.
    pub weight_percent: u32,
    /// How often the node recomputes the split.
    pub period: Duration,
    /// How layers share the room of this node.
    pub split: SplitRule,
    /// A secret that only the nodes of this cluster know (`secret_key` or the content of `secret_key_file`).
    pub secret_key: Option<Secret>,
    /// A second valid secret, while an operator replaces one with the other.
    pub previous_secret_key: Option<Secret>,
}

impl CooperationConfig {
    /// The secrets that nodes authenticate with, the current one first. Without a secret, all nodes use the
    /// same empty one; then only this machine can connect.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let current = self.secret_key.as_ref().map_or("", Secret::expose);
        std::iter::once(current).chain(self.previous_secret_key.as_ref().map(Secret::expose))
    }
}

impl Default for CooperationConfig {
    fn default() -> Self {
        Self {
            mode: CooperationMode::Solo,
            listen: SocketAddr::from(([127, 0, 0, 1], 9200)),
            advertise: None,
            seeds: Vec::new(),
            layers: ["rack", "cluster", "datacenter"].map(Into::into).into(),
            weight_percent: 100,
            period: Duration::from_secs(90),
            split: SplitRule::Adaptive,
            secret_key: None,
            previous_secret_key: None,
        }
    }
}
