//! The `[cluster]` of an experiment, and its nodes on a simulated network.

mod adaptive;
mod claims;
mod prefetch;
mod simulated;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use shoal_base::seeded::Chance;
use shoal_base::spelling::unknown;
use shoal_policy::eviction::{self, C2p, Named, c2p, gwf};
use shoal_sim::Cache;
use shoal_sim::block::{Block, Granularity};
use shoal_sim::cluster::{
    Directory, DirectoryGwf, Hierarchy, NODES_MAX, Placement, Replication, Solo, StorageC2p,
};
use shoal_sim::policy::PolicyName;

use self::adaptive::Adaptive;
use self::claims::Claimed;
use self::prefetch::Prefetch;
pub use self::simulated::{Room, Simulated};
use crate::units::{Size, Span};

/// The random stream that nodes draw from, different from that of any client.
const CHANCE_OF_NODES: u64 = u64::MAX - 1;

/// The nodes and how they work together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// The number of nodes.
    pub nodes: u32,
    /// Room of each node.
    pub capacity: Size,
    /// Length of a block.
    #[serde(default = "default_block")]
    pub block: Size,
    /// How they work together.
    pub cooperation: CooperationName,
    /// The eviction policy.
    #[serde(default = "default_policy", deserialize_with = "policy")]
    pub policy: PolicyName,
    /// GWF: which version holds where the dissertation's text and its listing differ.
    #[serde(default)]
    pub gwf_reading: GwfReading,
    /// GWF: how the age enters into a use.
    #[serde(default)]
    pub gwf_ageing: GwfAgeing,
    /// Directory: whether a node that misses a block which another node fetches from the lake waits for that
    /// node, as nodes of Shoal do. Without it each of them fetches the block, as in the dissertation.
    #[serde(default)]
    pub claims: bool,
    /// C2P: how its comparator is read, which blocks a read stands for, and whether it fetches ahead.
    #[serde(default)]
    pub c2p: C2pSettings,
    /// Hierarchy with fixed shares: the share of a node's room that is L1's.
    #[serde(default = "default_share")]
    pub l1_share: f64,
    /// Hierarchy: the interval at which a node divides its room again, beginning with equal parts. Shares are
    /// fixed if it is left out.
    pub adapt_every: Option<Span>,
    /// Hierarchy: the share of its room that may change its layer at once; a twentieth if it is left out.
    pub adapt_limit: Option<f64>,
}

/// How nodes work together, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CooperationName {
    /// Every node for itself.
    Solo,
    /// Two layers, with fixed shares or adaptive ones.
    Hierarchy,
    /// A directory; one copy of each block.
    #[serde(rename = "all-1r")]
    AllOneReplica,
    /// A directory; a copy wherever a block is read.
    #[serde(rename = "all-ar")]
    AllReplicate,
    /// A directory; D4N's GWF decides what is copied, pushed and kept.
    Gwf,
    /// Storage nodes, each with a cache for the blocks that it stores.
    Storage,
    /// The same, with caches that exchange events of an object's blocks.
    C2p,
}

/// How Algorithm 3 of the dissertation is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GwfReading {
    /// As in the text.
    #[default]
    Text,
    /// As in the listing.
    Listing,
}

/// How the age enters into the worth of a block under GWF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GwfAgeing {
    /// Once, added to a number of uses.
    Added,
    /// At every use, as in Algorithm 3.
    #[default]
    Compounded,
}

/// The options of C2P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct C2pSettings {
    /// True if Algorithm 1 compares times when they are far apart instead of close.
    pub inverted: bool,
    /// True if every block of an object counts for its completeness, as in the paper, or only those that
    /// readers used lately.
    pub whole_reads: bool,
    /// Uses closer together than this are close; without it, a share of the time that blocks stay.
    pub affinity: Option<Span>,
    /// True if a node fetches the missing blocks of an object when an event of another node shows that it is
    /// read.
    pub prefetch: bool,
    /// The policy that C2P stands above; its own comparator if there is none.
    #[serde(deserialize_with = "some_policy")]
    pub above: Option<PolicyName>,
}

impl Default for C2pSettings {
    /// The paper's options, with Shoal's threshold.
    fn default() -> Self {
        Self {
            inverted: false,
            whole_reads: true,
            affinity: None,
            prefetch: false,
            above: None,
        }
    }
}

impl C2pSettings {
    /// The policy that C2P stands above, empty.
    fn below(&self) -> Box<Named<Block>> {
        match self.above {
            Some(PolicyName::OfStores(policy)) => policy.build_below(),
            Some(PolicyName::Life | PolicyName::Gwf) | None => Box::new(self.algorithm_1()),
        }
    }

    /// The paper's LRU (its Algorithm 1), empty.
    fn algorithm_1(&self) -> c2p::Closeness<Block> {
        let reading = if self.inverted {
            c2p::Reading::Inverted
        } else {
            c2p::Reading::Printed
        };
        let own = c2p::Rule {
            reading,
            ..c2p::Rule::default()
        };
        c2p::Closeness::new(match self.affinity {
            None => own,
            Some(Span(affinity)) => c2p::Rule {
                affinity,
                clock: c2p::Clock::Wall,
                ..own
            },
        })
    }
}

