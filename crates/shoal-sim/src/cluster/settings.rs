//! The `[cluster]` of an experiment.

use serde::Deserialize;

use super::directory::NODES_MAX;
use super::{Cooperation, Directory, Hierarchy, Replication, Solo, Storage};
use crate::block::Granularity;
use crate::cache::Cache;
use crate::chance::Chance;
use crate::policy::PolicyName;
use crate::units::Size;

/// The nodes and how they work together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// How many there are.
    pub nodes: u32,
    /// Room of each.
    pub capacity: Size,
    /// Length of a block.
    #[serde(default = "default_block")]
    pub block: Size,
    /// How they work together.
    pub cooperation: CooperationName,
    /// Who leaves first.
    #[serde(default = "default_policy")]
    pub policy: PolicyName,
    /// Hierarchy: the share of a node's room that is L1's, at the start.
    #[serde(default = "default_share")]
    pub l1_share: f64,
}

/// How nodes work together, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CooperationName {
    /// Every node for itself.
    Solo,
    /// Two layers with fixed shares.
    Hierarchy,
    /// A directory; one copy of each block.
    #[serde(rename = "all-1r")]
    AllOneReplica,
    /// A directory; a copy wherever a block is read.
    #[serde(rename = "all-ar")]
    AllReplicate,
    /// Storage nodes, each with a cache for what it stores.
    Storage,
}

impl CooperationName {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Solo,
        Self::Hierarchy,
        Self::AllOneReplica,
        Self::AllReplicate,
        Self::Storage,
    ];
}

impl ClusterSettings {
    /// How objects are cut.
    pub fn granularity(&self) -> Granularity {
        Granularity::blocks(self.block.0.max(1))
    }

    /// What no type can say.
    pub(crate) fn check(&self) -> Result<(), String> {
        let directory = [CooperationName::AllOneReplica, CooperationName::AllReplicate];
        if directory.contains(&self.cooperation) && self.nodes as usize > NODES_MAX {
            return Err(format!(
                "`cluster.nodes` is {}\nhint: a simulated directory has room for {NODES_MAX} nodes",
                self.nodes
            ));
        }
        Ok(())
    }

    /// The nodes, empty. `seed` is for what they leave to chance.
    pub fn build(&self, seed: u64) -> Box<dyn Cooperation> {
        let nodes = self.nodes as usize;
        let caches = || {
            (0..nodes)
                .map(|_| Cache::new(self.capacity.0, self.policy.build()))
                .collect()
        };
        let directory =
            |replication| Directory::new(caches(), replication, Chance::stream(seed, u64::MAX - 1));
        match self.cooperation {
            CooperationName::Solo => Box::new(Solo::new(caches())),
            CooperationName::Hierarchy => {
                Box::new(Hierarchy::new(nodes, self.capacity.0, self.l1_share, self.policy))
            }
            CooperationName::AllOneReplica => Box::new(directory(Replication::Never)),
            CooperationName::AllReplicate => Box::new(directory(Replication::Always)),
            CooperationName::Storage => Box::new(Storage::new(caches())),
        }
    }
}

const fn default_block() -> Size {
    Size(4 << 20)
}

const fn default_policy() -> PolicyName {
    PolicyName::Lru
}

const fn default_share() -> f64 {
    0.5
}