impl CooperationName {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Solo,
        Self::Hierarchy,
        Self::AllOneReplica,
        Self::AllReplicate,
        Self::Gwf,
        Self::Storage,
        Self::C2p,
    ];
}

impl ClusterSettings {
    /// How objects are divided.
    pub fn granularity(&self) -> Granularity {
        Granularity::blocks(self.block.0.max(1))
    }

    /// Checks the conditions that types cannot express.
    pub(crate) fn check(&self) -> Result<(), String> {
        let directory = [
            CooperationName::AllOneReplica,
            CooperationName::AllReplicate,
            CooperationName::Gwf,
        ];
        if directory.contains(&self.cooperation) && self.nodes as usize > NODES_MAX {
            return Err(format!(
                "`cluster.nodes` is {}\nhint: a simulated directory has room for {NODES_MAX} nodes",
                self.nodes
            ));
        }
        if let Some(above) = self.c2p.above
            && !matches!(above, PolicyName::OfStores(policy) if !policy.is_c2p())
        {
            return Err(format!(
                "`cluster.c2p.above` is {above}\nhint: C2P stands above lru, lfu, lfuda, sieve, s3-fifo or duel"
            ));
        }
        Ok(())
    }

    /// Builds the nodes, empty. `seed` is for their random choices.
    pub fn build(&self, seed: u64) -> Box<dyn Simulated> {
        let nodes = self.nodes as usize;
        let caches = || {
            (0..nodes)
                .map(|_| Cache::new(self.capacity.0, self.alone()))
                .collect()
        };
        let chance = Chance::stream(seed, CHANCE_OF_NODES);
        let claimed = |nodes: Box<dyn Simulated>| -> Box<dyn Simulated> {
            if self.claims {
                Box::new(Claimed::new(nodes))
            } else {
                nodes
            }
        };
        match self.cooperation {
            CooperationName::Solo => Box::new(Solo::new(caches(), None)),
            CooperationName::Hierarchy => {
                let layers = Hierarchy::new(nodes, self.capacity.0, self.l1_share, self.policy);
                match self.adapt_every {
                    Some(Span(period)) => Box::new(Adaptive::new(
                        layers,
                        self.capacity.0,
                        self.block.0,
                        period,
                        self.adapt_limit,
                    )),
                    None => Box::new(layers),
                }
            }
            CooperationName::AllOneReplica => {
                claimed(Box::new(Directory::new(caches(), Replication::Never, chance)))
            }
            CooperationName::AllReplicate => {
                claimed(Box::new(Directory::new(caches(), Replication::Always, chance)))
            }
            CooperationName::Gwf => {
                let reading = match self.gwf_reading {
                    GwfReading::Text => gwf::Reading::Text,
                    GwfReading::Listing => gwf::Reading::Listing,
                };
                let ageing = match self.gwf_ageing {
                    GwfAgeing::Added => gwf::Ageing::Added,
                    GwfAgeing::Compounded => gwf::Ageing::Compounded,
                };
                let bytes = self.capacity.0;
                claimed(Box::new(DirectoryGwf::new(nodes, bytes, ageing, reading, chance)))
            }
            CooperationName::Storage => Box::new(Solo::new(caches(), Some(Placement::new(nodes, seed)))),
            CooperationName::C2p => {
                let completeness = if self.c2p.whole_reads {
                    c2p::Completeness::Whole
                } else {
                    c2p::Completeness::Read
                };
                let placement = Placement::new(nodes, seed);
                let policy = || C2p::above(self.c2p.below(), completeness);
                let storage = StorageC2p::new(nodes, placement, self.capacity.0, policy);
                if self.c2p.prefetch {
                    Box::new(Prefetch::new(storage, placement))
                } else {
                    Box::new(storage)
                }
            }
        }
    }
}

impl ClusterSettings {
    /// The policy of a node by itself, empty.
    fn alone(&self) -> Box<Named<Block>> {
        match self.policy {
            PolicyName::OfStores(eviction::PolicyName::Closeness) => Box::new(self.c2p.algorithm_1()),
            policy => policy.build(),
        }
    }
}

const fn default_block() -> Size {
    Size(4 << 20)
}

const fn default_policy() -> PolicyName {
    PolicyName::LRU
}

fn policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicyName, D::Error> {
    let text = String::deserialize(deserializer)?;
    let names = || PolicyName::all().map(PolicyName::as_str);
    PolicyName::all()
        .find(|policy| policy.as_str().eq_ignore_ascii_case(&text))
        .ok_or_else(|| D::Error::custom(unknown("policy", &text, names())))
}

fn some_policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PolicyName>, D::Error> {
    policy(deserializer).map(Some)
}

const fn default_share() -> f64 {
    0.5
}
